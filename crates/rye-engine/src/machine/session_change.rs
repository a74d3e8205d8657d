//! Changes to the session that a thread's step requires.

use rye_protocol::{Millis, Session};

use super::limit_gate::LimitIncrease;

/// Longest title that is made from a prompt, in characters.
const MAX_TITLE: usize = 60;

/// Changes to the session, written in the same commit as the step of the thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SessionChange {
    /// A limit to increase.
    pub(crate) increase: Option<LimitIncrease>,
    /// The title, unless the session has one.
    pub(crate) title: Option<String>,
    /// Restored files that the model is told about.
    pub(crate) told_restored: Vec<String>,
    /// Whether a turn has ended, which counts as a change of the session.
    pub(crate) ends_turn: bool,
}

impl SessionChange {
    /// The changed session; `None` if nothing changes.
    pub(crate) fn apply(&self, session: &Session, now: Millis) -> Option<Session> {
        let title = self.title.as_ref().filter(|_| session.title.is_none());
        let is_unchanged =
            self.increase.is_none() && title.is_none() && self.told_restored.is_empty();
        if is_unchanged && !self.ends_turn {
            return None;
        }
        let mut session = session.clone();
        if let Some(increase) = self.increase {
            increase.apply(&mut session.limits);
        }
        if let Some(title) = title {
            session.title = Some(title.clone());
        }
        let told = &self.told_restored;
        session.restored_files.retain(|path| !told.contains(path));
        session.updated_at = now;
        Some(session)
    }
}

/// A title made from a prompt: its first line, cut at a word. `None` if the prompt has no text.
pub(super) fn title(prompt: &str) -> Option<String> {
    let mut lines = prompt.lines().map(str::trim);
    let line = lines.find(|line| !line.is_empty())?;
    if line.chars().count() <= MAX_TITLE {
        return Some(line.to_owned());
    }
    // One character is for the ellipsis.
    let end = line.char_indices().nth(MAX_TITLE - 1);
    let start = &line[..end.map_or(line.len(), |(at, _)| at)];
    let is_cut = !line[start.len()..].starts_with(char::is_whitespace);
    let word = start.rfind(char::is_whitespace).filter(|_| is_cut);
    let start = word.map_or(start, |at| &start[..at]);
    Some(format!("{}…", start.trim_end()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn title_is_the_first_line_cut_at_a_word() {
        let title = |prompt: &str| super::title(prompt).unwrap_or_default();
        assert_eq!(title("\n  fix the build \nand more"), "fix the build");
        assert_eq!(title(" \n"), "");
        assert_eq!(title(&"a".repeat(60)), "a".repeat(60));
        assert_eq!(title(&"ä".repeat(61)), format!("{}…", "ä".repeat(59)));
        let words = format!("{} {} tail", "a".repeat(40), "b".repeat(18));
        assert_eq!(
            title(&words),
            format!("{} {}…", "a".repeat(40), "b".repeat(18))
        );
        let words = format!("{} {}", "a".repeat(40), "b".repeat(30));
        assert_eq!(title(&words), format!("{}…", "a".repeat(40)));
    }
}
