//! What waits for a thread.

use rye_engine::protocol::{QueueItem, QueueItemId};

use super::Pane;
use crate::block::first_line;
use crate::text::{DIM, Line};

impl Pane {
    /// A prompt that was sent from here is written down: it will be heard of, or was.
    pub(crate) fn written(&mut self, item: QueueItemId) {
        if self.heard.contains(&item) {
            self.sent = self.sent.saturating_sub(1);
        } else {
            self.unheard.insert(item);
        }
    }

    /// What runs and what waits, now.
    pub(crate) fn queue(&mut self, running: Option<&QueueItemId>, waiting: &[QueueItemId]) {
        self.queued = waiting.len() + usize::from(running.is_some());
        self.order = waiting.to_vec();
        self.waiting.retain(|item| waiting.contains(&item.id));
        for item in waiting.iter().chain(running) {
            self.heard.insert(item.clone());
            if self.unheard.remove(item) {
                self.sent = self.sent.saturating_sub(1);
            }
        }
    }

    /// Whether all that was sent is known to be there, and what waits has been looked up.
    pub(crate) fn is_known(&self) -> bool {
        self.sent == 0 && self.waiting.len() == self.order.len()
    }

    /// The prompts that were found when it was looked up what waits. That takes its time: what
    /// was looked up before something came is no news, and what has gone since is gone.
    pub(crate) fn found(&mut self, found: &[QueueItem]) {
        let all = self.order.iter();
        let all = all.map(|id| found.iter().find(|item| item.id == *id).cloned());
        if let Some(waiting) = all.collect() {
            self.waiting = waiting;
        }
    }
}

/// What a person can read of a queue.
pub(crate) fn waiting(items: &[QueueItem], most: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for (item, number) in items.iter().zip(1..).take(most) {
        let text = first_line(&item.content, 200);
        lines.push(Line::new(&format!("  {number}. {text}"), DIM));
    }
    if items.len() > most {
        lines.push(Line::new(&format!("  … {} more", items.len() - most), DIM));
    }
    lines
}

#[cfg(test)]
mod tests {
    use rye_engine::protocol::{ItemStatus, Limits, Millis, QueueMode};
    use serde_json::Map;

    use super::*;

    fn item(id: char) -> QueueItem {
        QueueItem {
            id: id.to_string().parse().unwrap(),
            session: "s".parse().unwrap(),
            thread: "t".parse().unwrap(),
            order: 0,
            content: id.to_string(),
            attachments: Vec::new(),
            author: None,
            reply_to: None,
            model: None,
            role: None,
            limits: Limits::default(),
            mode: QueueMode::Followup,
            status: ItemStatus::Waiting,
            collect_until: None,
            metadata: Map::new(),
            created_at: Millis(1),
        }
    }

    /// What is told comes in order; what is looked up comes when it comes.
    #[test]
    fn what_was_looked_up_before_is_not_shown_after() {
        // What was told last, what was looked up one after the other, and what is shown.
        for (told, looked_up, shown) in [
            ("ab", "ab", "ab"),
            ("ab", "ab a", "ab"),
            ("b", "ab", "b"),
            ("", "a", ""),
            ("ca", "abc", "ca"),
        ] {
            let mut pane = Pane::new("default", None);
            let ids: Vec<_> = told.chars().map(|id| item(id).id).collect();
            pane.queue(None, &ids);
            for found in looked_up.split(' ') {
                pane.found(&found.chars().map(item).collect::<Vec<_>>());
            }
            let waiting: String = pane.waiting.iter().map(|it| it.content.as_str()).collect();
            assert_eq!(waiting, shown, "{told} {looked_up}");
        }
    }
}
