//! The scenarios of the crash test.

use std::time::Duration;

use rye_engine::protocol::{Limits, QueueMode};
use rye_model::{Fault, Script, ScriptedAnswer, Step, Tokens};
use serde_json::json;

use super::tools::LOG;

/// A session, its prompts, and the behaviour of a person at its gates.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) script: fn() -> Script,
    /// Script of child sessions.
    pub(crate) child: fn() -> Script,
    pub(crate) limits: Limits,
    /// Ids, contents and modes of the prompts.
    pub(crate) prompts: &'static [(&'static str, &'static str, QueueMode)],
    /// Minimum number of turns.
    pub(crate) ends: usize,
    pub(crate) person: Person,
    /// Whether the session has a project with signed tools, an MCP server and a command.
    pub(crate) in_project: bool,
    /// Whether a reached limit opens a gate.
    pub(crate) prompt_on_limit: bool,
    /// Time between the kill and the next process.
    pub(crate) down_for: Duration,
}

/// What a person does at a gate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Person {
    Approves,
    /// Approves with edited arguments.
    Edits,
    /// Steers with another prompt.
    Steers,
    /// Does not decide.
    Ignores,
    /// Lets interrupted calls run again.
    RunsAgain,
    /// Aborts the thread or all threads from another process, then sends another prompt.
    Commands {
        all: bool,
    },
}

const ONE: &[(&str, &str, QueueMode)] = &[("p1", "go", QueueMode::Followup)];

const NONE: Limits = Limits {
    turns: None,
    tokens: None,
    micro_dollars: None,
    depth: None,
    until: None,
};

fn empty_script() -> Script {
    Script::new([])
}

fn task(prompt: &str) -> Step {
    Step::call(
        "task",
        json!({ "prompt": prompt, "model": "scripted:child" }),
    )
}

fn call(tool: &str, line: &str) -> Step {
    Step::call(tool, json!({ "line": line }))
}

fn command(line: &str) -> Step {
    Step::call(
        "bash",
        json!({ "command": format!("echo {line} >> {LOG}") }),
    )
}

fn call_item(id: &str) -> Step {
    Step::call("call_tool", json!({ "tool_id": id, "summary": "do it" }))
}

fn calls(all: &[(&str, &str)]) -> Step {
    let all = all.iter();
    Step::calls(all.map(|(tool, line)| ((*tool).to_owned(), json!({ "line": line }))))
}

/// One prompt; the person approves everything.
const PLAIN: Scenario = Scenario {
    name: "",
    script: empty_script,
    child: empty_script,
    limits: NONE,
    prompts: ONE,
    ends: 0,
    person: Person::Approves,
    in_project: false,
    prompt_on_limit: false,
    down_for: Duration::ZERO,
};

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "plain answer",
        script: || Script::new([Step::text("hello")]),
        ..PLAIN
    },
    Scenario {
        name: "two prompts",
        script: || Script::new([Step::text("one"), Step::text("two")]),
        prompts: &[
            ("p1", "first", QueueMode::Followup),
            ("p2", "second", QueueMode::Followup),
        ],
        ..PLAIN
    },
    Scenario {
        name: "one tool, at most once",
        script: || Script::new([call("once", "a"), Step::text("done")]),
        ..PLAIN
    },
    Scenario {
        name: "one tool, pure",
        script: || Script::new([call("pure", "a"), Step::text("done")]),
        ..PLAIN
    },
    Scenario {
        name: "one tool, idempotent",
        script: || Script::new([call("idempotent", "a"), Step::text("done")]),
        ..PLAIN
    },
    Scenario {
        name: "one tool, ask",
        script: || Script::new([call("ask", "a"), Step::text("done")]),
        person: Person::RunsAgain,
        ..PLAIN
    },
    Scenario {
        name: "a model gives way to another",
        script: || {
            let busy = Step::Fail {
                fault: Fault::Overloaded,
                times: None,
            };
            Script::new([call("once", "a"), busy])
        },
        ..PLAIN
    },
    Scenario {
        name: "parallel tools",
        script: || {
            let all = calls(&[("once", "a"), ("pure", "b"), ("once", "c")]);
            Script::new([all, Step::text("done")])
        },
        ..PLAIN
    },
    Scenario {
        name: "a gate",
        script: || Script::new([call("gated", "a"), Step::text("done")]),
        ..PLAIN
    },
    Scenario {
        name: "two gates in one tool",
        script: || Script::new([call("gated_twice", "a"), Step::text("done")]),
        ..PLAIN
    },
    Scenario {
        name: "steer over a gate",
        script: || Script::new([call("gated_again", "a"), Step::text("all right")]),
        person: Person::Steers,
        ..PLAIN
    },
    Scenario {
        name: "order to a thread",
        script: || Script::new([call("gated_again", "a"), Step::text("all right")]),
        person: Person::Commands { all: false },
        ..PLAIN
    },
    Scenario {
        name: "order to all threads",
        script: || Script::new([call("gated_again", "a"), Step::text("all right")]),
        person: Person::Commands { all: true },
        ..PLAIN
    },
    Scenario {
        name: "collect window",
        script: || Script::new([Step::text("all of you")]),
        prompts: &[
            ("p1", "first", QueueMode::Collect),
            ("p2", "second", QueueMode::Collect),
        ],
        ..PLAIN
    },
    Scenario {
        name: "expiry while down",
        script: || Script::new([call("expiring", "a"), Step::text("too late")]),
        person: Person::Ignores,
        down_for: Duration::from_hours(1),
        ..PLAIN
    },
    Scenario {
        name: "child session",
        script: || Script::new([task("look"), Step::text("done")]),
        child: || Script::new([call("once", "a"), Step::text("seen")]),
        ..PLAIN
    },
    Scenario {
        name: "gate in a child",
        script: || Script::new([task("look"), Step::text("done")]),
        child: || Script::new([call("gated_again", "a"), Step::text("seen")]),
        ..PLAIN
    },
    Scenario {
        name: "steer over a child",
        script: || Script::new([task("look"), Step::text("all right")]),
        child: || Script::new([call("gated_again", "a"), Step::text("seen")]),
        person: Person::Steers,
        ..PLAIN
    },
    Scenario {
        name: "a limit of turns",
        script: || Script::new([call("once", "a"), call("once", "b"), call("once", "c")]),
        limits: Limits {
            turns: Some(2),
            ..NONE
        },
        ..PLAIN
    },
    Scenario {
        name: "a limit that a child reaches",
        script: || Script::new([task("look"), Step::text("done")]),
        child: || Script::new([call("once", "a"), call("once", "b"), call("once", "c")]),
        limits: Limits {
            turns: Some(3),
            ..NONE
        },
        ..PLAIN
    },
    Scenario {
        name: "a history summed up",
        script: || full(),
        prompts: TWO,
        ends: 3,
        ..PLAIN
    },
    Scenario {
        name: "a history that cannot be",
        script: || Script {
            on_summary: vec!["I go on with the work.".to_owned()],
            ..full()
        },
        prompts: TWO,
        ..PLAIN
    },
    Scenario {
        name: "a model that has no room",
        script: || Script {
            context_window: 10_500,
            max_output: 100,
            ..Script::new([
                call("once", &"a".repeat(40_000)),
                // The reported usage is too low, so the overflow is unexpected.
                Step::Answer(ScriptedAnswer {
                    text: "one".repeat(2_000),
                    usage: Some(Tokens {
                        input: 10,
                        ..Tokens::default()
                    }),
                    ..ScriptedAnswer::default()
                }),
                Step::text("done"),
            ])
        },
        prompts: TWO,
        ..PLAIN
    },
    Scenario {
        name: "a gate at a limit",
        script: || Script::new([call("once", "a"), call("once", "b"), Step::text("done")]),
        limits: Limits {
            turns: Some(2),
            ..NONE
        },
        prompt_on_limit: true,
        ..PLAIN
    },
    Scenario {
        name: "an approved item, receipts",
        script: || Script::new([call_item("rye:deploy"), Step::text("done")]),
        in_project: true,
        ..PLAIN
    },
    Scenario {
        name: "approved commands",
        script: || Script::new([command("a"), command("b"), Step::text("done")]),
        in_project: true,
        ..PLAIN
    },
    Scenario {
        name: "other arguments are approved",
        script: || Script::new([call_item("rye:deploy"), Step::text("done")]),
        in_project: true,
        person: Person::Edits,
        ..PLAIN
    },
    Scenario {
        name: "an approved MCP tool",
        script: || Script::new([call_item("mcp:weather/rain"), Step::text("done")]),
        in_project: true,
        ..PLAIN
    },
    Scenario {
        name: "a credential that is asked for",
        script: || Script::new([call_item("command:open"), Step::text("done")]),
        in_project: true,
        ..PLAIN
    },
];

const TWO: &[(&str, &str, QueueMode)] = &[
    ("p1", "first", QueueMode::Followup),
    ("p2", "second", QueueMode::Followup),
];

/// The context exceeds the threshold after the second prompt.
fn full() -> Script {
    let full = ScriptedAnswer {
        text: "two".to_owned(),
        usage: Some(Tokens {
            input: 200_000,
            ..Tokens::default()
        }),
        ..ScriptedAnswer::default()
    };
    Script::new([
        call("once", &"a".repeat(40_000)),
        Step::text("one"),
        Step::Answer(full),
        Step::text("three"),
    ])
}

/// Transcript line of a turn that ended at a limit.
pub(crate) const LIMIT: &str = "model: limit";

/// Transcript lines of gates for reached limits and for interrupted calls.
pub(crate) const LIMIT_GATE: &str = "gate: limit";
pub(crate) const RERUN_GATE: &str = "gate: rerun";

/// Compares two transcripts, apart from interrupted calls.
pub(crate) fn compare(expected: &[String], found: &[String]) -> Result<(), String> {
    // Parallel tools end in any order.
    let (mut expected, mut found) = (expected.to_vec(), found.to_vec());
    sort_results(&mut expected);
    sort_results(&mut found);
    // A lost model call counts as well, so a limit may be reached sooner.
    for at in 0..found.len().min(expected.len()) {
        if found[at] == LIMIT && expected[at] != LIMIT {
            let end = expected[at..].iter().position(|line| line == LIMIT);
            let end = at + end.ok_or("unexpected limit")?;
            expected.drain(at..end);
        }
    }
    // For the same reason there may be more gates for limits.
    expected.retain(|line| line != LIMIT_GATE);
    found.retain(|line| line != LIMIT_GATE);
    // Only a killed process has gates for interrupted calls.
    found.retain(|line| line != RERUN_GATE);
    if expected.len() != found.len() {
        return Err(format!(
            "{} lines instead of {}",
            found.len(),
            expected.len()
        ));
    }
    for (expected, found) in expected.iter().zip(&found) {
        let interrupted = expected.starts_with("tool: ") && found == "tool: interrupted";
        if expected != found && !interrupted {
            return Err(format!("`{found}` instead of `{expected}`"));
        }
    }
    Ok(())
}

fn sort_results(transcript: &mut [String]) {
    for run in transcript.chunk_by_mut(|a, b| a.starts_with("tool: ") && b.starts_with("tool: ")) {
        run.sort();
    }
}
