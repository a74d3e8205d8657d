//! `lillux exec`, `spawn`, `status`, `kill` and `watch`: output and exit codes.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{MARK, lillux, mark, marked};

/// Compares a transcript with its snapshot, without durations.
macro_rules! assert_transcript {
    ($transcript:expr) => {
        insta::with_settings!({
            omit_expression => true,
            filters => [
                (r#""duration_ms":\d+"#, r#""duration_ms":0"#),
                (r"/tmp/\.tmp\w+", "DIR"),
            ],
        }, {
            insta::assert_snapshot!($transcript);
        });
    };
}

/// Runs `lillux` for each list of arguments and returns a transcript of the commands, their
/// output and their exit codes.
fn transcript(dir: &Path, calls: &[&[&str]]) -> String {
    let mut transcript = String::new();
    for args in calls {
        let output = Command::new(lillux())
            .args(*args)
            .current_dir(dir)
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let typed: Vec<_> = args.iter().map(|arg| as_typed(arg)).collect();
        let [out, err] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        let code = output.status.code().unwrap();
        let err = match err.as_str() {
            "" => String::new(),
            err => format!("--- stderr\n{err}"),
        };
        let typed = typed.join(" ");
        write!(
            transcript,
            "$ lillux {typed}\n{out}{err}--- exit {code}\n\n"
        )
        .unwrap();
    }
    transcript
}

fn as_typed(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=:./".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) {
        return arg.to_owned();
    }
    format!("'{arg}'")
}

#[test]
fn commands_print_one_json_object() {
    assert_transcript!(transcript(
        Path::new("/usr"),
        &[
            &["exec", "--cmd", "echo", "--arg", "hello", "--arg", "-n"],
            &["exec", "--cmd", "cat", "--stdin", "- from\nmemory"],
            &["exec", "--cmd", "pwd"],
            &["exec", "--cmd", "pwd", "--cwd", "bin"],
            &[
                "exec",
                "--cmd",
                "env",
                "--inherit",
                "none",
                "--env",
                "A=b=c"
            ],
            &[
                "exec",
                "--cmd",
                "sh",
                "--arg",
                "-c",
                "--arg",
                "echo out; echo err >&2; exit 3"
            ],
            &["exec", "--cmd", "sh", "--arg", "-c", "--arg", "kill -9 $$"],
            &["exec", "--cmd", "sleep", "--arg", "300", "--timeout", "0.1"],
            &["exec", "--cmd", "printf", "--arg", r"\377\000ok"],
            &["status", "--pid", "2147483647"],
            &["kill", "--pid", "2147483647"],
        ]
    ));
}

#[test]
fn long_output_is_counted_or_stored() {
    let dir = tempfile::tempdir().unwrap();
    assert_transcript!(transcript(
        dir.path(),
        &[
            &[
                "exec",
                "--cmd",
                "seq",
                "--arg",
                "1000",
                "--max-output",
                "10"
            ],
            &[
                "exec",
                "--cmd",
                "seq",
                "--arg",
                "1000",
                "--max-output",
                "10",
                "--spill",
                "store"
            ],
            &[
                "cas",
                "has",
                "--root",
                "store",
                "67d4ff71d43921d5739f387da09746f405e425b07d727e4c69d029461d1f051f"
            ],
        ]
    ));
}

#[test]
fn launch_failures_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("plain"), "echo hi\n").unwrap();
    fs::write(dir.path().join("script"), "echo hi\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(dir.path().join("script"), executable).unwrap();
    assert_transcript!(transcript(
        dir.path(),
        &[
            &["exec", "--cmd", "no-such-program"],
            &["exec", "--cmd", ""],
            &["exec", "--cmd", "./plain"],
            &["exec", "--cmd", "./."],
            &["exec", "--cmd", "./script"],
            &["exec", "--cmd", "true", "--cwd", "nowhere"],
            &["exec", "--cmd", "true", "--cwd", "plain"],
            &["exec", "--cmd", "true", "--spill", "plain"],
            &["spawn", "--cmd", "no-such-program"],
            &["spawn", "--cmd", "true", "--log", "nowhere/log"],
            &["kill", "--pid", "1"],
            &["watch", "--path", "nowhere/file"],
            &["watch", "--db", "nowhere", "--thread-id", "t"],
        ]
    ));
}

#[test]
fn wrong_usage_is_explained() {
    assert_transcript!(transcript(
        Path::new("/"),
        &[
            &[],
            &["no-such-command"],
            &["exec"],
            &["exec", "--cmd", "true", "--timeout", "-1"],
            &["exec", "--cmd", "true", "--timeout", "0"],
            &["exec", "--cmd", "true", "--timeout", "soon"],
            &["exec", "--cmd", "true", "--timeout", "nan"],
            &["exec", "--cmd", "true", "--env", "=x"],
            &["exec", "--cmd", "true", "--stdin", "x", "--stdin-pipe"],
            &["status", "--pid", "4294967295"],
            &["kill", "--pid", "0"],
            &["kill", "--pid", "-1"],
            &["kill", "--pid", "12:34"],
            &["watch"],
            &["watch", "--db", "x"],
            &["watch", "--path", "x", "--pid", "1"],
            &["watch", "--thread-id", "t", "--pid", "1"],
            &["exec", "--cmd", "true", "--max-output", "-1"],
        ]
    ));
}

#[test]
fn timeout_ends_a_process_in_another_session() {
    let mark = mark();
    let start = Instant::now();
    let output = Command::new(lillux())
        .args(["exec", "--cmd", "sh", "--arg", "-c", "--arg"])
        .args(["setsid sleep 300 & sleep 300", "--timeout", "1"])
        .env(MARK, &mark)
        .output()
        .unwrap();
    assert!(start.elapsed() < Duration::from_mins(1));
    assert_eq!(output.status.code(), Some(124));
    let left = marked(&mark);
    let sleepers = left.iter().filter(|handle| {
        fs::read_to_string(format!("/proc/{}/comm", handle.pid()))
            .is_ok_and(|name| name == "sleep\n")
    });
    assert_eq!(sleepers.count(), 0);
}

#[test]
fn ignored_signals_of_the_caller_are_reset_or_inherited() {
    for (ignored, number, is_inherited) in
        [("CHLD", 17, false), ("PIPE", 13, false), ("HUP", 1, true)]
    {
        let ignore = format!("--ignore-signal={ignored}");
        let script = "sed -n 's/SigIgn://p' /proc/self/status; exit 3";
        let output = Command::new("env")
            .args([&ignore, lillux(), "exec", "--timeout", "20"])
            .args(["--cmd", "sh", "--arg", "-c", "--arg", script])
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["return_code"], 3, "{ignored}: {report}");
        let mask = report["stdout"].as_str().unwrap().trim();
        let mask = u64::from_str_radix(mask, 16).unwrap();
        assert_eq!(
            mask >> (number - 1) & 1 == 1,
            is_inherited,
            "{ignored}: {report}"
        );
    }
}

#[test]
fn command_cannot_read_the_memory_of_its_supervisors() {
    // The ancestors of a command are the reaper, the fork server and the host. Root may read
    // everything unless it lacks all capabilities.
    let script = "pid=$$; for who in own reaper fork_server host; do
        cat /proc/$pid/environ > /dev/null && echo $who environ
        head -c 0 /proc/$pid/mem && echo $who mem
        pid=$(cut -d ' ' -f 4 /proc/$pid/stat)
    done; true";
    let output = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all"])
        .args([lillux(), "exec", "--cmd", "sh", "--arg", "-c"])
        .args(["--arg", script])
        .env("SECRET", "a secret of the host")
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["stdout"], "own environ\nown mem\n", "{report}");
}

/// Runs a script with an address space limit of 256 MiB for each process.
fn with_memory_limit(script: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -v 262144; {script}")])
        .env("LILLUX", lillux())
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{err}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn large_output_needs_little_memory() {
    let out = with_memory_limit(
        "$LILLUX exec --cmd head --arg -c --arg 1G --arg /dev/zero | tail -c 200",
    );
    assert!(out.contains(r#""stdout_bytes":1073741824"#), "{out}");
    assert!(out.contains(r#""truncated":true"#), "{out}");
}

#[test]
fn large_unread_input_does_not_block() {
    let out =
        with_memory_limit("head -c 1G /dev/zero | $LILLUX exec --stdin-pipe --cmd sleep --arg 0.2");
    assert!(out.contains(r#""success":true"#), "{out}");
}

#[test]
fn large_input_passes_through() {
    let out =
        with_memory_limit("head -c 1G /dev/zero | $LILLUX exec --stdin-pipe --cmd wc --arg -c");
    assert!(out.contains(r#""stdout":"1073741824\n""#), "{out}");
}
