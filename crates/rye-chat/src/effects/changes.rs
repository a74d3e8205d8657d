//! Effects that show and undo what the session changed in files.

use rye_engine::changes::Selection;

use super::EffectRunner;
use crate::app::App;
use crate::block::Block;
use crate::command::forced_undo;
use crate::host::{ChangeSummary, FileConflict, UndoError, UndoSummary};
use crate::text::{DIM, GREEN, Line, PLAIN, RED, YELLOW};

impl EffectRunner {
    /// Shows what the session changed.
    pub(super) fn show_changes(&self, selection: Selection) {
        let (engine, session) = (self.engine.clone(), self.session.id().clone());
        let diff = self.host.diff(engine, session, selection);
        self.show(async move {
            Ok(Some(match diff.await {
                Ok(changes) if changes.files.is_empty() && changes.unknown == 0 => {
                    Block::notice("the agent changed no files")
                }
                Ok(changes) => Block::Changes(changes),
                Err(error) => Block::Error(error),
            }))
        });
    }

    /// Undoes what the session changed, unless the agent works: it could change a file meanwhile.
    pub(super) fn undo_changes(&self, selection: Selection, force: bool, app: &mut App) {
        if app
            .panes
            .iter()
            .any(|pane| pane.is_busy() || pane.unconfirmed > 0)
        {
            let text = "the agent is working: stop it with Esc, then undo";
            return app.add_block(Block::Error(text.to_owned()));
        }
        let (engine, session) = (self.engine.clone(), self.session.id().clone());
        let undo = self.host.undo(engine, session, selection.clone(), force);
        self.spawn(async move {
            let undone = undo.await;
            Box::new(move |app: &mut App| {
                app.workspace_changed = true;
                app.add_block(match undone {
                    Ok(summary) => Block::Notice(undone_lines(&summary)),
                    Err(UndoError::Conflict(files)) => {
                        Block::Notice(conflict_lines(&files, &selection))
                    }
                    Err(UndoError::Other(error)) => Block::Error(error),
                });
            })
        });
    }
}

/// What was undone.
fn undone_lines(summary: &UndoSummary) -> Vec<Line> {
    let mut lines = Vec::new();
    for (path, is_removed) in &summary.files {
        let what = if *is_removed { "removed " } else { "restored " };
        lines.push(Line::new("↶ ", GREEN).with(what, DIM).with(path, PLAIN));
    }
    if let Some(error) = &summary.error {
        lines.push(Line::new("✗ ", RED).with(error, RED));
    } else if lines.is_empty() {
        lines.push(Line::new("nothing to undo", DIM));
    } else {
        lines.push(Line::new("the agent is told with your next prompt", DIM));
    }
    lines.extend(unknown_line(summary.unknown));
    lines
}

/// Why nothing was undone, and how to undo it anyway.
fn conflict_lines(files: &[FileConflict], selection: &Selection) -> Vec<Line> {
    let mut lines = vec![Line::new("✗ nothing was undone", RED)];
    for file in files {
        let line = Line::plain("  ").with(&file.path, PLAIN);
        lines.push(line.with(&format!(": {}", file.reason), YELLOW));
    }
    let hint = if files.iter().all(|file| file.can_be_forced) {
        let command = forced_undo(selection);
        format!("  {command} undoes it and loses what changed since")
    } else {
        "  /undo FILE undoes the changes of one file".to_owned()
    };
    lines.push(Line::new(&hint, DIM));
    lines
}

/// Says how many commands made changes that are not known.
pub(crate) fn unknown_line(count: usize) -> Option<Line> {
    let commands = match count {
        0 => return None,
        1 => "1 command".to_owned(),
        many => format!("{many} commands"),
    };
    let text = format!("the changes of {commands} are unknown: the workspace has too many files");
    Some(Line::new(&text, YELLOW))
}

impl ChangeSummary {
    /// Number of added and removed lines.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let files = self.files.iter();
        files.fold((0, 0), |(added, removed), file| {
            (added + file.added, removed + file.removed)
        })
    }
}
