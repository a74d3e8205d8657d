//! The proof that nothing is lost: a real process walks a graph, is killed by SIGKILL before
//! and after every line of its record and every effect of a tool, and another goes on. What
//! comes of it is compared with a walk that nobody disturbed.

#![expect(clippy::expect_used, reason = "tests may panic")]

mod child;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// More points than any scenario has: a walk that is killed for ever ends the test.
const MOST: u32 = 400;

/// What a process that came to its end tells.
struct Told {
    /// How it ended.
    status: String,
    output: Value,
    /// Nodes of which nobody knows whether they did anything.
    interrupted: BTreeSet<String>,
    /// What tools that must not be called twice have done, a line each.
    effects: Vec<String>,
}

#[test]
fn killed_before_and_after_every_line_and_effect_nothing_is_lost_or_done_twice() {
    let mut matrix = String::from("scenario      points  interrupted\n");
    // Those who are killed wait most of the time: for the disk, and to be started.
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
        assert!(points > 4, "{name} has hardly been killed");
    }
    println!("{matrix}");
}

#[test]
fn killed_twice_a_person_is_asked_each_time_before_it_runs_again() {
    for first in 0..MOST {
        let folder = tempfile::tempdir().unwrap();
        if run("ask", folder.path(), Some(first)).is_some() {
            return;
        }
        for second in 0..MOST {
            let folder = tempfile::tempdir().unwrap();
            assert!(run("ask", folder.path(), Some(first)).is_none());
            let is_killed = run("ask", folder.path(), Some(second)).is_none();
            if is_killed {
                run("ask", folder.path(), None).expect("it goes on");
            }
            let lines = |name: &str| {
                let text = std::fs::read_to_string(folder.path().join(name));
                text.unwrap_or_default().lines().count()
            };
            let gates = folder.path().join(".ai/state/graphs/crash/gates");
            let answers = std::fs::read_dir(gates).into_iter().flatten().flatten();
            let answers = answers.filter(|it| it.file_name().to_string_lossy().contains("answer"));
            let (called, allowed) = (lines("asked"), 1 + answers.count());
            let place = format!("killed at {first} and then at {second}");
            assert!(
                (1..=allowed).contains(&called),
                "{place}: {called} of {allowed}"
            );
            if !is_killed {
                break;
            }
        }
    }
    panic!("it has more than {MOST} points");
}

/// Not a test by itself: what the test starts again and again.
#[test]
fn child() {
    if let Ok(name) = std::env::var(child::SCENARIO) {
        child::main(&name);
    }
}

fn kill_everywhere(scenario: &str) -> (u32, u32) {
    let folder = tempfile::tempdir().unwrap();
    let expected = run(scenario, folder.path(), None).expect("it comes to an end by itself");
    assert!(expected.interrupted.is_empty());
    let mut interrupted = 0;
    for point in 0..MOST {
        let folder = tempfile::tempdir().unwrap();
        if run(scenario, folder.path(), Some(point)).is_some() {
            return (point, interrupted);
        }
        let told = run(scenario, folder.path(), None);
        let told = told.unwrap_or_else(|| panic!("{scenario} does not go on after point {point}"));
        check(scenario, point, &expected, &told);
        interrupted += u32::from(!told.interrupted.is_empty());
    }
    panic!("{scenario} has more than {MOST} points");
}

fn check(scenario: &str, point: u32, expected: &Told, told: &Told) {
    let place = format!("{scenario}, killed at {point}");
    let mut once = BTreeSet::new();
    for effect in &told.effects {
        assert!(once.insert(effect), "{place}: {effect} was done twice");
    }
    assert_eq!(expected.status, told.status, "{place}");
    let (was, is) = (
        expected.output.as_object().unwrap(),
        told.output.as_object().unwrap(),
    );
    assert_eq!(was.len(), is.len(), "{place}");
    for (node, value) in was {
        let given = &is[node];
        match (value, given) {
            _ if value == given => {}
            // Of an item that was cut short nobody knows more.
            (Value::Array(was), Value::Array(is)) if was.len() == is.len() => {
                // Only what must not be done twice may be.
                let once = format!("{node} ");
                let is_once = expected.effects.iter().any(|it| it.starts_with(&once));
                for (was, is) in was.iter().zip(is) {
                    let same = was == is || (is_once && is["code"] == "interrupted");
                    assert!(same, "{place}: {node} gave {is}, not {was}");
                }
            }
            _ => assert!(
                told.interrupted.contains(node),
                "{place}: {node} gave {given}, not {value}"
            ),
        }
    }
    // What is not known to have been cut short was done.
    for effect in &expected.effects {
        let node = effect.split(' ').next().unwrap_or_default();
        let is_known = told.interrupted.contains(node) || is.get(node).is_some_and(Value::is_array);
        assert!(
            is_known || once.contains(effect),
            "{place}: {effect} was never done"
        );
    }
}

/// Walks in another process; none where it was killed.
fn run(scenario: &str, folder: &Path, point: Option<u32>) -> Option<Told> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "crash::child", "--nocapture"])
        .env(child::SCENARIO, scenario)
        .env(child::FOLDER, folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    if let Some(point) = point {
        command.env(child::POINT, point.to_string());
    }
    let status = command.status().unwrap();
    let told = std::fs::read(folder.join("told.json"));
    if !status.success() {
        assert!(told.is_err() && point.is_some(), "{scenario}: {status}");
        return None;
    }
    let told: Value = serde_json::from_slice(&told.unwrap()).unwrap();
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    Some(Told {
        status: told["status"].as_str().unwrap().to_owned(),
        output: told["output"].clone(),
        interrupted: texts(&told["interrupted"]).into_iter().collect(),
        effects: texts(&told["effects"]),
    })
}
