//! What is killed: sessions of every kind.

use std::time::Duration;

use rye_engine::protocol::{Limits, QueueMode};
use rye_model::{Fault, Script, ScriptedAnswer, Step, Tokens};
use serde_json::json;

use super::tools::LOG;

/// A session, what is asked of it, and what a person does at its gates.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) script: fn() -> Script,
    /// What the model of its children says.
    pub(crate) child: fn() -> Script,
    pub(crate) limits: Limits,
    /// Ids, contents and modes of the prompts, in order.
    pub(crate) prompts: &'static [(&'static str, &'static str, QueueMode)],
    /// How many turns end, at least.
    pub(crate) ends: usize,
    pub(crate) person: Person,
    /// Whether there is a project with signed tools, an MCP server and a command.
    pub(crate) in_project: bool,
    /// Whether a person is asked for more at a limit.
    pub(crate) prompt_on_limit: bool,
    /// How long no host is there after a kill, by the clock.
    pub(crate) down_for: Duration,
}

/// What a person does when asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Person {
    Approves,
    /// Approves with other arguments than were asked about.
    Edits,
    /// Asks something else instead.
    Steers,
    /// Does not answer.
    Sleeps,
    /// Says that what was interrupted is to be run again.
    RunsAgain,
    /// Orders, from another process, that its thread or all of them end what they do; and
    /// asks something else when that is done.
    Orders {
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

fn nothing() -> Script {
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

fn bridged(id: &str) -> Step {
    Step::call("call_tool", json!({ "tool_id": id, "summary": "do it" }))
}

fn calls(all: &[(&str, &str)]) -> Step {
    let all = all.iter();
    Step::calls(all.map(|(tool, line)| ((*tool).to_owned(), json!({ "line": line }))))
}

/// One prompt, to which a person has nothing to say but yes.
const PLAIN: Scenario = Scenario {
    name: "",
    script: nothing,
    child: nothing,
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
        person: Person::Orders { all: false },
        ..PLAIN
    },
    Scenario {
        name: "order to all threads",
        script: || Script::new([call("gated_again", "a"), Step::text("all right")]),
        person: Person::Orders { all: true },
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
        person: Person::Sleeps,
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
                // It says less than it is, so nobody sees it coming.
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
        name: "a limit that asks for more",
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
        script: || Script::new([bridged("rye:deploy"), Step::text("done")]),
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
        script: || Script::new([bridged("rye:deploy"), Step::text("done")]),
        in_project: true,
        person: Person::Edits,
        ..PLAIN
    },
    Scenario {
        name: "an approved MCP tool",
        script: || Script::new([bridged("mcp:weather/rain"), Step::text("done")]),
        in_project: true,
        ..PLAIN
    },
    Scenario {
        name: "a credential that is asked for",
        script: || Script::new([bridged("command:open"), Step::text("done")]),
        in_project: true,
        ..PLAIN
    },
];

const TWO: &[(&str, &str, QueueMode)] = &[
    ("p1", "first", QueueMode::Followup),
    ("p2", "second", QueueMode::Followup),
];

/// The context is full once the second prompt is answered.
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

/// How a story tells that a limit was reached.
pub(crate) const LIMIT: &str = "model: limit";

/// Whether a disturbed story is the undisturbed one, but for calls that were interrupted.
pub(crate) fn same(expected: &[String], found: &[String]) -> Result<(), String> {
    // Parallel tools end in any order.
    let (mut expected, mut found) = (expected.to_vec(), found.to_vec());
    sort_results(&mut expected);
    sort_results(&mut found);
    // A call of the model that was made and lost counts, so a limit may be reached sooner.
    for at in 0..found.len().min(expected.len()) {
        if found[at] == LIMIT && expected[at] != LIMIT {
            let end = expected[at..].iter().position(|line| line == LIMIT);
            let end = at + end.ok_or("a limit was reached that there is not")?;
            expected.drain(at..end);
        }
    }
    // For the same reason more may be asked for once more.
    let prompt_on_limit = |line: &String| line.starts_with("gate: limit of");
    expected.retain(|line| !prompt_on_limit(line));
    found.retain(|line| !prompt_on_limit(line));
    // Whoever is to say what becomes of an interrupted call has been asked.
    found.retain(|line| !line.ends_with("was interrupted"));
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

fn sort_results(story: &mut [String]) {
    for run in story.chunk_by_mut(|a, b| a.starts_with("tool: ") && b.starts_with("tool: ")) {
        run.sort();
    }
}
