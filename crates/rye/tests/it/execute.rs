//! `rye execute`: results, parameters, errors and signals.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::support::{TestEnv, assert_transcript, json, transcript_entry};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// A tool that returns its parameters.
const MIRROR: &str = r#"version: "1.2.0"
executor_id: rye/core/runtimes/bash/bash
description: Gives back its parameters
risk_level: low
effect: pure
timeout: 20
config:
  command: cat
config_schema:
  type: object
  properties:
    user_name: {type: string, description: Whose it is}
    count: {type: integer, minimum: 1, default: 3}
    fast: {type: boolean, description: Whether to hurry}
    tags: {type: array, items: {type: string}}
    filter: {type: object}
    level: {enum: [low, high]}
    timeout: {type: number, description: The tool's own}
  required: [user_name]
  additionalProperties: false
"#;

/// A program next to its tool, which contains its hash.
#[test]
fn changed_program_is_an_integrity_failure() {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    assert!(env.run(&["init"]).status.success());
    let text = "#!/bin/sh\necho ran\n";
    env.write("project/.ai/tools/prog", text);
    let tool = format!(
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/rust/runtime\n\
         config:\n  binary: ./prog\n  args: []\n  sha256: {}\n",
        lillux::Hash::digest(text).to_hex()
    );
    env.write("project/.ai/tools/it.yaml", &tool);
    assert!(env.run(&["sign", "it"]).status.success());
    assert!(env.run(&["execute", "it"]).status.success());
    env.write("project/.ai/tools/prog", "#!/bin/sh\necho planted\n");
    for args in [&["execute", "it"][..], &["execute", "--dry-run", "it"]] {
        let output = env.run(args);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(!printed.contains("planted"), "{output:?}");
    }
}

/// A tool that runs a bash command.
fn bash(command: &str) -> String {
    format!(
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: '{command}'\n"
    )
}

/// A `TestEnv` with these signed tools.
fn with_tools(tools: &[(&str, &str)]) -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    assert!(env.run(&["init"]).status.success());
    for (name, text) in tools {
        env.write(&format!("project/.ai/tools/{name}.yaml"), text);
        let output = env.run(&["sign", name]);
        assert!(output.status.success(), "{output:?}");
    }
    env
}

#[test]
fn results_are_printed() {
    let env = with_tools(&[
        ("words", &bash("echo out; echo aside >&2")),
        ("quoted", &bash("echo \\\"only a text\\\"")),
        ("list", &bash("echo [1, 2]")),
        ("silent", &bash(":")),
    ]);
    assert_transcript!(env.transcript(&[
        "execute hello --name Ada",
        "execute hello --json",
        "execute words",
        "execute words --json",
        "execute list",
        "execute silent",
        "execute tool:hello --quiet",
    ]));
}

#[test]
fn failed_tool_is_reported_with_its_output() {
    let env = with_tools(&[
        ("words", &bash("echo out; echo why >&2; exit 7")),
        ("object", &bash("echo {\\\"a\\\": 1}; echo why >&2; exit 7")),
        (
            "says",
            &bash("echo {\\\"success\\\": false, \\\"error\\\": \\\"no luck\\\"}"),
        ),
        ("dies", &bash("kill -KILL $$")),
    ]);
    assert_transcript!(env.transcript(&[
        "execute words",
        "execute words --json",
        "execute object",
        "execute says",
        "execute dies",
    ]));
}

#[test]
fn parameters_are_typed_by_the_schema() {
    let env = with_tools(&[("mirror", MIRROR)]);
    env.write("params.json", r#"{"user_name": "file", "count": 9}"#);
    let mut transcript = env.transcript(&[
        "execute mirror --user-name Ada --count 5 --fast --tags a --tags b --level high",
        "execute mirror --user_name=Ada --no-fast --tags [\"a\",\"b\"] --filter {\"x\":[1]}",
        "execute --timeout 9 mirror --user-name Ada --timeout 5",
        "execute mirror --params {\"user_name\":\"Ada\",\"count\":7} --count 8",
        "execute --params @../params.json mirror",
        "execute --params @../missing.json mirror",
        "execute --params [1] mirror",
        "execute --params {\"a\" mirror",
    ]);
    for input in [r#"{"user_name": "stdin"}"#, ""] {
        let call = ["execute", "mirror", "--params", "-"];
        let output = env.feed(&call, input.as_bytes());
        transcript += &transcript_entry("rye execute mirror --params -", &output);
    }
    assert_transcript!(transcript);
}

#[test]
fn all_invalid_parameters_are_reported_and_nothing_runs() {
    let env = with_tools(&[("mirror", MIRROR)]);
    assert_transcript!(env.transcript(&[
        "execute mirror --count many --level middle --tags 1 --filter []",
        "execute mirror --count 0 --json",
        "execute mirror --usr-name Ada",
        "execute mirror --user-name",
        "execute mirror Ada",
        "execute mirror --user-name Ada --project elsewhere",
        "execute mirror --user-name Ada --nothing --json",
    ]));
}

#[test]
fn help_comes_from_the_schema() {
    let env = with_tools(&[("mirror", MIRROR), ("plain", &bash("cat"))]);
    assert_transcript!(env.transcript(&[
        "execute mirror --help",
        "execute hello -h",
        "execute plain --help",
        "execute mirror --help --json",
        "execute nothing --help",
    ]));
}

#[test]
fn options_are_parameters_with_underscores_without_a_schema_too() {
    let env = with_tools(&[("plain", &bash("cat"))]);
    let output = env.run(&["execute", "--json", "plain", "--user-name", "Ada"]);
    assert_eq!(json(&output)["data"]["user_name"], "Ada", "{output:?}");
}

#[test]
fn dry_run_runs_nothing() {
    let env = with_tools(&[("touch", &bash("touch touched"))]);
    assert_transcript!(env.transcript(&[
        "execute touch --dry-run",
        "execute --dry-run touch --json",
        "execute hello --dry-run --names Ada",
    ]));
    assert!(!env.path("project/touched").exists());
}

#[test]
fn tampered_tools_are_refused() {
    let env = with_tools(&[]);
    let tool = env.read("project/.ai/tools/hello.py");
    env.write("project/.ai/tools/hello.py", &(tool + "# a change\n"));
    env.write("project/.ai/tools/own.yaml", &bash("touch touched"));
    assert_transcript!(env.transcript(&[
        "execute hello --name Ada",
        "execute hello --json",
        "execute own",
        "execute own --async",
        "execute own --dry-run",
        "run list",
    ]));
    assert!(!env.path("project/touched").exists());
}

#[test]
fn tools_that_cannot_run_are_reported_with_a_hint() {
    let env = with_tools(&[
        ("orphan", "version: \"1.0.0\"\nexecutor_id: nobody/knows\n"),
        ("alone", "version: \"1.0.0\"\n"),
        ("broken", "version: \"1.0.0\"\nexecutor_id: broken\n"),
    ]);
    assert_transcript!(env.transcript(&[
        "execute",
        "execute hullo",
        "execute ../x",
        "execute knowledge:rye/writing-tools",
        "execute orphan",
        "execute alone",
        "execute broken",
        "execute --timeout 0 hello",
        "execute hello --timeout soon",
    ]));
}

/// The default program of the runtime for compiled programs, executed without a tool.
#[test]
fn parameters_of_a_runtime_that_allows_any_are_options() {
    let mut env = with_tools(&[]);
    env.write(
        "bin/lillux",
        "#!/bin/sh\nprintf '{\"words\": \"%s\"}' \"$*\"\n",
    );
    let program = env.path("bin/lillux");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        env.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    env.set("PATH", &path);
    assert_transcript!(env.transcript(&[
        "execute rye/core/runtimes/rust/runtime --db-path runs.db --thread-id t",
        "execute rye/core/runtimes/rust/runtime --db-path runs.db --thread-id t -- --timeout 5",
        "execute rye/core/runtimes/rust/runtime --thread-id t",
        "execute rye/core/runtimes/rust/runtime --thread-id t --dry-run",
        "execute rye/core/runtimes/rust/runtime --help",
    ]));
}

#[test]
fn missing_mcp_server_is_reported_with_the_command_that_adds_it() {
    let env = with_tools(&[]);
    let runtime = "execute rye/core/runtimes/mcp/stdio";
    assert_transcript!(env.transcript(&[&format!(
        "{runtime} --server mcp/servers/time --tool-name now"
    )]));
}

#[test]
fn timeout_ends_the_tool() {
    let env = with_tools(&[("slow", &bash("echo begun; exec sleep 600"))]);
    assert_transcript!(env.transcript(&[
        "execute slow --timeout 2.5",
        "execute --timeout=2.5 slow --json",
    ]));
}

#[test]
fn tool_with_a_parameter_in_its_script_is_not_signed() {
    let env = with_tools(&[]);
    for command in ["echo $(( {n} ))", "echo {n}", "{n}"] {
        let text =
            bash(command) + "config_schema: {type: object, properties: {n: {type: string}}}\n";
        env.write("project/.ai/tools/it.yaml", &text);
        let output = env.run(&["sign", "it", "--json"]);
        assert!(!output.status.success(), "{output:?}");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains("value_as_code"), "{printed}");
        assert!(!env.read("project/.ai/tools/it.yaml").contains("rye:signed"));
    }
}

#[test]
fn trace_shows_the_call_without_secrets() {
    let mut env = with_tools(&[("mirror", MIRROR)]);
    env.write(
        "project/.env",
        "API_TOKEN=s3cr3t-of-the-project\nMODE=fast\nTAR_OPTIONS=--x\n",
    );
    let declaring = "requires_env: [API_TOKEN, MODE]\nconfig:";
    env.write(
        "project/.ai/tools/mirror.yaml",
        &MIRROR.replace("config:", declaring),
    );
    assert!(env.run(&["sign", "mirror"]).status.success());
    env.write("user/.ai/tools/mirror.yaml", MIRROR);
    let call = ["execute", "mirror", "--user-name", "Ada", "--trace"];
    let output = env.run(&call);
    let all = env.run(&["execute", "mirror", "--user-name", "Ada", "--trace=all"]);
    let all = String::from_utf8_lossy(&all.stderr).into_owned();
    assert!(all.contains("HOME="), "{all}");
    assert!(!all.contains("s3cr3t"), "{all}");
    let mut transcript = transcript_entry("rye execute mirror --user-name Ada --trace", &output);
    env.set("RYE_DEBUG", "1");
    let output = env.run(&["execute", "mirror", "--count", "0", "--json"]);
    transcript += &transcript_entry("RYE_DEBUG=1 rye execute mirror --count 0 --json", &output);
    assert_transcript!(transcript);
}

#[test]
fn link_named_rye_execute_runs_that_command() {
    let env = with_tools(&[]);
    let link = env.path("rye_execute");
    symlink(env!("CARGO_BIN_EXE_rye"), &link).unwrap();
    let output = Command::new(&link)
        .args(["hello", "--name", "Ada", "--json"])
        .env_clear()
        .env("HOME", env.path("user"))
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir(env.path("project"))
        .output()
        .unwrap();
    assert_eq!(json(&output)["data"]["greeting"], "Hello, Ada!");
}

#[test]
fn interrupt_ends_the_whole_process_tree() {
    let script = "trap \"\" TERM; setsid sleep 600 & echo $! >pid; echo >ready; wait";
    assert_signal_ends_tree(Signal::INT, script);
}

#[test]
fn interrupt_and_termination_end_a_tool_that_stops_its_supervisors() {
    let script = "warden=$(cut -d\" \" -f4 /proc/$PPID/stat); setsid sleep 600 & echo $! >pid; \
                  kill -STOP $PPID $warden; echo >ready; wait";
    assert_signal_ends_tree(Signal::INT, script);
    assert_signal_ends_tree(Signal::TERM, script);
}

/// Sends a signal to `rye` while it runs a script that writes the id of one of its
/// processes to `pid`, then opens `ready`. Both must end.
fn assert_signal_ends_tree(signal: Signal, script: &str) {
    let env = with_tools(&[("tree", &bash(script))]);
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        env.path("project/ready"),
        rustix::fs::Mode::RWXU,
    )
    .unwrap();
    let child = env
        .command()
        .args(["execute", "tree"])
        .process_group(0)
        .spawn()
        .unwrap();
    // Blocks until the tool opens the other end.
    let mut ready = String::new();
    let mut fifo = fs::File::open(env.path("project/ready")).unwrap();
    fifo.read_to_string(&mut ready).unwrap();
    let sleeper: i32 = env.read("project/pid").trim().parse().unwrap();
    let rye = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(rye, signal).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(128 + signal.as_raw()),
        "{output:?}"
    );
    let sleeper = Pid::from_raw(sleeper).unwrap();
    assert!(test_kill_process(sleeper).is_err());
}

#[test]
fn cache_directory_is_required_without_a_home() {
    let mut env = with_tools(&[("mirror", MIRROR)]);
    let home = env.path("user").to_str().unwrap().to_owned();
    env.unset("HOME");
    env.set("USER_SPACE", home);
    let call = ["execute", "mirror", "--user-name", "a", "--params", "{}"];
    let output = env.command().args(call).stdin(Stdio::null()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    env.set("RYE_CACHE_DIR", env.path("cache").to_str().unwrap());
    let output = env.run(&call);
    assert!(output.status.success(), "{output:?}");
}

/// Root ignores the modes of directories, so the tool runs as another user.
#[test]
fn ordinary_user_runs_a_python_tool() {
    let env = TestEnv::new();
    let rye = env.path("rye");
    std::fs::copy(env!("CARGO_BIN_EXE_rye"), &rye).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        let folder = env.path("");
        let owned = Command::new("chown")
            .args(["-R", "65534:65534"])
            .arg(folder)
            .status();
        assert!(owned.unwrap().success());
    }
    let run = |args: &[&str]| {
        let template = env.command();
        let mut command = if is_root {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            command.arg(&rye);
            command
        } else {
            Command::new(&rye)
        };
        let variables = template.get_envs();
        let variables = variables.filter_map(|(name, value)| Some((name, value?)));
        command.env_clear().envs(variables);
        command.current_dir(env.path("project"));
        command.args(args).output().unwrap()
    };
    let ready = run(&["init"]);
    assert!(ready.status.success(), "{ready:?}");
    for _ in 0..2 {
        let ran = run(&["execute", "hello", "--name", "Ada"]);
        assert!(ran.status.success(), "{ran:?}");
    }
}

#[test]
fn integers_beyond_64_bits_survive_as_they_were_written() {
    let env = TestEnv::new();
    assert!(env.run(&["init"]).status.success());
    let schema = "{properties: {n: {type: integer, minimum: 0}, s: {type: string}, \
        all: {type: array, items: {type: integer}}}}";
    let header = "executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"";
    env.write(
        "project/.ai/tools/it.sh",
        &format!("# {header}\n# config_schema: {schema}\necho got \"$(cat)\"\n"),
    );
    env.write(
        "project/.ai/tools/add.py",
        "__executor_id__ = 'rye/core/runtimes/python/function'\n__version__ = '1.0.0'\n\
         CONFIG_SCHEMA = {'properties': {'n': {'type': 'integer'}}}\n\n\
         def execute(params, project_path):\n    return {'sum': params['n'] + 1}\n",
    );
    assert!(env.run(&["sign", "it", "add"]).status.success());
    let large = "123456789012345678901234567890";
    let received = |args: &[&str]| {
        let output = env.run(&[&["execute", "it"], args].concat());
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let object = format!("{{\"n\": {large}, \"s\": \"{large}\", \"all\": [1, {large}]}}");
    let exact = format!("got {{\"n\":{large},\"s\":\"{large}\",\"all\":[1,{large}]}}\n");
    assert_eq!(received(&["--params", &object]), exact);
    let all = format!("[1, {large}]");
    assert_eq!(
        received(&["--n", large, "--s", large, "--all", &all]),
        exact
    );
    // Where no schema says that it is a number, it is a string.
    let other = received(&["--params", &format!("{{\"other\": {large}}}")]);
    assert_eq!(other, format!("got {{\"other\":\"{large}\"}}\n"));

    let negative = format!("-{large}");
    let refused = env.run(&["execute", "it", "--n", &negative]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let output = env.run(&["execute", "add", "--n", large, "--json"]);
    assert_eq!(
        json(&output)["data"]["sum"],
        "123456789012345678901234567891"
    );
    let output = env.run(&["execute", "add", "--n", "18446744073709551614", "--json"]);
    assert_eq!(json(&output)["data"]["sum"], u64::MAX);
}
