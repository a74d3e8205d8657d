//! Journaling of an execution, and its listener.

use rye_items::metadata::EffectClass;

use super::{EventListener, InterruptedStart, Walker, is_repeatable};
use crate::definition::Node;
use crate::event::{Event, JournalLine};
use crate::record::RecordError;

impl Walker<'_> {
    /// Journals the start of a node, together with the end of the previous one.
    pub(super) fn begin(
        &mut self,
        node: &Node,
        effect: EffectClass,
        interrupted: Option<InterruptedStart>,
    ) -> Result<(), RecordError> {
        if self.journal.is_none() || interrupted.is_some() {
            return Ok(());
        }
        let (step, node) = (self.steps, node.name.clone());
        self.record(Event::Begin { step, node, effect });
        let sync = self.must_sync || !is_repeatable(effect);
        self.commit(sync)
    }

    pub(super) fn warn(&mut self, node: &Node, messages: Vec<String>) {
        for message in messages {
            self.warnings.push(format!("{}: {message}", node.name));
            let node = node.name.clone();
            self.record(Event::Warning { node, message });
        }
    }

    /// Adds an event to the journal, if there is one, and notifies the listener.
    pub(super) fn record(&mut self, event: Event) {
        if let Some(journal) = &mut self.journal {
            let line = journal.push(event);
            self.notify(&line);
        }
    }

    /// Notifies the listener.
    pub(crate) fn notify(&self, line: &JournalLine) {
        if let Some(EventListener(on_line)) = &self.listener {
            on_line(line);
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
