//! The sessions that the user can resume from the chat.

use rye_engine::protocol::{Purpose, Session};

use crate::app::dollars;
use crate::completion::Choice;

/// The conversations that can be resumed, the one that changed last first.
pub(crate) fn choices(mut sessions: Vec<Session>, now_millis: u64) -> Vec<Choice> {
    sessions.retain(|it| {
        let is_conversation = it.purpose == Purpose::Interactive && it.run.is_none();
        let is_readable = it.unreadable.is_none();
        is_conversation && is_readable && it.parent.is_none()
    });
    sessions.sort_by_key(|it| std::cmp::Reverse(it.updated_at));
    let choice = |session: Session| {
        let age = age(now_millis.saturating_sub(session.updated_at.0) / 1000);
        let title = session.title.unwrap_or_else(|| "(empty)".to_owned());
        let cost = match session.usage.micro_dollars {
            0 => String::new(),
            micro => format!(", {}", dollars(micro)),
        };
        Choice {
            text: session.id.short().to_owned(),
            description: format!("{title} ({age}{cost})"),
        }
    };
    sessions.into_iter().map(choice).collect()
}

/// A duration in the largest unit of which it has at least one.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        86_400..172_800 => "yesterday".to_owned(),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use rye_engine::protocol::{Millis, SessionId};

    use super::*;

    #[test]
    fn conversations_are_listed_newest_first() {
        let session = |id: &str, title: Option<&str>, updated_at: u64| {
            let id: SessionId = id.parse().unwrap();
            let mut session = Session::new(id, Purpose::Interactive, Millis(1));
            session.title = title.map(str::to_owned);
            session.updated_at = Millis(updated_at);
            session
        };
        let mut paid = session("aaaaaaaa", Some("fix the build"), 1_000_000);
        paid.usage.micro_dollars = 120_000;
        let mut run = session("bbbbbbbb", Some("a run"), 1_000_000);
        run.purpose = Purpose::Workflow;
        let all = vec![paid, run, session("cccccccc", None, 4_590_000)];
        let found: Vec<_> = choices(all, 4_600_000)
            .into_iter()
            .map(|it| (it.text, it.description))
            .collect();
        let expected = [
            ("cccccccc", "(empty) (just now)"),
            ("aaaaaaaa", "fix the build (1 h ago, $0.12)"),
        ];
        assert_eq!(found, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn age_has_the_largest_unit() {
        let table = [
            (59, "just now"),
            (60, "1 min ago"),
            (7199, "1 h ago"),
            (100_000, "yesterday"),
            (200_000, "2 days ago"),
        ];
        for (seconds, expected) in table {
            assert_eq!(age(seconds), expected);
        }
    }
}
