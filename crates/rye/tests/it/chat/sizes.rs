//! Each feature of the chat at the smallest, the usual and a large size.

use crate::chat::window::{LAST_ANSWER, Window};
use crate::chat::{MODEL, SIZES, SMALL, env, wait_gate_grace};
use crate::support::{TestEnv, json};

/// What the user does, or what must happen then.
enum Step {
    Type(&'static str),
    /// These words are on the screen or above it, wherever lines are broken.
    See(&'static str),
    /// The same, unless the terminal is too small for it.
    SeeIfLarge(&'static str),
    /// This is on the screen no more.
    Gone(&'static str),
    /// The terminal got these bytes.
    Sent(&'static str),
    /// The agent is idle.
    Ready,
    /// A gate opens and is answered with this key. If it does not fit, the user enlarges the
    /// terminal.
    Gate(&'static str),
}
use Step::{Gate, Gone, Ready, See, SeeIfLarge, Sent, Type};

struct Case {
    name: &'static str,
    script: &'static str,
    args: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    steps: &'static [Step],
    /// What must be true afterwards.
    check: fn(&TestEnv, &[u8]),
}

const DEFAULT: Case = Case {
    name: "",
    script: "{ steps: [], after_last: { text: noted } }",
    args: MODEL,
    variables: &[],
    steps: &[],
    check: |_, _| {},
};

const RENDERED: &str = r"
steps:
  - thinking: first thought
    text: working
    tool_calls:
      - { name: plan, args: { steps: [{ text: look, status: done }, { text: change it, status: in_progress }] } }
      - { name: bash, args: { command: seq 100 } }
  - text: |
      # Result

      See [the page](https://example.org):

      ```python
      return x + 1
      ```

      | name | what |
      |------|------|
      | a    | first |
";

const COMMANDS: &str = "steps:
  - tool_calls: [{ name: bash, args: { command: echo one } }]
  - tool_calls: [{ name: bash, args: { command: seq 3 } }]
  - tool_calls: [{ name: bash, args: { command: seq 4 } }]
  - tool_calls: [{ name: bash, args: { command: rm x } }]
  - tool_calls: [{ name: bash, args: { command: echo two } }]
  - tool_calls: [{ name: bash, args: { command: echo three } }]
  - text: at the end
";

const SLOW: &str = "steps: [{ text: slow, delay_ms: 600000 }, { text: slow, delay_ms: 600000 }]\n";

fn session_count(env: &TestEnv) -> usize {
    let listed = json(&env.run(&["session", "list", "--json"]));
    listed["sessions"].as_array().unwrap().len()
}

fn has_colour(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.split("\x1b[").skip(1).any(|rest| {
        let end = rest.find(|it: char| it.is_ascii_alphabetic());
        end.is_some_and(|end| rest.as_bytes()[end] == b'm' && end > 0)
    })
}

const CASES: &[Case] = &[
    Case {
        name: "without a key, the chat says what is missing and offers the demo",
        args: &[],
        steps: &[
            Ready,
            See("no API key for anthropic"),
            See("rye vault set ANTHROPIC_API_KEY"),
            See("type /model scripted:demo"),
            Type("/model scripted:demo\r"),
            See("using scripted:demo from the next prompt on"),
            Type("hi\r"),
            See("I am not a model"),
        ],
        ..DEFAULT
    },
    Case {
        name: "models, roles, skills, threads, files and commands are picked with fuzzy search",
        steps: &[
            Ready,
            Type("/role\r"),
            See("▸ reviewer"),
            Type("\r"),
            See("using the role reviewer"),
            Type("/skills\r"),
            See("▸ greet"),
            Type("\r"),
            See("Say hello politely."),
            See("noted"),
            Ready,
            Type("/threads side\r"),
            Gone("noted"),
            Type("on the side\r"),
            See("› on the side"),
            Ready,
            Type("/threads\r"),
            Type("dflt"),
            See("▸ default"),
            Type("\r"),
            Gone("on the side"),
            Type("@mnrs"),
            See("▸ src/main.rs"),
            Type("\t"),
            See("› @src/main.rs"),
            Type("\x15/stts"),
            See("▸ status"),
            Type("\r"),
            See("role reviewer"),
            Type("/model\r"),
            Type("demo"),
            See("▸ scripted:demo"),
            Type("\r"),
            See("using scripted:demo from the next prompt on"),
        ],
        ..DEFAULT
    },
    Case {
        name: "plan, output, thinking, code, tables and links are rendered",
        script: RENDERED,
        steps: &[
            Ready,
            Type("go\r"),
            See("∴ first thought"),
            See("✓ look"),
            See("▸ change it"),
            See("│ … 97 lines above"),
            See("│ 100"),
            See("the page (https://example.org)"),
            See("return x + 1"),
            See("name │ what"),
            See("a │ first"),
            Ready,
            SeeIfLarge("tokens ("),
            SeeIfLarge("git:topic"),
            SeeIfLarge("plan 1/2"),
        ],
        ..DEFAULT
    },
    Case {
        name: "gates are answered once, for a prefix, for the session, with a reason and after an edit",
        script: COMMANDS,
        args: &["--model", "scripted:agent.yaml", "--sandbox", "local"],
        steps: &[
            Ready,
            Type("go\r"),
            Gate("?"),
            See("\"risk\""),
            Gate("y"),
            See("approved by ada (chat)"),
            Gate("c"),
            See("approved for commands that start the same way by ada"),
            // `seq 4` needs no answer.
            Gate("n"),
            Type("keep the file\r"),
            See("keep the file (chat)"),
            Gate("a"),
            See("approved for this session by ada"),
            Gate("e"),
            Type("\r"),
            See("at the end"),
            Ready,
            Type("/permissions\r"),
            See("every `seq …`"),
            See("run: echo two in this session"),
        ],
        ..DEFAULT
    },
    Case {
        name: "typing while the agent works queues, Esc stops, Ctrl-S steers, and no draft is lost",
        script: SLOW,
        steps: &[
            Ready,
            Type("first\r"),
            See("› first"),
            See("thinking"),
            Type("second\r"),
            SeeIfLarge("1. second"),
            Type("\x1b"),
            See("stopped"),
            // The queued prompt is in the input again.
            See("› second"),
            Ready,
            Type("\x03"),
            See("draft saved"),
            Type("third\r"),
            See("› third"),
            See("thinking"),
            Type("fourth\x13"),
            See("› fourth"),
            Type("\x1b"),
            Ready,
            Type("\x1b"),
            See("press Esc again"),
            Type("\x1b"),
            // The first screen of the fork, whose draft is the last prompt.
            See("title first"),
            Type(" changed\r"),
            See("› fourth changed"),
        ],
        check: |env, _| assert_eq!(session_count(env), 2),
        ..DEFAULT
    },
    Case {
        name: "commands about the session answer",
        steps: &[
            Ready,
            Type("/init\r"),
            See("Write AGENTS.md for this project"),
            See("noted"),
            Ready,
            Type("/cost\r"),
            See("default: 1 model call"),
            Type("/compact\r"),
            See("nothing to compact"),
            Type("/export out.jsonl\r"),
            See("out.jsonl"),
            Type("/share page.html\r"),
            See("page.html"),
            Type("/sessoins\r"),
            See("unknown command /s"),
            SeeIfLarge("did you mean /sessions?"),
            Type("\x15/verify\r"),
            See("verified"),
        ],
        check: |env, _| {
            assert!(env.path("project/out.jsonl").exists());
            assert!(env.read("project/page.html").contains("noted"));
        },
        ..DEFAULT
    },
    Case {
        name: "the user who looks elsewhere is notified",
        steps: &[
            Ready,
            Type("\x1b[O"),
            Type("go\r"),
            See("noted"),
            Sent("\x1b]9;rye: the agent is done"),
        ],
        ..DEFAULT
    },
    Case {
        name: "with NO_COLOR, there are no colours",
        script: RENDERED,
        variables: &[("NO_COLOR", "1")],
        steps: &[Ready, Type("go\r"), See("a │ first"), Ready],
        check: |_, bytes| assert!(!has_colour(bytes)),
        ..DEFAULT
    },
    Case {
        name: "a terminal that cannot be painted on gets lines",
        script: RENDERED,
        variables: &[("TERM", "dumb")],
        steps: &[
            See(">"),
            Type("go\r"),
            See("a │ first"),
            Type("/cost\r"),
            See("default:"),
        ],
        ..DEFAULT
    },
];

fn run(window: &Window<'_>, size: (u16, u16), step: &Step) {
    match step {
        Type(keys) => window.press(keys),
        See(words) => window.wait_for_words(words),
        SeeIfLarge(words) => {
            if size != SMALL {
                window.wait_for_words(words);
            }
        }
        Gone(text) => {
            window.wait_until(&format!("no {text}"), |screen| !screen.contains(text));
        }
        Sent(text) => {
            window.wait_for_bytes(text);
        }
        Ready => {
            window.wait_until("ready", |screen| {
                let mut last = screen.lines().rev();
                last.any(|line| line.starts_with("ready"))
            });
        }
        Gate(key) => {
            let is_gate =
                |screen: &str| screen.contains(LAST_ANSWER) || screen.contains("too small");
            if window.wait_until("a gate", is_gate).contains("too small") {
                assert_eq!(size, SMALL);
                window.resize(80, 24);
            }
            window.wait_until("a gate", |screen| screen.contains(LAST_ANSWER));
            wait_gate_grace();
            window.press(key);
        }
    }
}

#[test]
fn every_feature_works_at_every_size() {
    for case in CASES {
        for (_, size) in SIZES {
            let env = env(case.script);
            // No server of a local model runs.
            let closed = "http://127.0.0.1:1";
            let models = format!(
                "providers:\n  ollama: {{ base_url: '{closed}/v1' }}\n  llamacpp: {{ base_url: '{closed}/v1' }}\n"
            );
            env.write("user/.ai/config/agent/models.yaml", &models);
            env.write("project/.git/HEAD", "ref: refs/heads/topic\n");
            env.write("project/src/main.rs", "");
            let role = "---\ndescription: reads only\n---\nYou review.\n";
            env.write("project/.ai/roles/reviewer.md", role);
            let skill = "---\ndescription: greets\n---\nSay hello politely.\n";
            env.write("project/.ai/skills/greet.md", skill);
            println!("{} at {size:?}", case.name);
            let window = Window::with(&env, case.args, size, case.variables);
            for step in case.steps {
                run(&window, size, step);
            }
            let bytes = window.bytes();
            drop(window);
            (case.check)(&env, &bytes);
        }
    }
}
