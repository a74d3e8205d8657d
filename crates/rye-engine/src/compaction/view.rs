//! What of a path a model is shown: what stands covered by a sum is not, and the sum is.

use std::collections::HashSet;
use std::fmt::Write as _;

use rye_protocol::{Entry, EntryId, EntryKind, Message, Part, Role};
use serde_json::json;

use super::COMPACTED_ANSWERS;

/// A path with the sums that stand on it.
#[derive(Debug)]
pub struct View<'a> {
    path: &'a [Entry],
    /// The place of the last sum that stands.
    sum: Option<usize>,
    /// What sums that stand cover.
    covered: HashSet<&'a EntryId>,
}

impl<'a> View<'a> {
    /// A path from the first entry to the last.
    pub fn new(path: &'a [Entry]) -> Self {
        let mut standing: Vec<usize> = Vec::new();
        for (at, entry) in path.iter().enumerate() {
            match &entry.kind {
                EntryKind::Compaction { .. } => standing.push(at),
                EntryKind::CompactionUndone { compaction } => {
                    standing.retain(|at| path[*at].id != *compaction);
                }
                _ => {}
            }
        }
        let covered = standing.iter().flat_map(|at| match &path[*at].kind {
            EntryKind::Compaction { covered, .. } => covered.iter(),
            _ => [].iter(),
        });
        Self {
            path,
            sum: standing.last().copied(),
            covered: covered.collect(),
        }
    }

    /// The entry with the last sum that stands.
    pub fn summary(&self) -> Option<&'a Entry> {
        self.sum.map(|at| &self.path[at])
    }

    /// Whether an entry is summed up.
    pub fn is_covered(&self, entry: &Entry) -> bool {
        self.covered.contains(&entry.id)
    }

    /// The places of what is not summed up, sums aside.
    pub fn uncovered(&self) -> impl Iterator<Item = usize> + '_ {
        let is_sum = |entry: &Entry| {
            matches!(
                entry.kind,
                EntryKind::Compaction { .. } | EntryKind::CompactionUndone { .. }
            )
        };
        (0..self.path.len())
            .filter(move |at| !is_sum(&self.path[*at]) && !self.is_covered(&self.path[*at]))
    }

    /// What a model reads, in order: the sum first, then what is not summed up.
    pub(crate) fn shown(&self) -> impl Iterator<Item = Shown<'a>> + '_ {
        let strips = self.summary().is_some_and(|sum| {
            matches!(
                sum.kind,
                EntryKind::Compaction {
                    without_media: true,
                    ..
                }
            )
        });
        let (path, sum) = (self.path, self.sum);
        let first = self.summary().map(|sum| Shown::Sum(self.message(sum)));
        let rest = self.uncovered().map(move |at| Shown::Entry {
            entry: &path[at],
            without_media: strips && sum.is_some_and(|sum| at < sum),
        });
        first.into_iter().chain(rest)
    }

    /// The message that a sum is.
    fn message(&self, sum: &Entry) -> Message {
        let text = match &sum.kind {
            EntryKind::Compaction {
                summary,
                preserved,
                files_read,
                files_modified,
                ..
            } => words(summary, preserved, files_read, files_modified),
            _ => String::new(),
        };
        let mut message = Message::text(Role::User, text);
        let is_answer = |entry: &&Entry| is_answer(entry) && self.is_covered(entry);
        let answers = self.path.iter().filter(is_answer).count();
        message
            .metadata
            .insert(COMPACTED_ANSWERS.to_owned(), json!(answers));
        message
    }
}

/// Something that a model reads.
#[derive(Debug)]
pub(crate) enum Shown<'a> {
    Sum(Message),
    Entry {
        entry: &'a Entry,
        without_media: bool,
    },
}

/// Whether an entry is an answer that a model has read.
fn is_answer(entry: &Entry) -> bool {
    let EntryKind::Message(message) = &entry.kind else {
        return false;
    };
    let speaks = |part: &Part| !matches!(part, Part::Error { .. });
    message.role == Role::Assistant && message.parts.iter().any(speaks)
}

/// A sum in words, with what must not fade.
pub(crate) fn words(
    summary: &str,
    preserved: &[String],
    files_read: &[String],
    files_modified: &[String],
) -> String {
    let mut text = String::from(
        "[What came before was summed up to save room. The summary follows; go on from it.]\n\n",
    );
    text.push_str(summary.trim());
    for (title, files) in [
        ("Files that were read", files_read),
        ("Files that were changed", files_modified),
    ] {
        if !files.is_empty() {
            let _ = write!(text, "\n\n{title}: {}", files.join(", "));
        }
    }
    for fact in preserved {
        let _ = write!(text, "\n\n{fact}");
    }
    text
}
