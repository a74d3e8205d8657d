//! `--log`, `--log-file` and `--log-format`.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::support::TestEnv;

const SCRIPT: &str =
    "steps: [{ tool_calls: [{ name: write, args: { path: a.txt, content: hi } }] },
  { text: the key is hunter2-sesame }]";

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A project with a key and a scripted model.
fn env() -> TestEnv {
    let env = TestEnv::new();
    assert!(env.run(&["init"]).status.success());
    env.write("project/script.yaml", SCRIPT);
    env
}

const PROMPT: [&str; 5] = [
    "prompt",
    "hello",
    "--model",
    "scripted:script.yaml",
    "--yes",
];

#[test]
fn log_goes_to_stderr_and_never_to_stdout() {
    let env = env();
    let plain = env.run(&PROMPT);
    let logged = env.run(&[&PROMPT[..], &["--log", "debug"]].concat());
    assert_eq!(text(&plain.stdout), text(&logged.stdout));
    let log = text(&logged.stderr);
    assert!(log.contains("llm_call"), "{log}");
    assert!(!text(&plain.stderr).contains("llm_call"));
}

#[test]
fn log_file_is_private_json_lines() {
    let mut env = env();
    let file = env.path("project/rye.log");
    env.set("RYE_LOG", "rye_engine=info");
    env.set("RYE_LOG_FILE", file.to_str().unwrap());
    env.set("RYE_LOG_FORMAT", "json");
    let output = env.run(&PROMPT);
    assert!(output.status.success());
    assert!(!text(&output.stderr).contains("llm_call"));
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let log = env.read("project/rye.log");
    let lines: Vec<Value> = log
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    assert!(
        lines
            .iter()
            .all(|line| line["target"].as_str().unwrap().starts_with("rye_engine"))
    );
    assert!(
        lines.iter().any(|line| line["span"]["name"] == "llm_call"),
        "{log}"
    );
    // Appended to.
    env.run(&PROMPT);
    assert!(env.read("project/rye.log").starts_with(&log));
}

#[test]
fn secrets_are_redacted_in_the_log() {
    let mut env = env();
    env.set("MY_API_TOKEN", "hunter2-sesame");
    let output = env.run(&[&PROMPT[..], &["--log", "trace"]].concat());
    assert!(!text(&output.stderr).contains("hunter2-sesame"));
    // The name of the project is in the log.
    env.set("MY_API_TOKEN", env.path("project").to_str().unwrap());
    let log = text(
        &env.run(&[&PROMPT[..], &["--log", "rye_host=debug"]].concat())
            .stderr,
    );
    assert!(log.contains("[redacted]"), "{log}");
}

#[test]
fn spaces_are_opened_and_the_key_is_loaded_once() {
    let env = env();
    for command in [
        &PROMPT[..],
        &["session", "list"],
        &["sign", "hello"],
        &["doctor"],
    ] {
        let output = env.run(&[command, &["--log", "rye_host=debug"]].concat());
        let log = text(&output.stderr);
        assert_eq!(
            log.matches("opened the spaces").count(),
            1,
            "{command:?}: {log}"
        );
        assert!(
            log.matches("loaded the signing key").count() <= 1,
            "{command:?}: {log}"
        );
    }
}

#[test]
fn wrong_log_options_are_refused() {
    let mut env = env();
    let refused = |env: &TestEnv, args: &[&str], message: &str| {
        let output = env.run(&[&["config", "show"], args].concat());
        let reply = text(&output.stderr);
        assert!(
            !output.status.success() && reply.contains(message),
            "{reply}"
        );
        assert!(output.stdout.is_empty());
    };
    refused(
        &env,
        &["--log", "loud"],
        "invalid --log=\"loud\": `loud` is not a level",
    );
    refused(&env, &["--log", "rye_engine=loud"], "invalid --log=");
    refused(&env, &["--log-format", "xml"], "invalid value 'xml'");
    refused(
        &env,
        &["--log-file", "/no/such/rye.log"],
        "cannot write the log to /no/such/rye.log",
    );
    env.set("RYE_LOG", "loud");
    refused(&env, &[], "invalid RYE_LOG=\"loud\"");
    env.set("RYE_LOG", "info");
    env.set("RYE_LOG_FORMAT", "xml");
    refused(
        &env,
        &[],
        "invalid RYE_LOG_FORMAT=\"xml\": expected text or json",
    );
}
