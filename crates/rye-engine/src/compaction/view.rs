//! What a model sees of a path: the current summary and the entries that it does not cover.

use std::collections::HashSet;
use std::fmt::Write as _;

use rye_protocol::{Entry, EntryId, EntryKind, Message, Part, Role};

/// A path with its active compactions.
#[derive(Debug)]
pub struct View<'a> {
    path: &'a [Entry],
    /// Index of the last active compaction.
    compaction: Option<usize>,
    /// Entries that active compactions cover.
    covered: HashSet<&'a EntryId>,
}

impl<'a> View<'a> {
    /// Creates the view of a path, which is ordered from the first entry to the last.
    pub fn new(path: &'a [Entry]) -> Self {
        let mut active: Vec<usize> = Vec::new();
        for (index, entry) in path.iter().enumerate() {
            match &entry.kind {
                EntryKind::Compaction { .. } => active.push(index),
                EntryKind::CompactionUndone { compaction } => {
                    active.retain(|index| path[*index].id != *compaction);
                }
                _ => {}
            }
        }
        let covered = active.iter().flat_map(|index| match &path[*index].kind {
            EntryKind::Compaction { covered, .. } => covered.iter(),
            _ => [].iter(),
        });
        Self {
            path,
            compaction: active.last().copied(),
            covered: covered.collect(),
        }
    }

    /// The entry of the last active compaction.
    pub fn summary(&self) -> Option<&'a Entry> {
        self.compaction.map(|index| &self.path[index])
    }

    /// Whether an active compaction covers the entry.
    pub fn is_covered(&self, entry: &Entry) -> bool {
        self.covered.contains(&entry.id)
    }

    /// Indexes of the entries that are neither covered nor compactions.
    pub fn uncovered(&self) -> impl Iterator<Item = usize> + '_ {
        let is_compaction = |entry: &Entry| {
            matches!(
                entry.kind,
                EntryKind::Compaction { .. } | EntryKind::CompactionUndone { .. }
            )
        };
        (0..self.path.len()).filter(move |index| {
            !is_compaction(&self.path[*index]) && !self.is_covered(&self.path[*index])
        })
    }

    /// What a model sees, in order: the summary, then the uncovered entries.
    pub(crate) fn visible(&self) -> impl Iterator<Item = VisibleEntry<'a>> + '_ {
        let omit_media = self.summary().is_some_and(|compaction| {
            matches!(
                compaction.kind,
                EntryKind::Compaction {
                    without_media: true,
                    ..
                }
            )
        });
        let (path, compaction) = (self.path, self.compaction);
        let first = self
            .summary()
            .map(|compaction| VisibleEntry::Summary(Box::new(Self::summary_message(compaction))));
        let rest = self.uncovered().map(move |index| VisibleEntry::Entry {
            entry: &path[index],
            without_media: omit_media && compaction.is_some_and(|compaction| index < compaction),
        });
        first.into_iter().chain(rest)
    }

    /// The message of a summary.
    fn summary_message(compaction: &Entry) -> Message {
        let text = match &compaction.kind {
            EntryKind::Compaction {
                summary,
                preserved,
                files_read,
                files_modified,
                ..
            } => format_summary(summary, preserved, files_read, files_modified),
            _ => String::new(),
        };
        Message::text(Role::User, text)
    }

    /// Number of assistant messages that the summary replaces.
    pub(crate) fn covered_answers(&self) -> usize {
        let is_covered = |entry: &&Entry| is_answer(entry) && self.is_covered(entry);
        self.path.iter().filter(is_covered).count()
    }
}

/// An entry that a model sees.
#[derive(Debug)]
pub(crate) enum VisibleEntry<'a> {
    Summary(Box<Message>),
    Entry {
        entry: &'a Entry,
        without_media: bool,
    },
}

/// Whether an entry is an assistant message that a model sees.
fn is_answer(entry: &Entry) -> bool {
    let EntryKind::Message(message) = &entry.kind else {
        return false;
    };
    let is_visible = |part: &Part| !matches!(part, Part::Error { .. });
    message.role == Role::Assistant && message.parts.iter().any(is_visible)
}

/// Formats a summary with the files and the preserved prompts.
pub(crate) fn format_summary(
    summary: &str,
    preserved: &[String],
    files_read: &[String],
    files_modified: &[String],
) -> String {
    let mut text = String::from(
        "[The earlier history was replaced by this summary to save space. Continue from it.]\n\n",
    );
    text.push_str(summary.trim());
    for (title, files) in [
        ("Files read", files_read),
        ("Files changed", files_modified),
    ] {
        if !files.is_empty() {
            let _ = write!(text, "\n\n{title}: {}", files.join(", "));
        }
    }
    for text_block in preserved {
        let _ = write!(text, "\n\n{text_block}");
    }
    text
}
