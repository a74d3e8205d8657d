//! Crash tests: a process runs a graph, is killed with SIGKILL before and after every commit and
//! every effect of a tool, and another process resumes the run. The result is compared with that
//! of an undisturbed run.

#![expect(clippy::expect_used, reason = "tests may panic")]

mod child;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rye_engine::store::SessionStore as _;
use rye_testkit::wrapped_store::KILL_AT;
use serde_json::Value;

/// Limit on kill points; no scenario has as many.
const MAX_POINTS: u32 = 400;

/// Report of a process that was not killed.
struct Report {
    /// Status of the run.
    status: String,
    output: Value,
    /// Nodes whose outcome is unknown.
    interrupted: BTreeSet<String>,
    /// Effects of tools that must not be repeated, one line each.
    effects: Vec<String>,
}

#[test]
fn killed_at_any_point_a_run_loses_and_repeats_nothing() {
    let mut matrix = String::from("scenario      points  interrupted\n");
    // In parallel, because the processes mostly wait for the disk.
    let counted = std::thread::scope(|scope| {
        let started = child::SCENARIOS.iter().map(|scenario| {
            let killed = scope.spawn(|| kill_everywhere(scenario.name));
            (scenario.name, killed)
        });
        let started: Vec<_> = started.collect();
        let ended = started.into_iter().map(|(name, it)| (name, it.join()));
        ended.collect::<Vec<_>>()
    });
    for (name, killed) in counted {
        let (points, interrupted) = killed.unwrap_or_else(|_| panic!("{name} failed"));
        let _ = writeln!(matrix, "{name:<12} {points:>7} {interrupted:>12}");
        assert!(points > 4, "{name} has too few kill points");
    }
    println!("{matrix}");
}

#[test]
fn interrupted_ask_call_is_approved_before_each_repetition() {
    for first in 0..MAX_POINTS {
        let dir = tempfile::tempdir().unwrap();
        if run("ask", dir.path(), Some(first)).is_some() {
            return;
        }
        for second in 0..MAX_POINTS {
            let dir = tempfile::tempdir().unwrap();
            assert!(run("ask", dir.path(), Some(first)).is_none());
            let is_killed = run("ask", dir.path(), Some(second)).is_none();
            if is_killed {
                run("ask", dir.path(), None).expect("the run resumes");
            }
            let lines = |name: &str| {
                let text = std::fs::read_to_string(dir.path().join(name));
                text.unwrap_or_default().lines().count()
            };
            let (called, allowed) = (lines("asked"), 1 + answered_gates(dir.path()));
            let context = format!("killed at {first} and then at {second}");
            assert!(
                (1..=allowed).contains(&called),
                "{context}: {called} of {allowed}"
            );
            if !is_killed {
                break;
            }
        }
    }
    panic!("it has more than {MAX_POINTS} points");
}

/// Number of gates that were answered.
fn answered_gates(dir: &Path) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let (store, id) = (child::store(dir), "crash".parse().unwrap());
    let archive = store.archive(&id);
    let archive = runtime.unwrap().block_on(archive).unwrap().unwrap();
    let gates = archive.gates.iter();
    gates.filter(|it| !it.status.is_pending()).count()
}

/// Entry point of the child processes, not a test.
#[test]
fn child() {
    if let Ok(name) = std::env::var(child::SCENARIO) {
        child::main(&name);
    }
}

fn kill_everywhere(scenario: &str) -> (u32, u32) {
    let dir = tempfile::tempdir().unwrap();
    let expected = run(scenario, dir.path(), None).expect("the undisturbed run ends");
    assert!(expected.interrupted.is_empty());
    let mut interrupted = 0;
    for point in 0..MAX_POINTS {
        let dir = tempfile::tempdir().unwrap();
        if run(scenario, dir.path(), Some(point)).is_some() {
            return (point, interrupted);
        }
        let actual = run(scenario, dir.path(), None);
        let actual =
            actual.unwrap_or_else(|| panic!("{scenario} does not resume after point {point}"));
        check(scenario, point, &expected, &actual);
        interrupted += u32::from(!actual.interrupted.is_empty());
    }
    panic!("{scenario} has more than {MAX_POINTS} points");
}

fn check(scenario: &str, point: u32, expected: &Report, actual: &Report) {
    let context = format!("{scenario}, killed at {point}");
    let mut once = BTreeSet::new();
    for effect in &actual.effects {
        assert!(once.insert(effect), "{context}: {effect} was repeated");
    }
    assert_eq!(expected.status, actual.status, "{context}");
    let (was, is) = (
        expected.output.as_object().unwrap(),
        actual.output.as_object().unwrap(),
    );
    assert_eq!(was.len(), is.len(), "{context}");
    for (node, value) in was {
        let given = &is[node];
        match (value, given) {
            _ if value == given => {}
            // An item may be interrupted.
            (Value::Array(was), Value::Array(is)) if was.len() == is.len() => {
                // Only items that must not be repeated can be interrupted.
                let once = format!("{node} ");
                let is_once = expected.effects.iter().any(|it| it.starts_with(&once));
                for (was, is) in was.iter().zip(is) {
                    let same = was == is || (is_once && is["code"] == "interrupted");
                    assert!(same, "{context}: {node} gave {is}, not {was}");
                }
            }
            _ => assert!(
                actual.interrupted.contains(node),
                "{context}: {node} gave {given}, not {value}"
            ),
        }
    }
    // Every effect that is not reported as interrupted must have happened.
    for effect in &expected.effects {
        let node = effect.split(' ').next().unwrap_or_default();
        let is_known =
            actual.interrupted.contains(node) || is.get(node).is_some_and(Value::is_array);
        assert!(
            is_known || once.contains(effect),
            "{context}: {effect} never happened"
        );
    }
}

/// Runs a scenario in a child process; `None` if it was killed.
fn run(scenario: &str, dir: &Path, point: Option<u32>) -> Option<Report> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "crash::child", "--nocapture"])
        .env(child::SCENARIO, scenario)
        .env(child::DIR, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    if let Some(point) = point {
        command.env(KILL_AT, point.to_string());
    }
    let status = command.status().unwrap();
    let report = std::fs::read(dir.join("report.json"));
    if !status.success() {
        assert!(report.is_err() && point.is_some(), "{scenario}: {status}");
        return None;
    }
    let report: Value = serde_json::from_slice(&report.unwrap()).unwrap();
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    Some(Report {
        status: report["status"].as_str().unwrap().to_owned(),
        output: report["output"].clone(),
        interrupted: texts(&report["interrupted"]).into_iter().collect(),
        effects: texts(&report["effects"]),
    })
}
