//! `rye session diff` and `rye session undo`.

use rye_engine::changes::FileStatus;
use rye_host::session_changes::{
    self, FileDiff, SessionDiff, UndoReport, conflict_reason, undo_command,
};
use rye_host::session_engine::with_session_files;
use serde_json::Value;

use crate::cli::args::{DiffArgs, UndoArgs};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, BOLD, DIM, GOOD, HELP, Page, WARN, one_line, paint, sanitize};
use crate::cli::printer::{Outcome, Report};

pub(super) fn diff(args: &DiffArgs, context: &Context) -> Outcome {
    let selection = args.selection.selection();
    with_session_files(context, &args.session.id, async |engine, session| {
        let diff = session_changes::diff(engine, session, &selection).await?;
        Ok(Box::new(diff) as Box<dyn Report>)
    })
}

pub(super) fn undo(args: &UndoArgs, context: &Context) -> Outcome {
    let selection = args.selection.selection();
    with_session_files(context, &args.session.id, async |engine, session| {
        let undone = session_changes::undo(engine, session, &selection, args.force).await?;
        Ok(Box::new(undone) as Box<dyn Report>)
    })
}

/// `3 files`.
fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        many => format!("{many} {what}s"),
    }
}

/// The commands whose changes are unknown.
fn show_unknown(count: usize, page: &mut Page) {
    if count > 0 {
        let commands = counted(count, "command");
        let text = format!(
            "the changes of {commands} are unknown: a command ran in the background, or the \
             workspace has too many files"
        );
        page.line(paint(WARN, text));
    }
}

impl Report for SessionDiff {
    fn json(&self) -> Value {
        Self::json(self)
    }

    fn show(&self, page: &mut Page) {
        let (added, removed) = self.files.iter().fold((0, 0), |(added, removed), file| {
            (added + file.added, removed + file.removed)
        });
        let id = self.session.short();
        if self.files.is_empty() {
            page.line(format_args!("session {id} changed no files"));
        } else {
            let files = counted(self.files.len(), "file");
            let line = format!("session {id}: {files} changed, +{added} -{removed}");
            page.line(paint(BOLD, line));
        }
        for file in &self.files {
            show_file(file, page);
        }
        show_unknown(self.unknown, page);
    }

    fn next_command(&self) -> Option<String> {
        let mut files = self.files.iter();
        let can_be_undone = files.any(|it| it.compared.status == FileStatus::Unchanged);
        can_be_undone.then(|| undo_command(&self.session, &self.selection))
    }
}

fn show_file(file: &FileDiff, page: &mut Page) {
    let changed = &file.compared.file;
    let turns: Vec<_> = changed.turns.iter().map(usize::to_string).collect();
    let turns = match turns.as_slice() {
        [] => String::new(),
        [one] => format!(", turn {one}"),
        several => format!(", turns {}", several.join(", ")),
    };
    page.line("");
    page.line(format_args!(
        "{} {}",
        paint(
            BOLD,
            format_args!("{} {}", file.kind(), one_line(&changed.path))
        ),
        paint(
            DIM,
            format_args!("(+{} -{}{turns})", file.added, file.removed)
        ),
    ));
    match file.compared.status {
        FileStatus::Unchanged => {}
        FileStatus::Restored => page.line(paint(DIM, "undone")),
        FileStatus::Conflict(conflict) => page.line(paint(WARN, conflict_reason(conflict))),
    }
    match &file.diff {
        Some(diff) => {
            for line in diff.lines() {
                let style = match line.as_bytes() {
                    [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => DIM,
                    [b'+', ..] => GOOD,
                    [b'-', ..] => BAD,
                    [b'@', ..] => HELP,
                    _ => {
                        page.line(sanitize(line));
                        continue;
                    }
                };
                page.line(paint(style, sanitize(line)));
            }
        }
        None => page.line(paint(DIM, "not text, too long, or not kept")),
    }
}

impl Report for UndoReport {
    fn json(&self) -> Value {
        Self::json(self)
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.clone()
    }

    fn show(&self, page: &mut Page) {
        let id = self.session.short();
        if self.restored.is_empty() && self.failure.is_none() {
            page.line(format_args!("session {id}: nothing to undo"));
        }
        for (path, kind) in &self.restored {
            let what = match *kind {
                "created" => "removed",
                _ => "restored",
            };
            page.line(format_args!("{what} {}", one_line(path)));
        }
        show_unknown(self.unknown, page);
    }
}
