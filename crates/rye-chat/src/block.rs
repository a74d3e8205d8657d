//! Blocks of finished output and how they are rendered.

use anstyle::Style;
use rye_engine::protocol::ResultStatus;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::highlight;
use crate::markdown;
use crate::text::{BOLD, CONTINUATION, CYAN, DIM, GREEN, Line, PLAIN, RED, YELLOW};

/// Lines of a diff that are shown with a call.
const DIFF_LINES: usize = 24;
/// Lines of a tool's output that are shown when it is expanded.
const OUTPUT_LINES: usize = 400;

/// A unit of finished output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Block {
    /// A prompt of the user.
    Prompt(String),
    /// Markdown that the model wrote: a message or a part of it.
    Text(String),
    Thinking(String),
    Call(FinishedCall),
    /// A call that was shown before, now with its output.
    ExpandedCall(FinishedCall),
    /// A slash command of the user.
    Command(String),
    /// A heading, and names with their descriptions.
    List(&'static str, Vec<(String, String)>),
    Notice(Vec<Line>),
    /// Everything that is known about a gate.
    GateDetails(Vec<Line>),
    Error(String),
}

/// A tool call that has ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FinishedCall {
    pub(crate) tool: String,
    pub(crate) args: Value,
    pub(crate) status: ResultStatus,
    pub(crate) text: String,
}

impl Block {
    pub(crate) fn notice(text: &str) -> Self {
        Self::Notice(vec![Line::new(text, DIM)])
    }

    /// Renders the block, with a blank line before it if it starts something new.
    pub(crate) fn lines(&self, width: usize, expanded: bool) -> Vec<Line> {
        let mut lines = match self {
            Self::Call(_) | Self::Notice(_) | Self::GateDetails(_) | Self::List(..) => Vec::new(),
            _ => vec![Line::default()],
        };
        match self {
            Self::Prompt(text) => lines.extend(marked("› ", CYAN, BOLD, text, width)),
            Self::Text(text) => lines.extend(markdown::render(text, width)),
            Self::Thinking(text) => {
                let first = || first_line(text, width.saturating_mul(2));
                let shown = if expanded { text.clone() } else { first() };
                lines.extend(marked("∴ ", DIM, DIM.italic(), &shown, width));
            }
            Self::Call(call) => lines.extend(call.lines(width, expanded)),
            Self::ExpandedCall(call) => lines.extend(call.lines(width, true)),
            Self::Command(text) => lines.extend(marked("› ", CYAN, DIM, text, width)),
            Self::List(heading, rows) => lines.extend(list_lines(heading, rows, width)),
            Self::Notice(notice) => {
                for line in notice {
                    lines.extend(line.clone().wrap(width, &Line::plain("  ")));
                }
            }
            Self::GateDetails(details) => {
                for line in details {
                    lines.extend(line.clone().wrap(width, &Line::new(CONTINUATION, DIM)));
                }
            }
            Self::Error(text) => lines.extend(marked("✗ ", RED, RED, text, width)),
        }
        lines
    }
}

impl FinishedCall {
    fn lines(&self, width: usize, expanded: bool) -> Vec<Line> {
        let (mark, style) = match self.status {
            ResultStatus::Success => ("● ", GREEN),
            ResultStatus::Error => ("✗ ", RED),
            ResultStatus::Interrupted => ("? ", YELLOW),
            ResultStatus::Aborted => ("■ ", YELLOW),
        };
        let mut head = Line::new(mark, style).with(&self.tool, BOLD);
        let summary = call_summary(&self.tool, &self.args);
        if !summary.is_empty() {
            head.push(&format!(" {summary}"), PLAIN);
        }
        let count = self.text.lines().count();
        let size = match (self.status, count) {
            (ResultStatus::Success, 0) => String::new(),
            (ResultStatus::Success, 1) => format!("  {}", first_line(&self.text, 60)),
            (ResultStatus::Success, lines) => format!("  {lines} lines"),
            (_, _) => format!("  {}", first_line(&self.text, 200)),
        };
        let room = width.saturating_sub(Line::plain(&size).width().min(width / 2));
        let mut head = head.truncate(room);
        head.push(&size, DIM);
        let mut lines = vec![head.truncate(width)];
        lines.extend(diff_lines(&self.tool, &self.args, width, DIFF_LINES));
        if expanded {
            lines.extend(output_lines(&self.text, width, OUTPUT_LINES));
        }
        lines
    }
}

/// The last lines of a tool's output.
pub(crate) fn output_lines(text: &str, width: usize, most: usize) -> Vec<Line> {
    let count = text.lines().count();
    let hidden = count.saturating_sub(most);
    let mut lines = Vec::new();
    if hidden > 0 {
        lines.push(Line::new(&format!("  │ … {hidden} lines above"), DIM));
    }
    let bar = Line::new("  │ ", DIM);
    let shown = text.lines().skip(hidden);
    lines.extend(shown.map(|line| bar.clone().with(line, PLAIN).truncate(width)));
    lines
}

/// The main argument of a call, in one line.
pub(crate) fn call_summary(tool: &str, args: &Value) -> String {
    let text = |key: &str| args.get(key).and_then(Value::as_str);
    let known = match tool {
        "bash" => text("command"),
        "read" | "write" | "edit" => text("path"),
        "grep" | "glob" => text("pattern"),
        "call_tool" => text("tool_id"),
        "list_tools" => text("query"),
        "task" => text("prompt"),
        "skill" => text("name"),
        _ => None,
    };
    match known {
        Some(text) => first_line(text, 200),
        None if args.as_object().is_none_or(serde_json::Map::is_empty) => String::new(),
        None => first_line(&args.to_string(), 200),
    }
}

/// The diff of a call that changes a file; empty for other calls.
pub(crate) fn diff_lines(tool: &str, args: &Value, width: usize, most: usize) -> Vec<Line> {
    let pairs: Vec<(&str, &str)> = match tool {
        "edit" => {
            let several = args.get("edits").and_then(Value::as_array);
            let several = several.into_iter().flatten().filter_map(edit_texts);
            edit_texts(args).into_iter().chain(several).collect()
        }
        "write" => vec![("", args["content"].as_str().unwrap_or_default())],
        _ => Vec::new(),
    };
    let mut lines = Vec::new();
    for (old, new) in pairs {
        for change in TextDiff::from_lines(old, new).iter_all_changes() {
            let mark = match change.tag() {
                ChangeTag::Equal => " ",
                ChangeTag::Insert => "+",
                ChangeTag::Delete => "-",
            };
            let line = format!("{mark}{}", change.value().trim_end_matches('\n'));
            let mut full = Line::plain("  ");
            full.extend(highlight::diff_line(&line));
            lines.push(full.truncate(width));
        }
    }
    if lines.len() > most {
        let hidden = lines.len() - most;
        lines.truncate(most);
        lines.push(Line::new(&format!("  … {hidden} more lines"), DIM));
    }
    lines
}

/// The old and the new text of an edit.
fn edit_texts(change: &Value) -> Option<(&str, &str)> {
    let text = |key: &str| change.get(key).and_then(Value::as_str);
    Some((text("old")?, text("new")?))
}

/// Names with their descriptions, side by side if the width allows it.
fn list_lines(heading: &str, rows: &[(String, String)], width: usize) -> Vec<Line> {
    /// A narrower column is hard to read.
    const MIN_DESCRIPTION_WIDTH: usize = 30;
    let mut lines = Vec::new();
    if !heading.is_empty() {
        lines.push(Line::new(heading, BOLD));
    }
    let longest = rows.iter().map(|(name, _)| Line::plain(name).width()).max();
    let column = longest.unwrap_or(0) + 4;
    let side_by_side = width >= column + MIN_DESCRIPTION_WIDTH;
    for (name, description) in rows {
        let mut line = Line::plain("  ").with(name, CYAN);
        if !side_by_side {
            lines.extend(line.wrap(width, &Line::plain("    ")));
            line = Line::plain("    ");
        }
        let indent = if side_by_side { column } else { 4 };
        let pad = indent.saturating_sub(line.width());
        line.push(&" ".repeat(pad), PLAIN);
        line.push(description, PLAIN);
        lines.extend(line.wrap(width, &Line::plain(&" ".repeat(indent))));
    }
    lines
}

/// A text with a symbol before its first line.
fn marked(mark: &str, mark_style: Style, style: Style, text: &str, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for part in text.trim_end().split('\n') {
        let mut line = if lines.is_empty() {
            Line::new(mark, mark_style)
        } else {
            Line::plain("  ")
        };
        line.push(part, style);
        lines.extend(line.wrap(width, &Line::plain("  ")));
    }
    lines
}

/// The first line, cut at `most` characters; `…` marks an omission.
pub(crate) fn first_line(text: &str, most: usize) -> String {
    let text = text.trim();
    let first = text.lines().next().unwrap_or_default();
    let cut: String = first.chars().take(most).collect();
    if cut.len() < text.len() {
        format!("{cut} …")
    } else {
        cut
    }
}
