//! What has been said and done, a block each.

use rye_engine::protocol::ResultStatus;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::highlight;
use crate::markdown;
use crate::text::{BOLD, CYAN, DIM, GOES_ON, GREEN, Line, PLAIN, RED, Style, YELLOW};

/// How much of a difference is shown by itself.
const DIFF_LINES: usize = 24;
/// How much of what a tool gave is shown when it is unfolded.
pub(crate) const OUTPUT_LINES: usize = 400;

/// Something that is finished.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Block {
    /// What the person said.
    Asked(String),
    /// What the model said, in Markdown; whether something of it came before.
    Said { text: String, goes_on: bool },
    /// What it thought.
    Thought(String),
    /// What a tool did.
    Tool(Done),
    /// The same once more, with what it gave.
    Unfolded(Done),
    /// A command that the person gave.
    Command(String),
    /// What there is of a kind: names, and what is said of each.
    Listed(&'static str, Vec<(String, String)>),
    /// What else happened.
    Told(Vec<Line>),
    /// All that there is to know of a gate.
    Gate(Vec<Line>),
    /// What went wrong.
    Wrong(String),
}

/// A call that has ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Done {
    pub(crate) tool: String,
    pub(crate) args: Value,
    pub(crate) status: ResultStatus,
    pub(crate) text: String,
}

impl Block {
    pub(crate) fn told(text: &str) -> Self {
        Self::Told(vec![Line::new(text, DIM)])
    }

    /// The lines of it, an empty one before it where it is something new.
    pub(crate) fn lines(&self, width: usize, unfolded: bool) -> Vec<Line> {
        let mut lines = match self {
            Self::Said { goes_on: true, .. }
            | Self::Tool(_)
            | Self::Told(_)
            | Self::Gate(_)
            | Self::Listed(..) => Vec::new(),
            _ => vec![Line::default()],
        };
        match self {
            Self::Asked(text) => lines.extend(marked("› ", CYAN, BOLD, text, width)),
            Self::Said { text, goes_on } => {
                if *goes_on {
                    lines.push(Line::default());
                }
                lines.extend(markdown::render(text, width));
            }
            Self::Thought(text) => {
                let style = Style {
                    italic: true,
                    ..DIM
                };
                let shown: String = if unfolded {
                    text.clone()
                } else {
                    first_line(text, width.saturating_mul(2))
                };
                lines.extend(marked("∴ ", DIM, style, &shown, width));
            }
            Self::Tool(done) => lines.extend(done.lines(width, unfolded)),
            Self::Unfolded(done) => lines.extend(done.lines(width, true)),
            Self::Command(text) => lines.extend(marked("› ", CYAN, DIM, text, width)),
            Self::Listed(head, rows) => lines.extend(listed(head, rows, width)),
            Self::Told(told) => {
                for line in told {
                    lines.extend(line.clone().wrap(width, &Line::plain("  ")));
                }
            }
            Self::Gate(told) => {
                for line in told {
                    lines.extend(line.clone().wrap(width, &Line::new(GOES_ON, DIM)));
                }
            }
            Self::Wrong(text) => lines.extend(marked("✗ ", RED, RED, text, width)),
        }
        lines
    }
}

impl Done {
    fn lines(&self, width: usize, unfolded: bool) -> Vec<Line> {
        let (mark, style) = match self.status {
            ResultStatus::Success => ("● ", GREEN),
            ResultStatus::Error => ("✗ ", RED),
            ResultStatus::Interrupted => ("? ", YELLOW),
            ResultStatus::Aborted => ("■ ", YELLOW),
        };
        let mut head = Line::new(mark, style).with(&self.tool, BOLD);
        let what = summary(&self.tool, &self.args);
        if !what.is_empty() {
            head.push(&format!(" {what}"), PLAIN);
        }
        let count = self.text.lines().count();
        let size = match (self.status, count) {
            (ResultStatus::Success, 0) => String::new(),
            (ResultStatus::Success, 1) => format!("  {}", first_line(&self.text, 60)),
            (ResultStatus::Success, lines) => format!("  {lines} lines"),
            (_, _) => format!("  {}", first_line(&self.text, 200)),
        };
        let room = width.saturating_sub(Line::plain(&size).width().min(width / 2));
        let mut head = head.cut(room);
        head.push(&size, DIM);
        let mut lines = vec![head.cut(width)];
        lines.extend(difference(&self.tool, &self.args, width, DIFF_LINES));
        if unfolded {
            lines.extend(output(&self.text, width, OUTPUT_LINES));
        }
        lines
    }
}

/// The last lines of what a tool gave.
pub(crate) fn output(text: &str, width: usize, most: usize) -> Vec<Line> {
    let count = text.lines().count();
    let left_out = count.saturating_sub(most);
    let mut lines = Vec::new();
    if left_out > 0 {
        lines.push(Line::new(&format!("  │ … {left_out} lines before"), DIM));
    }
    let bar = Line::new("  │ ", DIM);
    for line in text.lines().skip(left_out) {
        let mut whole = bar.clone();
        whole.extend(highlight::line("", line));
        lines.push(whole.cut(width));
    }
    lines
}

/// What a call is about, in a line.
pub(crate) fn summary(tool: &str, args: &Value) -> String {
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

/// What a call changes in a file, if that is what it does.
pub(crate) fn difference(tool: &str, args: &Value, width: usize, most: usize) -> Vec<Line> {
    let pairs: Vec<(&str, &str)> = match tool {
        "edit" => {
            let several = args.get("edits").and_then(Value::as_array);
            let several = several.into_iter().flatten().filter_map(pair);
            pair(args).into_iter().chain(several).collect()
        }
        "write" => vec![(
            "",
            args.get("content")
                .and_then(Value::as_str)
                .unwrap_or_default(),
        )],
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
            let mut whole = Line::plain("  ");
            whole.extend(highlight::changed(&line));
            lines.push(whole.cut(width));
        }
    }
    if lines.len() > most {
        let left_out = lines.len() - most;
        lines.truncate(most);
        lines.push(Line::new(&format!("  … {left_out} more lines"), DIM));
    }
    lines
}

/// What one change takes away, and what it puts there.
fn pair(change: &Value) -> Option<(&str, &str)> {
    let text = |key: &str| change.get(key).and_then(Value::as_str);
    Some((text("old")?, text("new")?))
}

/// Names and what is said of them, beside each other where there is room, else below.
fn listed(head: &str, rows: &[(String, String)], width: usize) -> Vec<Line> {
    /// What is narrower is hard to read.
    const READABLE: usize = 30;
    let mut lines = Vec::new();
    if !head.is_empty() {
        lines.push(Line::new(head, BOLD));
    }
    let longest = rows.iter().map(|(name, _)| Line::plain(name).width()).max();
    let column = longest.unwrap_or(0) + 4;
    let beside = width >= column + READABLE;
    for (name, what) in rows {
        let mut line = Line::plain("  ").with(name, CYAN);
        if !beside {
            lines.extend(line.wrap(width, &Line::plain("    ")));
            line = Line::plain("    ");
        }
        let indent = if beside { column } else { 4 };
        let pad = indent.saturating_sub(line.width());
        line.push(&" ".repeat(pad), PLAIN);
        line.push(what, PLAIN);
        lines.extend(line.wrap(width, &Line::plain(&" ".repeat(indent))));
    }
    lines
}

/// Text behind a mark.
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

/// The first line, cut; `…` says that there is more.
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
