//! Slash commands: a prompt that starts with `/name`. Names and meanings are those of `rye chat`.

use agent_client_protocol::v1::schema::{
    AvailableCommand, AvailableCommandInput, UnstructuredCommandInput,
};
use rye_engine::changes::Selection;

/// A slash command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SlashCommand {
    Help,
    Status,
    Plan,
    Diff(Selection),
    Undo { selection: Selection, force: bool },
    Compact,
    UndoCompaction,
    Review,
    Model(Option<String>),
    Role(Option<String>),
    Skill(Option<String>),
    Tools,
    Gates,
}

/// Name, arguments and description of each command.
pub(crate) const COMMANDS: [(&str, &str, &str); 12] = [
    ("help", "", "list the commands"),
    ("status", "", "show model, mode, sandbox, session and usage"),
    ("plan", "", "show the agent's plan"),
    (
        "diff",
        "[TURN] [FILE]",
        "show what the agent changed in files",
    ),
    (
        "undo",
        "[TURN] [FILE] [--force]",
        "undo what the agent changed in files",
    ),
    (
        "compact",
        "[undo]",
        "replace the history by a summary; undo the last one",
    ),
    ("review", "", "review the changes, in review mode"),
    ("model", "[NAME]", "choose the model; list the models"),
    (
        "role",
        "[NAME]",
        "choose the role of the next prompts; list the roles",
    ),
    (
        "skill",
        "[NAME]",
        "send the instructions of a skill; list the skills",
    ),
    ("tools", "", "list the agent's tools"),
    ("gates", "", "list pending gates"),
];

/// The option that undoes changes in spite of conflicts.
const FORCE: &str = "--force";

impl SlashCommand {
    /// Parses a prompt; `None` if it is not a command, such as a path. The error is a message for
    /// the user.
    pub(crate) fn parse(prompt: &str) -> Option<Result<Self, String>> {
        let line = prompt.trim().strip_prefix('/')?;
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'-' || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return None;
        }
        let rest = rest.trim();
        let name_argument = || (!rest.is_empty()).then(|| rest.to_owned());
        let parsed = match (name, rest) {
            ("help", "") => Some(Self::Help),
            ("status" | "cost", "") => Some(Self::Status),
            ("plan", "") => Some(Self::Plan),
            ("diff", _) => Selection::parse(rest).map(Self::Diff),
            ("undo", _) => {
                let words = rest.split_whitespace();
                let without: Vec<_> = words.filter(|word| *word != FORCE).collect();
                let force = without.len() < rest.split_whitespace().count();
                // A name can contain several spaces.
                let rest = if force { &without.join(" ") } else { rest };
                Selection::parse(rest).map(|selection| Self::Undo { selection, force })
            }
            ("compact", "") => Some(Self::Compact),
            ("compact", "undo") => Some(Self::UndoCompaction),
            ("review", "") => Some(Self::Review),
            ("model", _) => Some(Self::Model(name_argument())),
            ("role" | "roles", _) => Some(Self::Role(name_argument())),
            ("skill" | "skills", _) => Some(Self::Skill(name_argument())),
            ("tools", "") => Some(Self::Tools),
            ("gates", "") => Some(Self::Gates),
            _ => None,
        };
        Some(parsed.ok_or_else(
            || match COMMANDS.iter().find(|(known, ..)| *known == name) {
                Some((_, arguments, _)) => format!("Usage: `/{name} {arguments}`"),
                None => format!("Unknown command `/{name}`; `/help` lists the commands."),
            },
        ))
    }
}

/// The commands, for the editor.
pub(crate) fn available() -> Vec<AvailableCommand> {
    let command = |(name, arguments, description): (&str, &str, &str)| {
        let command = AvailableCommand::new(name, description);
        let hint = (!arguments.is_empty()).then(|| UnstructuredCommandInput::new(arguments));
        command.input(hint.map(AvailableCommandInput::Unstructured))
    };
    COMMANDS.into_iter().map(command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_parse_to_commands_or_helpful_errors() {
        let select = |turn, path: &str| Selection {
            turn,
            path: (!path.is_empty()).then(|| path.to_owned()),
        };
        let undo = |selection, force| Some(Ok(SlashCommand::Undo { selection, force }));
        for (prompt, expected) in [
            ("hello", None),
            ("/usr/bin/env is missing", None),
            ("/ what", None),
            ("/2", None),
            (" /help\n", Some(Ok(SlashCommand::Help))),
            ("/cost", Some(Ok(SlashCommand::Status))),
            ("/compact undo", Some(Ok(SlashCommand::UndoCompaction))),
            (
                "/model a/b",
                Some(Ok(SlashCommand::Model(Some("a/b".to_owned())))),
            ),
            (
                "/diff 2 a.txt",
                Some(Ok(SlashCommand::Diff(select(Some(2), "a.txt")))),
            ),
            ("/undo", undo(select(None, ""), false)),
            ("/undo a.txt --force", undo(select(None, "a.txt"), true)),
            (
                "/undo 0",
                Some(Err("Usage: `/undo [TURN] [FILE] [--force]`".to_owned())),
            ),
            (
                "/compact all",
                Some(Err("Usage: `/compact [undo]`".to_owned())),
            ),
            (
                "/quit now",
                Some(Err(
                    "Unknown command `/quit`; `/help` lists the commands.".to_owned()
                )),
            ),
        ] {
            assert_eq!(SlashCommand::parse(prompt), expected, "{prompt}");
        }
        for (name, ..) in COMMANDS {
            let parsed = SlashCommand::parse(&format!("/{name}"));
            assert!(matches!(parsed, Some(Ok(_))), "{name}");
        }
    }
}
