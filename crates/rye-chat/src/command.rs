//! Slash commands and the key reference.

use rye_engine::changes::Selection;

/// A parsed slash command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Model(Option<String>),
    /// Open another session.
    Sessions(Option<String>),
    New,
    Thread(Option<String>),
    Role(Option<String>),
    Skill(Option<String>),
    Queue(QueueCommand),
    Steer(String),
    Compact,
    UndoCompaction,
    Review(ReviewCommand),
    /// Show what the session changed.
    Diff(Selection),
    /// Undo what the session changed, with `force` in spite of conflicts.
    Undo {
        selection: Selection,
        force: bool,
    },
    Tools,
    Mcp,
    Gates,
    Permissions,
    Status,
    Cost,
    Init,
    Fork,
    Export(Option<String>),
    Share(Option<String>),
    Verify,
    Help,
    Quit,
}

/// A form of `/review`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReviewCommand {
    /// Turn the review mode on; in it, review the changes so far.
    OnOrNow,
    /// Turn the review mode on or off.
    Set(bool),
}

/// A form of `/queue`; numbers start at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueCommand {
    Show,
    Remove(usize),
    Edit(usize),
}

/// Name, arguments and description of each command.
pub(crate) const COMMANDS: [(&str, &str, &str); 25] = [
    ("model", "[NAME]", "choose the model"),
    ("sessions", "[ID]", "resume another session of this project"),
    ("new", "", "start a new session"),
    ("threads", "[KEY]", "switch to a thread, or create it"),
    ("role", "[NAME]", "choose the role of the next prompts"),
    ("skill", "[NAME]", "send the instructions of a skill"),
    ("init", "", "let the agent write AGENTS.md for this project"),
    ("status", "", "show model, sandbox, session and usage"),
    (
        "permissions",
        "",
        "list what you approved for more than one call",
    ),
    (
        "queue",
        "[rm N | edit N]",
        "list queued prompts; remove or edit one",
    ),
    (
        "steer",
        "TEXT",
        "stop the current work and send this prompt now",
    ),
    (
        "compact",
        "[undo]",
        "replace the history by a summary; undo the last one",
    ),
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
        "review",
        "[on | off]",
        "turn review mode on; in it, review the changes now",
    ),
    ("tools", "", "list the agent's tools"),
    ("mcp", "", "list the MCP servers"),
    ("gates", "", "list pending gates"),
    ("cost", "", "show tokens and cost"),
    ("fork", "", "create a session that shares this history"),
    ("export", "[FILE]", "export the session to a signed file"),
    (
        "share",
        "[FILE]",
        "write the conversation and its verification to an HTML page",
    ),
    ("verify", "", "verify the history against its signatures"),
    ("help", "", "show the commands and keys"),
    ("quit", "", "quit; the session is kept"),
];

/// Keys and what they do.
pub(crate) const KEYS: [(&str, &str); 15] = [
    ("Enter", "send; queued while the agent works"),
    ("Ctrl-S", "stop the current work and send now"),
    ("Alt-Enter, Ctrl-J, \\ Enter", "insert a new line"),
    (
        "Esc",
        "stop the agent; twice, edit the last prompt in a fork",
    ),
    (
        "!COMMAND",
        "run a command yourself; the next prompt has its output",
    ),
    ("@", "mention a file"),
    (
        "Ctrl-C",
        "send the draft now; without a draft, stop the agent; twice, quit",
    ),
    ("Ctrl-O", "expand or collapse tool output"),
    ("Ctrl-G", "edit the draft in $EDITOR"),
    ("Ctrl-T", "switch to the next thread"),
    ("Ctrl-R", "search the prompt history"),
    ("Up, Down", "walk through the prompt history"),
    (
        "Tab",
        "complete a command or an @file; at a gate, put the draft aside",
    ),
    ("Ctrl-L", "redraw the screen"),
    ("Ctrl-D", "quit"),
];

/// The keys when the chat prints line by line.
pub(crate) const PLAIN_KEYS: [(&str, &str); 4] = [
    ("Enter", "send; queued while the agent works"),
    ("a letter, Enter", "answer a gate"),
    ("Ctrl-C", "stop the agent; twice, quit"),
    ("Ctrl-D", "quit"),
];

impl Command {
    /// Parses a line that starts with a slash. The error is a message for the user.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let line = line.trim().trim_start_matches('/');
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let optional = || (!rest.is_empty()).then(|| rest.to_owned());
        let required = || optional().ok_or_else(|| usage(name));
        Ok(match name {
            "model" => Self::Model(optional()),
            "sessions" | "resume" => Self::Sessions(optional()),
            "new" | "clear" => Self::New,
            "thread" | "threads" => Self::Thread(optional()),
            "role" | "roles" => Self::Role(optional()),
            "skill" | "skills" => Self::Skill(optional()),
            "init" => Self::Init,
            "status" => Self::Status,
            "permissions" => Self::Permissions,
            "mcp" => Self::Mcp,
            "share" => Self::Share(optional()),
            "queue" => Self::Queue(parse_queue(rest)?),
            "steer" => Self::Steer(required()?),
            "compact" => match rest {
                "" => Self::Compact,
                "undo" => Self::UndoCompaction,
                _ => return Err(usage(name)),
            },
            "review" => Self::Review(match rest {
                "" => ReviewCommand::OnOrNow,
                "on" => ReviewCommand::Set(true),
                "off" => ReviewCommand::Set(false),
                _ => return Err(usage(name)),
            }),
            "diff" => Self::Diff(parse_selection(name, rest)?),
            "undo" => {
                let words = rest.split_whitespace();
                let without: Vec<_> = words.filter(|word| *word != FORCE).collect();
                let is_forced = without.len() < rest.split_whitespace().count();
                // A name can contain several spaces.
                let rest = if is_forced { &without.join(" ") } else { rest };
                Self::Undo {
                    selection: parse_selection(name, rest)?,
                    force: is_forced,
                }
            }
            "tools" => Self::Tools,
            "gates" => Self::Gates,
            "cost" => Self::Cost,
            "fork" => Self::Fork,
            "export" => Self::Export(optional()),
            "verify" => Self::Verify,
            "help" | "?" => Self::Help,
            "quit" | "exit" | "q" => Self::Quit,
            other => return Err(unknown_command(other)),
        })
    }
}

/// The option that undoes changes in spite of conflicts.
pub(crate) const FORCE: &str = "--force";

/// Parses `[TURN] [FILE]`.
fn parse_selection(name: &str, rest: &str) -> Result<Selection, String> {
    Selection::parse(rest).ok_or_else(|| usage(name))
}

/// The command that undoes selected changes in spite of conflicts.
pub(crate) fn forced_undo(selection: &Selection) -> String {
    let turn = selection.turn.map(|turn| format!(" {turn}"));
    let path = selection.path.as_ref().map(|path| format!(" {path}"));
    let (turn, path) = (turn.unwrap_or_default(), path.unwrap_or_default());
    format!("/undo{turn}{path} {FORCE}")
}

fn parse_queue(rest: &str) -> Result<QueueCommand, String> {
    let mut words = rest.split_whitespace();
    let (verb, number) = (words.next(), words.next());
    let number = number
        .and_then(|it| it.parse::<usize>().ok())
        .filter(|it| *it > 0);
    match (verb, number) {
        (None, _) => Ok(QueueCommand::Show),
        (Some("rm"), Some(number)) => Ok(QueueCommand::Remove(number)),
        (Some("edit"), Some(number)) => Ok(QueueCommand::Edit(number)),
        _ => Err(usage("queue")),
    }
}

fn usage(name: &str) -> String {
    let known = COMMANDS.iter().find(|(known, ..)| *known == name);
    let arguments = known.map_or("", |(_, arguments, _)| arguments);
    format!("usage: /{name} {arguments}")
}

fn unknown_command(name: &str) -> String {
    let distance = |known: &&str| strsim::damerau_levenshtein(known, name);
    let nearest = COMMANDS
        .iter()
        .map(|(known, ..)| *known)
        .min_by_key(distance);
    match nearest {
        Some(nearest) if distance(&nearest) <= 3 => {
            format!("unknown command /{name}; did you mean /{nearest}?")
        }
        _ => format!("unknown command /{name}; see /help"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_parse_to_commands_or_helpful_errors() {
        let table: [(&str, Result<Command, &str>); 17] = [
            ("/review", Ok(Command::Review(ReviewCommand::OnOrNow))),
            (
                "/review off",
                Ok(Command::Review(ReviewCommand::Set(false))),
            ),
            ("/review x", Err("usage: /review [on | off]")),
            ("/model", Ok(Command::Model(None))),
            (
                "/model  openai/x ",
                Ok(Command::Model(Some("openai/x".to_owned()))),
            ),
            ("/queue", Ok(Command::Queue(QueueCommand::Show))),
            ("/queue rm 2", Ok(Command::Queue(QueueCommand::Remove(2)))),
            ("/queue edit 1", Ok(Command::Queue(QueueCommand::Edit(1)))),
            ("/queue rm 0", Err("usage: /queue [rm N | edit N]")),
            ("/queue rm x", Err("usage: /queue [rm N | edit N]")),
            ("/thread", Ok(Command::Thread(None))),
            (
                "/threads side",
                Ok(Command::Thread(Some("side".to_owned()))),
            ),
            (
                "/resume 4d1f",
                Ok(Command::Sessions(Some("4d1f".to_owned()))),
            ),
            ("/steer go left", Ok(Command::Steer("go left".to_owned()))),
            (
                "/modelx",
                Err("unknown command /modelx; did you mean /model?"),
            ),
            ("/frobnicate", Err("unknown command /frobnicate; see /help")),
            ("/quit", Ok(Command::Quit)),
        ];
        for (line, expected) in table {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(Command::parse(line), expected, "{line}");
        }
    }

    #[test]
    fn changes_are_selected_by_turn_and_file() {
        let select = |turn, path: &str| Selection {
            turn,
            path: (!path.is_empty()).then(|| path.to_owned()),
        };
        for (line, selection, force) in [
            ("/undo", select(None, ""), false),
            ("/undo 3", select(Some(3), ""), false),
            ("/undo src/a.rs", select(None, "src/a.rs"), false),
            (
                "/undo 3 @src/a.rs --force",
                select(Some(3), "src/a.rs"),
                true,
            ),
            ("/undo --force", select(None, ""), true),
            ("/undo @\"a b.txt\"", select(None, "a b.txt"), false),
            ("/undo ./3", select(None, "./3"), false),
        ] {
            let expected = Command::Undo {
                selection: selection.clone(),
                force,
            };
            assert_eq!(Command::parse(line), Ok(expected), "{line}");
            if force {
                let again = Command::parse(&forced_undo(&selection));
                assert_eq!(again, Command::parse(line), "{line}");
            }
        }
        let diff = Command::parse("/diff 2 a.txt");
        assert_eq!(diff, Ok(Command::Diff(select(Some(2), "a.txt"))));
        for line in ["/diff 0", "/diff --force", "/undo --all", "/compact all"] {
            assert!(Command::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn every_listed_command_parses() {
        for (name, arguments, _) in COMMANDS {
            let needs = !arguments.is_empty() && !arguments.starts_with('[');
            let line = if needs {
                format!("/{name} x")
            } else {
                format!("/{name}")
            };
            assert!(Command::parse(&line).is_ok(), "{line}");
        }
    }
}
