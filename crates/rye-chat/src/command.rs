//! What can be typed behind a slash.

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Model(Option<String>),
    Threads,
    Thread(String),
    Queue(QueueChange),
    Steer(String),
    Compact,
    Undo,
    Tools,
    Gates,
    Cost,
    Fork,
    Export(Option<String>),
    Verify,
    Help,
    Quit,
}

/// What becomes of what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueChange {
    Show,
    Remove(usize),
    Edit(usize),
}

/// Each command, what follows it, and what it does.
pub(crate) const COMMANDS: [(&str, &str, &str); 15] = [
    (
        "model",
        "[NAME]",
        "which model answers; without a name, which there are",
    ),
    ("threads", "", "all threads, and what they are doing"),
    ("thread", "KEY", "go to a thread; it is made if it is new"),
    (
        "queue",
        "[rm N | edit N]",
        "what waits; take one out, or back to edit it",
    ),
    (
        "steer",
        "TEXT",
        "say it now, in place of what is being done",
    ),
    ("compact", "", "sum up what was said so far"),
    ("undo", "", "take the last summary back"),
    ("tools", "", "what the agent can call"),
    ("gates", "", "what waits for a decision"),
    ("cost", "", "what was used up"),
    ("fork", "", "a new session that shares the past of this one"),
    ("export", "[FILE]", "write the session into a signed file"),
    (
        "verify",
        "",
        "check the session's history against its signatures",
    ),
    ("help", "", "this, and the keys"),
    ("quit", "", "leave; the session goes on where you left it"),
];

/// The keys, and what they do.
pub(crate) const KEYS: [(&str, &str); 13] = [
    (
        "Enter",
        "send; while the agent works, it waits for its turn",
    ),
    ("Ctrl-S", "send now: the agent turns to it at once"),
    ("Alt-Enter, Ctrl-J, \\ Enter", "a new line"),
    ("Esc", "end what the agent is doing"),
    (
        "Ctrl-C",
        "steer with what is written; with nothing written, end; twice, leave",
    ),
    ("Ctrl-O", "unfold or fold what tools give"),
    ("Ctrl-G", "write in $EDITOR"),
    ("Ctrl-T", "the next thread"),
    ("Ctrl-R", "search what was written before"),
    ("Up, Down", "what was written before"),
    ("Tab", "complete a command or an @file; at a gate, go to it"),
    ("Ctrl-L", "paint anew"),
    ("Ctrl-D", "leave"),
];

/// What there is instead where it is said line by line.
pub(crate) const LINES: [(&str, &str); 4] = [
    (
        "Enter",
        "send; while the agent works, it waits for its turn",
    ),
    ("a letter, Enter", "answer a gate, as it says"),
    ("Ctrl-C", "end what the agent is doing; twice, leave"),
    ("Ctrl-D", "leave"),
];

impl Command {
    /// The command of a line that begins with a slash.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let line = line.trim().trim_start_matches('/');
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let given = || (!rest.is_empty()).then(|| rest.to_owned());
        let needed = || given().ok_or_else(|| usage(name));
        Ok(match name {
            "model" => Self::Model(given()),
            "threads" => Self::Threads,
            "thread" => Self::Thread(needed()?),
            "queue" => Self::Queue(queue_change(rest)?),
            "steer" => Self::Steer(needed()?),
            "compact" => Self::Compact,
            "undo" => Self::Undo,
            "tools" => Self::Tools,
            "gates" => Self::Gates,
            "cost" => Self::Cost,
            "fork" => Self::Fork,
            "export" => Self::Export(given()),
            "verify" => Self::Verify,
            "help" | "?" => Self::Help,
            "quit" | "exit" | "q" => Self::Quit,
            other => return Err(unknown(other)),
        })
    }
}

fn queue_change(rest: &str) -> Result<QueueChange, String> {
    let mut words = rest.split_whitespace();
    let (verb, number) = (words.next(), words.next());
    let number = number
        .and_then(|it| it.parse::<usize>().ok())
        .filter(|it| *it > 0);
    match (verb, number) {
        (None, _) => Ok(QueueChange::Show),
        (Some("rm"), Some(number)) => Ok(QueueChange::Remove(number)),
        (Some("edit"), Some(number)) => Ok(QueueChange::Edit(number)),
        _ => Err(usage("queue")),
    }
}

fn usage(name: &str) -> String {
    let known = COMMANDS.iter().find(|(known, ..)| *known == name);
    let arguments = known.map_or("", |(_, arguments, _)| arguments);
    format!("it is used so: /{name} {arguments}")
}

fn unknown(name: &str) -> String {
    let distance = |known: &&str| strsim::damerau_levenshtein(known, name);
    let nearest = COMMANDS
        .iter()
        .map(|(known, ..)| *known)
        .min_by_key(distance);
    match nearest {
        Some(nearest) if distance(&nearest) <= 3 => {
            format!("there is no /{name}; there is /{nearest}")
        }
        _ => format!("there is no /{name}; /help shows all"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_or_explained() {
        let table: [(&str, Result<Command, &str>); 12] = [
            ("/model", Ok(Command::Model(None))),
            (
                "/model  openai/x ",
                Ok(Command::Model(Some("openai/x".to_owned()))),
            ),
            ("/queue", Ok(Command::Queue(QueueChange::Show))),
            ("/queue rm 2", Ok(Command::Queue(QueueChange::Remove(2)))),
            ("/queue edit 1", Ok(Command::Queue(QueueChange::Edit(1)))),
            ("/queue rm 0", Err("it is used so: /queue [rm N | edit N]")),
            ("/queue rm x", Err("it is used so: /queue [rm N | edit N]")),
            ("/thread", Err("it is used so: /thread KEY")),
            ("/steer go left", Ok(Command::Steer("go left".to_owned()))),
            ("/modelx", Err("there is no /modelx; there is /model")),
            (
                "/frobnicate",
                Err("there is no /frobnicate; /help shows all"),
            ),
            ("/quit", Ok(Command::Quit)),
        ];
        for (line, expected) in table {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(Command::parse(line), expected, "{line}");
        }
    }

    #[test]
    fn every_command_that_is_shown_is_understood() {
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
