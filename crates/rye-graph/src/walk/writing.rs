//! What a walk writes down, and who is told.

use rye_items::metadata::Effect;

use super::{Begun, EventListener, Walk, is_repeatable};
use crate::event::{Event, JournalLine};
use crate::model::Node;
use crate::record::RecordError;

impl Walk<'_> {
    /// Writes down that a node begins, with the end of the one before it.
    pub(super) fn begin(
        &mut self,
        node: &Node,
        effect: Effect,
        begun: Option<Begun>,
    ) -> Result<(), RecordError> {
        if self.journal.is_none() || begun.is_some() {
            return Ok(());
        }
        let (step, node) = (self.steps, node.name.clone());
        self.tell(Event::Begin { step, node, effect });
        let sync = self.must_sync || !is_repeatable(effect);
        self.commit(sync)
    }

    pub(super) fn warn(&mut self, node: &Node, messages: Vec<String>) {
        for message in messages {
            self.warnings.push(format!("{}: {message}", node.name));
            let node = node.name.clone();
            self.tell(Event::Warning { node, message });
        }
    }

    /// Adds to the record, if there is one, and tells whoever wants to know.
    pub(super) fn tell(&mut self, event: Event) {
        if let Some(journal) = &mut self.journal {
            let line = journal.push(event);
            self.told(&line);
        }
    }

    /// Tells whoever wants to know.
    pub(crate) fn told(&self, line: &JournalLine) {
        if let Some(EventListener(tell)) = &self.watcher {
            tell(line);
        }
    }

    pub(super) fn commit(&mut self, sync: bool) -> Result<(), RecordError> {
        if let Some(journal) = &mut self.journal {
            journal.commit(sync)?;
            self.must_sync &= !sync;
        }
        Ok(())
    }

    pub(super) fn snapshot(&mut self) -> Result<(), RecordError> {
        match &mut self.journal {
            Some(journal) => journal.snapshot(&self.state),
            None => Ok(()),
        }
    }
}
