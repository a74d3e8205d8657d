//! How a tool call looks in the editor: its title, kind, files and preview.

use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    Content, ContentBlock, Diff, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, TextContent,
    ToolCallContent, ToolCallLocation, ToolKind,
};
use lillux::sanitize_line;
use serde_json::Value;

/// Maximum length of a title, in characters.
const MAX_TITLE: usize = 120;

/// A tool call as the model requested it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request<'a> {
    pub(crate) tool: &'a str,
    pub(crate) args: &'a Value,
    pub(crate) workspace: &'a Path,
}

impl Request<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.args.get(key).and_then(Value::as_str)
    }

    fn number(&self, key: &str) -> Option<u32> {
        let number = self.args.get(key).and_then(Value::as_u64)?;
        u32::try_from(number).ok()
    }

    /// A short description of the call.
    pub(crate) fn title(&self) -> String {
        let about = |verb: &str, key: &str| match self.text(key) {
            Some(text) => format!("{verb} {}", line(text)),
            None => self.tool.to_owned(),
        };
        let title = match self.tool {
            "bash" => match self.text("command") {
                Some(command) => code(&line(command)),
                None => self.tool.to_owned(),
            },
            "bash_output" => about("Output of", "id"),
            "bash_kill" => about("Stop", "id"),
            "read" => about("Read", "path"),
            "write" => about("Write", "path"),
            "edit" => about("Edit", "path"),
            "apply_patch" => "Apply a patch".to_owned(),
            "glob" => about("Find", "pattern"),
            "grep" => about("Search for", "pattern"),
            "list_tools" => match self.text("query") {
                Some(query) => format!("Search tools: {}", line(query)),
                None => "List tools".to_owned(),
            },
            "call_tool" => about("Call", "tool_id"),
            "fetch" => about("Fetch", "url"),
            "task" => about("Task:", "prompt"),
            "skill" => about("Skill", "name"),
            "ask" => about("Question:", "question"),
            other => line(other),
        };
        shorten(&title)
    }

    /// The kind of tool, by which an editor chooses an icon.
    pub(crate) fn kind(&self) -> ToolKind {
        kind(self.tool)
    }

    /// The files that the call is about.
    pub(crate) fn locations(&self) -> Vec<ToolCallLocation> {
        let path = match self.tool {
            "read" | "write" | "edit" | "grep" | "glob" => self.text("path"),
            _ => None,
        };
        let path = path.filter(|path| !path.starts_with("blob:"));
        let location = |path: &str| {
            let location = ToolCallLocation::new(absolute(self.workspace, path));
            match self.tool {
                "read" => location.line(self.number("offset")),
                _ => location,
            }
        };
        path.map(location).into_iter().collect()
    }

    /// The changes that the arguments state, before the call has made them.
    pub(crate) fn preview(&self) -> Vec<ToolCallContent> {
        let diff = |change: &Value| {
            let text = |key: &str| change.get(key).and_then(Value::as_str);
            let path = absolute(self.workspace, self.text("path")?);
            let (old, new) = (text("old")?, text("new")?);
            Some(ToolCallContent::Diff(
                Diff::new(path, new).old_text(old.to_owned()),
            ))
        };
        match self.tool {
            "edit" => {
                let several = self.args.get("edits").and_then(Value::as_array);
                let several = several.into_iter().flatten();
                let all = std::iter::once(self.args).chain(several);
                all.filter_map(diff).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The new content of a file that the call writes as a whole.
    pub(crate) fn written_file(&self) -> Option<(&str, &str)> {
        (self.tool == "write").then_some(())?;
        Some((self.text("path")?, self.text("content")?))
    }

    /// The plan that the call sets.
    pub(crate) fn plan(&self) -> Option<Plan> {
        (self.tool == "plan").then_some(())?;
        let steps = self.args.get("steps")?.as_array()?;
        let entry = |step: &Value| {
            let status = match step.get("status").and_then(Value::as_str) {
                Some("done") => PlanEntryStatus::Completed,
                Some("in_progress") => PlanEntryStatus::InProgress,
                _ => PlanEntryStatus::Pending,
            };
            let text = step.get("text")?.as_str()?;
            Some(PlanEntry::new(text, PlanEntryPriority::Medium, status))
        };
        Some(Plan::new(steps.iter().filter_map(entry).collect()))
    }
}

/// The kind of a tool.
pub(crate) fn kind(tool: &str) -> ToolKind {
    match tool {
        "read" | "thread_read" | "list_threads" | "skill" => ToolKind::Read,
        "write" | "edit" | "apply_patch" => ToolKind::Edit,
        "grep" | "glob" | "list_tools" => ToolKind::Search,
        "bash" | "bash_output" | "bash_kill" => ToolKind::Execute,
        "fetch" => ToolKind::Fetch,
        "plan" | "task" => ToolKind::Think,
        _ => ToolKind::Other,
    }
}

/// Whether the tool runs a command whose output belongs in a terminal.
pub(crate) fn is_command(tool: &str) -> bool {
    tool == "bash"
}

/// Whether the editor shows the call itself; a plan is shown as such.
pub(crate) fn is_shown(tool: &str) -> bool {
    tool != "plan"
}

/// The result of a tool for the editor: Markdown as such, everything else verbatim.
pub(crate) fn result(tool: &str, text: &str) -> ToolCallContent {
    match tool {
        "task" | "fetch" | "skill" | "ask" => text_content(text),
        "bash" | "bash_output" => text_content(&fenced(text, "console")),
        _ => text_content(&fenced(text, "")),
    }
}

/// A text as content of a tool call.
pub(crate) fn text_content(text: &str) -> ToolCallContent {
    let block = ContentBlock::Text(TextContent::new(text));
    ToolCallContent::Content(Content::new(block))
}

/// A code block, which the text cannot end.
pub(crate) fn fenced(text: &str, language: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max();
    let fence = "`".repeat(longest.unwrap_or(0).max(2) + 1);
    let text = text.trim_end_matches('\n');
    format!("{fence}{language}\n{text}\n{fence}")
}

/// A path of the sandbox as an absolute one.
pub(crate) fn absolute(workspace: &Path, path: &str) -> PathBuf {
    // `join` keeps an absolute path.
    let joined = workspace.join(path);
    joined.components().collect()
}

/// The first line of a text, without control characters.
fn line(text: &str) -> String {
    let mut lines = text.trim().lines();
    let first = sanitize_line(lines.next().unwrap_or_default()).into_owned();
    if lines.next().is_some() {
        format!("{first} …")
    } else {
        first
    }
}

/// A text as inline code.
fn code(text: &str) -> String {
    if text.contains('`') {
        format!("`` {text} ``")
    } else {
        format!("`{text}`")
    }
}

fn shorten(title: &str) -> String {
    if title.chars().count() <= MAX_TITLE {
        return title.to_owned();
    }
    let start: String = title.chars().take(MAX_TITLE - 1).collect();
    let end = if title.ends_with('`') { "`" } else { "" };
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request<'a>(tool: &'a str, args: &'a Value) -> Request<'a> {
        Request {
            tool,
            args,
            workspace: Path::new("/work"),
        }
    }

    #[test]
    fn titles_name_the_main_argument_in_one_line() {
        let long = "x".repeat(200);
        for (tool, args, expected) in [
            ("bash", json!({ "command": "ls\nrm x" }), "`ls …`"),
            ("bash", json!({ "command": "echo `id`" }), "`` echo `id` ``"),
            ("bash", json!({}), "bash"),
            ("read", json!({ "path": "src/a.rs" }), "Read src/a.rs"),
            (
                "grep",
                json!({ "pattern": "a\u{1b}[2J" }),
                "Search for a\\u{1b}[2J",
            ),
            ("list_tools", json!({}), "List tools"),
            ("my_tool", json!({ "path": "x" }), "my_tool"),
        ] {
            assert_eq!(request(tool, &args).title(), expected);
        }
        let args = json!({ "command": long });
        let title = request("bash", &args).title();
        assert_eq!(title.chars().count(), MAX_TITLE + 1);
        assert!(title.starts_with("`xx") && title.ends_with("…`"), "{title}");
    }

    #[test]
    fn locations_are_absolute() {
        let args = json!({ "path": "./src/a.rs", "offset": 7 });
        let found = request("read", &args).locations();
        assert_eq!(found[0].path, Path::new("/work/src/a.rs"));
        assert_eq!(found[0].line, Some(7));
        let args = json!({ "path": "/etc/hosts" });
        let found = request("edit", &args).locations();
        assert_eq!(
            (&*found[0].path, found[0].line),
            (Path::new("/etc/hosts"), None)
        );
        let blob = json!({ "path": "blob:00" });
        assert_eq!(request("read", &blob).locations(), []);
        let command = json!({ "command": "ls", "path": "x" });
        assert_eq!(request("bash", &command).locations(), []);
    }

    #[test]
    fn edits_are_previewed_as_diffs() {
        let args = json!({ "path": "a", "edits": [
            { "old": "1", "new": "2" }, { "old": "3", "new": "4" },
        ] });
        let diff = |old: &str, new| {
            ToolCallContent::Diff(Diff::new("/work/a", new).old_text(old.to_owned()))
        };
        let expected = [diff("1", "2"), diff("3", "4")];
        assert_eq!(request("edit", &args).preview(), expected);
        let args = json!({ "path": "a", "old": "1", "new": "2" });
        assert_eq!(request("edit", &args).preview(), [diff("1", "2")]);
        assert_eq!(request("bash", &args).preview(), []);
    }

    #[test]
    fn text_cannot_end_its_code_block() {
        assert_eq!(fenced("a\n", ""), "```\na\n```");
        assert_eq!(fenced("```` x", "console"), "`````console\n```` x\n`````");
    }

    #[test]
    fn plan_becomes_entries() {
        let args = json!({ "steps": [
            { "text": "look", "status": "done" },
            { "text": "write", "status": "in_progress" },
            { "text": "test", "status": "pending" },
        ] });
        let plan = request("plan", &args).plan().unwrap();
        let entries = plan
            .entries
            .iter()
            .map(|it| (&*it.content, it.status.clone()));
        let entries: Vec<_> = entries.collect();
        assert_eq!(
            entries,
            [
                ("look", PlanEntryStatus::Completed),
                ("write", PlanEntryStatus::InProgress),
                ("test", PlanEntryStatus::Pending),
            ]
        );
        assert_eq!(request("other", &args).plan(), None);
    }
}
