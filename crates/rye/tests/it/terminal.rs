//! Behaviour on a terminal: colours, widths, questions and hidden input.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Child;

use crate::support::TestEnv;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// A command on a terminal of 60 columns.
struct Terminal {
    master: File,
    child: Child,
    output: Vec<u8>,
}

impl Terminal {
    fn run(env: &TestEnv, args: &[&str]) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 60,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let slave = File::options().read(true).write(true).open(name).unwrap();
        let mut command = env.command();
        command.env("TERM", "xterm").args(args);
        let [input, output, error] = [(); 3].map(|()| slave.try_clone().unwrap());
        let child = command
            .stdin(input)
            .stdout(output)
            .stderr(error)
            .spawn()
            .unwrap();
        Self {
            master: master.into(),
            child,
            output: Vec::new(),
        }
    }

    /// Reads until a text has appeared or the output ends.
    fn wait_for(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.text().contains(text) {
            // Reading from a terminal without a slave fails instead of reporting the end.
            match self.master.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(n) => self.output.extend(&buffer[..n]),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Forgets the output so far, and reads until a text appears in new output.
    fn wait_for_next(&mut self, text: &str) {
        self.output.clear();
        self.wait_for(text);
    }

    /// Reads all remaining output. It ends with the command, because the test holds no slave.
    fn wait_for_exit(&mut self) {
        self.wait_for("\0never\0");
    }

    /// Waits for the exit code and the output.
    fn finish(mut self) -> (i32, String) {
        self.wait_for_exit();
        let code = self.child.wait().unwrap().code().unwrap();
        (code, self.text())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

#[test]
fn secret_is_not_echoed() {
    let env = TestEnv::new();
    let mut terminal = Terminal::run(&env, &["vault", "set", "TOKEN"]);
    terminal.wait_for("(not shown): ");
    terminal.press("wrong\x15ses\x7fs4me\r");
    let (code, output) = terminal.finish();
    assert_eq!(code, 0, "{output}");
    assert!(
        !output.contains("s4me") && !output.contains("wrong"),
        "{output}"
    );
    assert_eq!(env.run(&["vault", "get", "TOKEN"]).stdout, b"ses4me");
}

#[test]
fn cancelled_secret_prompt_restores_the_terminal() {
    let env = TestEnv::new();
    let mut terminal = Terminal::run(&env, &["vault", "set", "TOKEN"]);
    terminal.wait_for("(not shown): ");
    terminal.press("ses\x03");
    terminal.wait_for_exit();
    let modes = tcgetattr(&terminal.master).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG));
    let (code, output) = terminal.finish();
    assert_eq!(code, 1, "{output}");
    assert!(!env.path("user/.ai/vault/TOKEN.json").exists());
}

#[test]
fn secret_is_shown_on_a_terminal_only_with_show() {
    let env = TestEnv::new();
    env.feed(&["vault", "set", "TOKEN"], b"sesame");
    for args in [
        &["vault", "get", "TOKEN"][..],
        &["vault", "get", "TOKEN", "--json"],
    ] {
        let (code, output) = Terminal::run(&env, args).finish();
        assert_eq!(code, 4, "{output}");
        assert!(output.contains("rye vault get TOKEN --show") && !output.contains("sesame"));
    }
    let (code, output) = Terminal::run(&env, &["vault", "get", "TOKEN", "--show"]).finish();
    assert!(code == 0 && output.contains("sesame"), "{output}");
}

#[test]
fn trusting_a_key_asks_for_confirmation() {
    let (env, other) = (TestEnv::new(), TestEnv::new());
    for env in [&env, &other] {
        env.run(&["keys", "generate"]);
    }
    let file = "user/.ai/config/keys/signing/public_key.pem";
    env.write("project/other.pem", &other.read(file));
    let args = ["keys", "trust", "other.pem", "--owner", "Grace\x1b[2J"];
    for (answer, expected) in [("n\r", 4), ("\r", 4), ("y\r", 0)] {
        let mut terminal = Terminal::run(&env, &args);
        terminal.wait_for("[y/N] ");
        let question = terminal.text();
        assert!(
            question.contains("fingerprint") && question.contains(r"Grace\u{1b}[2J"),
            "{question}"
        );
        terminal.press(answer);
        let (code, output) = terminal.finish();
        assert_eq!(code, expected, "{answer:?}: {output}");
    }
}

/// A session on a terminal whose model runs two commands, one after the other.
fn two_commands(env: &TestEnv) -> Terminal {
    let script = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'echo > first' } }]
  - tool_calls: [{ name: bash, args: { command: 'echo > second' } }]
  - text: 'It is done.'
";
    env.write("project/agent.yaml", script);
    let args = ["prompt", "go", "--model", "scripted:agent.yaml"];
    Terminal::run(env, &[&args[..], &["--sandbox", "local"]].concat())
}

#[test]
fn answer_appears_on_a_terminal_while_it_is_generated() {
    let env = TestEnv::new();
    let script = "steps: [{ text: 'first second', chunk_chars: 6, chunk_ms: 600000 }]";
    env.write("project/agent.yaml", script);
    let args = ["prompt", "go", "--model", "scripted:agent.yaml"];
    let mut terminal = Terminal::run(&env, &args);
    terminal.wait_for("first");
    assert!(!terminal.text().contains("second"), "{}", terminal.text());
    terminal.child.kill().unwrap();
    terminal.child.wait().unwrap();
}

#[test]
fn streamed_answer_is_printed_once_before_the_next_command() {
    let env = TestEnv::new();
    let script = "\
steps:
  - { text: 'I look around.', chunk_chars: 4, tool_calls: [{ name: glob, args: { pattern: '*' } }] }
  - { text: \"one\\n\\u001b[2Jtwo\", chunk_chars: 3 }
";
    env.write("project/agent.yaml", script);
    let args = ["prompt", "go", "--model", "scripted:agent.yaml"];
    let (code, output) = Terminal::run(&env, &args).finish();
    let plain = anstream::adapter::strip_str(&output).to_string();
    let lines: Vec<_> = plain.lines().map(str::trim_end).collect();
    assert_eq!(code, 0, "{plain}");
    // Progress shows it with the call if the message was complete before the terminal followed.
    assert!(lines[0].contains("I look around."), "{plain}");
    let [.., first, second, next] = lines.as_slice() else {
        panic!("{plain}");
    };
    assert_eq!((*first, *second), ("one", r"\u{1b}[2Jtwo"), "{plain}");
    assert!(next.starts_with("next: rye prompt --session "), "{plain}");
    assert_eq!(plain.matches("two").count(), 1, "{plain}");
}

#[test]
fn input_typed_before_a_gate_was_shown_does_not_answer_it() {
    let env = TestEnv::new();
    let mut terminal = two_commands(&env);
    terminal.wait_for("[y/N] ");
    terminal.press("y\ry\r");
    terminal.wait_for_next("[y/N] ");
    terminal.press("n\r");
    let (code, output) = terminal.finish();
    assert!(code == 0 && output.contains("It is done."), "{output}");
    assert!(env.path("project/first").exists(), "{output}");
    assert!(!env.path("project/second").exists(), "{output}");
}

#[test]
fn end_of_input_at_a_gate_leaves_it_pending() {
    let env = TestEnv::new();
    let mut terminal = two_commands(&env);
    terminal.wait_for("[y/N] ");
    terminal.press("\x04");
    let (code, output) = terminal.finish();
    assert_eq!(code, 5, "{output}");
    assert!(output.contains("rye gate approve "), "{output}");
    let listed = env.run(&["gate", "list"]);
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.contains("run: echo > first"), "{listed}");
}

#[test]
fn terminal_output_has_colours_and_fits_the_width() {
    let env = TestEnv::new();
    env.run(&["init"]);
    let text = "word ".repeat(60);
    let tool = format!("__tool_description__ = \"{text}\"\n");
    env.write("project/.ai/tools/long.py", &tool);
    let (code, output) = Terminal::run(&env, &["search", "--space", "project"]).finish();
    assert!(code == 0 && output.contains("\x1b["), "{output}");
    let plain = anstream::adapter::strip_str(&output).to_string();
    assert!(plain.contains('…'), "{plain}");
    for line in plain.lines() {
        assert!(line.trim_end().chars().count() <= 60, "{line}");
    }
}

#[test]
fn elicitation_of_an_mcp_server_is_answered_on_the_terminal() {
    let env = TestEnv::new();
    assert!(env.run(&["init"]).status.success());
    let script = "tests/it/mcp_support/asking_server.py";
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let script = script.to_str().unwrap();
    let added = env.run(&["mcp", "add", "travel", "--", "python3", script]);
    assert!(added.status.success(), "{added:?}");
    let mut call = Terminal::run(&env, &["mcp", "call", "travel", "book"]);
    call.wait_for("[y/N]");
    call.press("y\r");
    call.wait_for("city (Where to): ");
    call.press("\r");
    call.wait_for_next("city (Where to): ");
    call.press("Rome\r");
    call.wait_for("nights = 2: ");
    call.press("many\r");
    call.wait_for_next("nights = 2: ");
    call.press("3\r");
    let (code, output) = call.finish();
    assert_eq!(code, 0, "{output}");
    assert!(
        output.contains(r#""city": "Rome""#) && output.contains(r#""nights": 3"#),
        "{output}"
    );
}

/// A signed graph with an approval, and then a question.
fn env_with_graph() -> TestEnv {
    let env = TestEnv::new();
    assert!(env.run(&["init"]).status.success());
    let graph = "version: \"1.0.0\"\ntool_type: graph\n\
        executor_id: rye/core/runtimes/state-graph/runtime\npermissions: []\nconfig:\n  \
        start: approve\n  nodes:\n    \
        approve: { type: decision, title: \"Release?\", next: name }\n    \
        name: { type: decision, kind: question, title: \"Which name?\", assign: { name: \"${result.value}\" }, next: end }\n    \
        end: { type: return, output: { name: \"${state.name}\" } }\n";
    env.write("project/.ai/tools/flows/ask.yaml", graph);
    let signed = env.run(&["sign", "--all"]);
    assert!(signed.status.success(), "{signed:?}");
    env
}

#[test]
fn graph_asks_on_the_terminal() {
    let env = env_with_graph();
    let mut run = Terminal::run(&env, &["graph", "run", "flows/ask"]);
    run.wait_for("[y/N] ");
    run.press("y\r");
    run.wait_for("Answer: ");
    run.press("spring\r");
    let (code, output) = run.finish();
    assert_eq!(code, 0, "{output}");
    assert!(output.contains(r#""name": "spring""#), "{output}");
}

#[test]
fn interrupted_graph_prints_the_command_that_resumes_it() {
    let env = env_with_graph();
    let mut run = Terminal::run(&env, &["graph", "run", "flows/ask"]);
    run.wait_for("[y/N] ");
    // The test holds no controlling terminal, so it sends the signal of Ctrl-C itself.
    let pid = rustix::process::Pid::from_child(&run.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    run.wait_for_exit();
    assert!(
        run.text().contains("rye graph run --resume "),
        "{}",
        run.text()
    );
    let id = super::support::json(&env.run(&["run", "list", "--json"]))["runs"][0]["id"].clone();
    // The question is asked again.
    let mut resumed = Terminal::run(&env, &["graph", "run", "--resume", id.as_str().unwrap()]);
    resumed.wait_for("[y/N] ");
    resumed.press("n\r");
    let (code, output) = resumed.finish();
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("denied"), "{output}");
}

#[test]
fn list_of_sessions_fits_the_width() {
    let env = TestEnv::new();
    env.write("project/agent.yaml", "steps: [{ text: done }]\n");
    let prompt = "Explain in great detail how all the parts of this project work together";
    let ran = env.run(&["prompt", prompt, "--model", "scripted:agent.yaml"]);
    assert!(ran.status.success(), "{ran:?}");
    let (code, output) = Terminal::run(&env, &["session", "list"]).finish();
    assert_eq!(code, 0, "{output}");
    let plain = anstream::adapter::strip_str(&output).to_string();
    assert!(
        plain.contains("Explain in") && plain.contains("idle"),
        "{plain}"
    );
    for line in plain.lines() {
        assert!(line.trim_end().chars().count() <= 60, "{line}");
    }
}
