//! Queued prompts of a thread.

use rye_engine::protocol::{PromptId, QueuedPrompt};

use super::Pane;
use crate::block::first_line;
use crate::text::{DIM, Line};

impl Pane {
    /// A prompt sent from here is stored as `prompt`; its event comes later or has come already.
    pub(crate) fn on_prompt_queued(&mut self, prompt: PromptId) {
        if self.confirmed.contains(&prompt) {
            self.unconfirmed = self.unconfirmed.saturating_sub(1);
        } else {
            self.stored.insert(prompt);
        }
    }

    /// Applies a queue event.
    pub(crate) fn set_queue_state(&mut self, running: Option<&PromptId>, waiting: &[PromptId]) {
        self.queued = waiting.len() + usize::from(running.is_some());
        self.queue_order = waiting.to_vec();
        self.waiting.retain(|prompt| waiting.contains(&prompt.id));
        for prompt in waiting.iter().chain(running) {
            self.confirmed.insert(prompt.clone());
            if self.stored.remove(prompt) {
                self.unconfirmed = self.unconfirmed.saturating_sub(1);
            }
        }
    }

    /// Whether all sent prompts are confirmed and all queued prompts are loaded.
    pub(crate) fn is_queue_loaded(&self) -> bool {
        self.unconfirmed == 0 && self.waiting.len() == self.queue_order.len()
    }

    /// Sets the queued prompts as loaded from the store. The load may be older than the last
    /// queue event: an incomplete one is ignored, and prompts that have started are dropped.
    pub(crate) fn set_queue_prompts(&mut self, prompts: &[QueuedPrompt]) {
        let all = self.queue_order.iter();
        let all = all.map(|id| prompts.iter().find(|prompt| prompt.id == *id).cloned());
        if let Some(waiting) = all.collect() {
            self.waiting = waiting;
        }
    }
}

/// The first `most` queued prompts, one line each.
pub(crate) fn queue_lines(prompts: &[QueuedPrompt], most: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for (prompt, number) in prompts.iter().zip(1..).take(most) {
        let text = first_line(&prompt.content, 200);
        lines.push(Line::new(&format!("  {number}. {text}"), DIM));
    }
    if prompts.len() > most {
        lines.push(Line::new(
            &format!("  … {} more", prompts.len() - most),
            DIM,
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use rye_engine::protocol::Millis;

    use super::*;

    fn prompt(id: char) -> QueuedPrompt {
        let (session, thread) = ("s".parse().unwrap(), "t".parse().unwrap());
        QueuedPrompt {
            id: id.to_string().parse().unwrap(),
            ..QueuedPrompt::new(session, thread, id, Millis(1))
        }
    }

    #[test]
    fn queue_load_older_than_the_last_event_is_ignored() {
        // Queue order from the last event, results of the loads, and prompts shown.
        for (order, loads, shown) in [
            ("ab", "ab", "ab"),
            ("ab", "ab a", "ab"),
            ("b", "ab", "b"),
            ("", "a", ""),
            ("ca", "abc", "ca"),
        ] {
            let mut pane = Pane::new("default", None);
            let ids: Vec<_> = order.chars().map(|id| prompt(id).id).collect();
            pane.set_queue_state(None, &ids);
            for prompts in loads.split(' ') {
                pane.set_queue_prompts(&prompts.chars().map(prompt).collect::<Vec<_>>());
            }
            let waiting: String = pane.waiting.iter().map(|it| it.content.as_str()).collect();
            assert_eq!(waiting, shown, "{order} {loads}");
        }
    }
}
