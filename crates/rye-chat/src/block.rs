//! Blocks of finished output and how they are rendered.

use anstyle::Style;
use rye_engine::protocol::ResultStatus;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::effects::unknown_line;
use crate::highlight;
use crate::host::{ChangeSummary, FileChange};
use crate::markdown;
use crate::text::{BOLD, CONTINUATION, CYAN, DIM, GREEN, Line, MAGENTA, PLAIN, RED, YELLOW};

/// Lines of a diff that are shown with a call.
const DIFF_LINES: usize = 24;
/// Lines of the diff of a file that are shown with the changes of a session.
const CHANGE_LINES: usize = 60;
/// Lines of the output that are shown with a collapsed command.
const PREVIEW_LINES: usize = 3;
/// Lines of the output that are shown with a collapsed command that failed.
const FAILED_PREVIEW_LINES: usize = 8;
/// Lines of a prompt that are shown.
const PROMPT_LINES: usize = 30;
/// Lines of the output of the user's own command.
const SHELL_LINES: usize = 20;
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
    /// A block that was shown before, now expanded.
    Expanded(Box<Block>),
    /// A slash command of the user.
    Command(String),
    /// A command that the user ran, and how it failed.
    Shell {
        line: String,
        output: String,
        ending: Option<String>,
    },
    /// A heading, and names with their descriptions.
    List(&'static str, Vec<(String, String)>),
    Notice(Vec<Line>),
    /// What the session changed in files.
    Changes(ChangeSummary),
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
    /// The changes that the tool made, as a unified diff.
    pub(crate) diff: Option<String>,
    /// Address of the blob with the complete output, if `text` is only a part of it.
    pub(crate) full_output: Option<String>,
}

/// How much of a block is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    Collapsed,
    Expanded,
    Everything,
}

impl Detail {
    /// The number of lines to show, given how many a collapsed block shows.
    fn lines(self, collapsed: usize) -> usize {
        match self {
            Self::Collapsed => collapsed,
            Self::Expanded => OUTPUT_LINES,
            Self::Everything => usize::MAX,
        }
    }

    /// At least expanded.
    fn max_expanded(self) -> Self {
        match self {
            Self::Collapsed => Self::Expanded,
            other => other,
        }
    }
}

/// Width at which no line is broken or cut.
const UNLIMITED_WIDTH: usize = 1 << 20;

impl Block {
    pub(crate) fn notice(text: &str) -> Self {
        Self::Notice(text.split('\n').map(|line| Line::new(line, DIM)).collect())
    }

    /// Renders the block, with a blank line before it if it starts something new.
    pub(crate) fn lines(&self, width: usize, expanded: bool) -> Vec<Line> {
        let detail = if expanded {
            Detail::Expanded
        } else {
            Detail::Collapsed
        };
        self.render(width, detail)
    }

    /// All lines of the block, neither wrapped nor cut.
    pub(crate) fn all_lines(&self) -> Vec<Line> {
        self.render(UNLIMITED_WIDTH, Detail::Everything)
    }

    /// Whether the block may hide something that can be expanded.
    pub(crate) fn is_expandable(&self) -> bool {
        matches!(
            self,
            Self::Call(_) | Self::Shell { .. } | Self::Changes(_) | Self::GateDetails(_)
        )
    }

    fn render(&self, width: usize, detail: Detail) -> Vec<Line> {
        let mut lines = match self {
            Self::Call(_)
            | Self::Notice(_)
            | Self::GateDetails(_)
            | Self::List(..)
            | Self::Expanded(_) => Vec::new(),
            _ => vec![Line::default()],
        };
        match self {
            Self::Prompt(text) => {
                let mut prompt = marked("› ", CYAN, BOLD, text, width);
                let hidden = prompt.len().saturating_sub(PROMPT_LINES);
                if hidden > 1 && detail == Detail::Collapsed {
                    prompt.truncate(PROMPT_LINES);
                    prompt.push(Line::new(&format!("  … {hidden} more lines"), DIM));
                }
                lines.extend(prompt);
            }
            Self::Text(text) => lines.extend(markdown::render(text, width)),
            Self::Thinking(text) => {
                let shown = match detail {
                    Detail::Collapsed => first_line(text, width.saturating_mul(2)),
                    _ => text.clone(),
                };
                lines.extend(marked("∴ ", DIM, DIM.italic(), &shown, width));
            }
            Self::Call(call) => lines.extend(call.lines(width, detail)),
            Self::Expanded(block) => {
                if matches!(**block, Self::Call(_)) {
                    lines.push(Line::default());
                }
                lines.extend(block.render(width, detail.max_expanded()));
            }
            Self::Shell {
                line,
                output,
                ending,
            } => {
                lines.extend(marked("! ", MAGENTA, BOLD, line, width));
                lines.extend(output_lines(output, width, detail.lines(SHELL_LINES)));
                lines.extend(ending.iter().map(|it| Line::new(&format!("  {it}"), RED)));
            }
            Self::Command(text) => lines.extend(marked("› ", CYAN, DIM, text, width)),
            Self::List(heading, rows) => lines.extend(list_lines(heading, rows, width)),
            Self::Notice(notice) => {
                for line in notice {
                    lines.extend(line.clone().wrap(width, &Line::plain("  ")));
                }
            }
            Self::Changes(changes) => lines.extend(change_lines(changes, width, detail)),
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
    fn lines(&self, width: usize, detail: Detail) -> Vec<Line> {
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
            _ if self.is_plan() => String::new(),
            (ResultStatus::Success, _) if self.diff.is_some() => {
                let diff = self.diff.as_deref().unwrap_or_default();
                let (added, removed) = changed_lines(diff);
                format!("  +{added} -{removed}")
            }
            (ResultStatus::Success, 0) => String::new(),
            (ResultStatus::Success, 1) => format!("  {}", first_line(&self.text, 60)),
            (ResultStatus::Success, lines) => format!("  {lines} lines"),
            (_, _) => format!("  {}", first_line(&self.text, 200)),
        };
        let room = width.saturating_sub(Line::plain(&size).width().min(width / 2));
        let mut head = head.truncate(room);
        head.push(&size, DIM);
        let mut lines = vec![head.truncate(width)];
        let most_diff = match detail {
            Detail::Collapsed => DIFF_LINES,
            _ => usize::MAX,
        };
        lines.extend(match &self.diff {
            Some(diff) => unified_diff_lines(diff, width, most_diff),
            None => diff_lines(&self.tool, &self.args, width, most_diff),
        });
        lines.extend(plan_lines(&self.tool, &self.args, width));
        let shows_end = matches!(self.tool.as_str(), "bash" | "call_tool");
        if detail == Detail::Collapsed {
            if count > 1 && shows_end {
                let most = match self.status {
                    ResultStatus::Success => PREVIEW_LINES,
                    _ => FAILED_PREVIEW_LINES,
                };
                lines.extend(output_lines(&self.text, width, most));
            }
        } else if !self.is_plan() {
            lines.extend(output_lines(&self.text, width, detail.lines(0)));
        }
        lines
    }

    fn is_plan(&self) -> bool {
        self.status == ResultStatus::Success && Plan::of_call(&self.tool, &self.args).is_some()
    }
}

/// The steps of an agent's plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Text and state of each step.
    steps: Vec<(String, StepState)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepState {
    Open,
    Current,
    Done,
}

impl Plan {
    /// The plan that a call of the tool `plan` sets.
    pub(crate) fn of_call(tool: &str, args: &Value) -> Option<Self> {
        let steps = (tool == "plan").then(|| args.get("steps")?.as_array())??;
        let step = |step: &Value| {
            let state = match step.get("status").and_then(Value::as_str) {
                Some("done" | "completed") => StepState::Done,
                Some("in_progress" | "current") => StepState::Current,
                _ => StepState::Open,
            };
            Some((step.get("text")?.as_str()?.to_owned(), state))
        };
        let steps: Vec<_> = steps.iter().filter_map(step).collect();
        (!steps.is_empty()).then_some(Self { steps })
    }

    /// Done and all steps, such as `2/5`.
    pub(crate) fn progress(&self) -> String {
        let done = self.steps.iter().filter(|(_, it)| *it == StepState::Done);
        format!("{}/{}", done.count(), self.steps.len())
    }
}

/// The steps of a plan as a checklist; empty for other calls.
fn plan_lines(tool: &str, args: &Value, width: usize) -> Vec<Line> {
    let plan = Plan::of_call(tool, args);
    let steps = plan.into_iter().flat_map(|plan| plan.steps);
    let lines = steps.flat_map(|(text, state)| {
        let (mark, mark_style, style) = match state {
            StepState::Done => ("  ✓ ", GREEN, DIM),
            StepState::Current => ("  ▸ ", CYAN, BOLD),
            StepState::Open => ("  ○ ", DIM, PLAIN),
        };
        let line = Line::new(mark, mark_style).with(&text.replace('\n', " "), style);
        line.wrap(width, &Line::plain("    "))
    });
    lines.collect()
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
        None if tool == "plan" => {
            Plan::of_call(tool, args).map_or_else(String::new, |it| it.progress())
        }
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

/// The hunks of a unified diff with the numbers of the lines; an unchanged line has its new
/// number.
fn unified_diff_lines(diff: &str, width: usize, most: usize) -> Vec<Line> {
    let numbers = diff.lines().filter_map(hunk_start);
    let last = numbers.map(|(old, new)| old.max(new)).max().unwrap_or(0) + diff.lines().count();
    let column = last.to_string().len();
    // The next old and new number in the current hunk; unknown after omitted lines.
    let (mut lines, mut hunk) = (Vec::new(), None);
    for line in diff.lines() {
        if let Some(start) = hunk_start(line) {
            if hunk.is_some() {
                lines.push(Line::new(&format!("  {:>column$} ⋮", ""), DIM));
            }
            hunk = Some(Some(start));
            continue;
        }
        // The names of the files come before the first hunk.
        let Some(at) = &mut hunk else { continue };
        let number = match (line.as_bytes().first(), at.as_mut()) {
            (Some(b'-'), Some((old, _))) => {
                *old += 1;
                Some(*old - 1)
            }
            (Some(b'+'), Some((_, new))) => {
                *new += 1;
                Some(*new - 1)
            }
            (Some(b' ') | None, Some((old, new))) => {
                *old += 1;
                *new += 1;
                Some(*new - 1)
            }
            // `\ No newline at end of file`
            (Some(b'\\'), _) | (_, None) => None,
            // A note on omitted lines.
            (Some(_), Some(_)) => {
                *at = None;
                None
            }
        };
        let number = number.map_or_else(String::new, |number| number.to_string());
        let mut full = Line::new(&format!("  {number:>column$} "), DIM);
        full.extend(highlight::diff_line(line));
        lines.push(full.truncate(width));
    }
    if lines.len() > most {
        let hidden = lines.len() - most;
        lines.truncate(most);
        lines.push(Line::new(&format!("  … {hidden} more lines: Ctrl-O"), DIM));
    }
    lines
}

/// The changes of a session: each file with its diff.
fn change_lines(changes: &ChangeSummary, width: usize, detail: Detail) -> Vec<Line> {
    let (added, removed) = changes.counts();
    let files = match changes.files.len() {
        1 => "1 file".to_owned(),
        many => format!("{many} files"),
    };
    let text = format!("{files} changed  +{added} -{removed}");
    let mut lines = vec![Line::new(&text, BOLD)];
    for file in &changes.files {
        lines.extend(file_lines(file, width, detail));
    }
    lines.extend(unknown_line(changes.unknown));
    if changes.files.iter().any(|file| file.note.is_none()) {
        lines.push(Line::new("/undo [TURN] [FILE] undoes them", DIM));
    }
    let indent = Line::plain("  ");
    lines
        .into_iter()
        .flat_map(|line| line.wrap(width, &indent))
        .collect()
}

fn file_lines(file: &FileChange, width: usize, detail: Detail) -> Vec<Line> {
    let turns: Vec<_> = file.turns.iter().map(usize::to_string).collect();
    let turns = match turns.as_slice() {
        [] => String::new(),
        [one] => format!("  turn {one}"),
        several => format!("  turns {}", several.join(", ")),
    };
    let head = Line::new("● ", GREEN).with(file.kind, PLAIN);
    let head = head.with(&format!(" {}", file.path), BOLD);
    let counts = format!("  +{} -{}{turns}", file.added, file.removed);
    let mut lines = vec![head.with(&counts, DIM)];
    lines.extend(
        file.note
            .map(|note| Line::new(&format!("  {note}"), YELLOW)),
    );
    let most = match detail {
        Detail::Collapsed => CHANGE_LINES,
        _ => usize::MAX,
    };
    match &file.diff {
        Some(diff) => lines.extend(unified_diff_lines(diff, width, most)),
        None => lines.push(Line::new("  not text, too long, or not kept", DIM)),
    }
    lines
}

/// The number of added and removed lines.
fn changed_lines(diff: &str) -> (usize, usize) {
    let hunks = diff.lines().skip_while(|line| hunk_start(line).is_none());
    let count = |mark| hunks.clone().filter(|line| line.starts_with(mark)).count();
    (count('+'), count('-'))
}

/// The first old and new line number of a hunk's header, such as `@@ -12,7 +12,8 @@`.
fn hunk_start(line: &str) -> Option<(usize, usize)> {
    let (old, new) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let number = |range: &str| {
        let digits = range.split([',', ' ']).next()?;
        digits.parse().ok()
    };
    Some((number(old)?, number(new)?))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(tool: &str, args: Value, text: &str, diff: Option<&str>) -> String {
        let call = FinishedCall {
            tool: tool.to_owned(),
            args,
            status: ResultStatus::Success,
            text: text.to_owned(),
            diff: diff.map(str::to_owned),
            full_output: None,
        };
        let lines = call.lines(40, Detail::Collapsed);
        let lines: Vec<_> = lines.iter().map(Line::text).collect();
        lines.join("\n")
    }

    #[test]
    fn diff_of_an_edit_has_context_and_line_numbers() {
        let diff = "--- a.rs\n+++ a.rs\n@@ -8,4 +8,5 @@\n one\n-two\n+2\n+2b\n three\n four\n\
                    @@ -98,2 +99,2 @@\n-x\n+y\n\\ No newline at end of file\n";
        let shown = call("edit", json!({ "path": "a.rs" }), "a.rs: done", Some(diff));
        let expected = "● edit a.rs  +3 -2\n    8  one\n    9 -two\n    9 +2\n   10 +2b\n   11  three\n   \
                        12  four\n      ⋮\n   98 -x\n   99 +y\n      \\ No newline at end of file";
        let spaced = |text: &str| text.replace("    ", "  ").replace("   ", "  ");
        assert_eq!(spaced(&shown), spaced(expected), "{shown}");
    }

    #[test]
    fn notice_keeps_its_lines() {
        let lines = Block::notice("one\n- two").lines(40, false);
        let lines: Vec<_> = lines.iter().map(Line::text).collect();
        assert_eq!(lines, ["one", "- two"]);
    }

    #[test]
    fn plan_is_a_checklist() {
        let args = json!({ "steps": [
            { "text": "look", "status": "done" },
            { "text": "change it", "status": "in_progress" },
            { "text": "test", "status": "pending" },
        ] });
        assert_eq!(
            call("plan", args.clone(), "ok\nok", None),
            "● plan 1/3\n  ✓ look\n  ▸ change it\n  ○ test"
        );
        assert_eq!(Plan::of_call("plan", &args).unwrap().progress(), "1/3");
        assert_eq!(Plan::of_call("plan", &json!({ "steps": "x" })), None);
        assert_eq!(Plan::of_call("other", &args), None);
    }

    #[test]
    fn collapsed_command_shows_the_end_of_its_output() {
        let shown = call("bash", json!({ "command": "seq 5" }), "1\n2\n3\n4\n5", None);
        assert_eq!(
            shown,
            "● bash seq 5  5 lines\n  │ … 2 lines above\n  │ 3\n  │ 4\n  │ 5"
        );
        let read = call("read", json!({ "path": "a" }), "1\n2\n3", None);
        assert_eq!(read, "● read a  3 lines");
    }
}
