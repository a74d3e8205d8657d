//! The proof that nothing is lost: a real process runs a session, is killed by SIGKILL
//! before and after every single commit and every single effect of a tool, and another
//! goes on. What comes of it is compared with a run that nobody disturbed.

#![expect(clippy::expect_used, clippy::print_stdout, reason = "tests may panic")]

mod child;
mod killer;
mod project;
mod scenarios;
mod tools;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use scenarios::{ALL, Scenario};

/// More points than any scenario has: a run that is killed for ever ends the test.
const MOST: u32 = 300;

/// How many scenarios are killed at once.
const WORKERS: usize = 3;

/// What came of killing a scenario everywhere.
#[derive(Default)]
struct Tally {
    points: u32,
    lost: u32,
    duplicated: u32,
    stuck: u32,
}

/// What a process that came to its end tells.
struct Told {
    story: Vec<String>,
    /// How often each effect happened that must not happen twice.
    effects: BTreeMap<String, u32>,
}

#[test]
fn killed_before_and_after_every_commit_and_effect_nothing_is_lost_or_done_twice() {
    let mut matrix =
        String::from("scenario                      points  lost  duplicated  stuck\n");
    // Most of the time is spent waiting for the disk, so several are killed at once.
    let next = AtomicUsize::new(0);
    let results: Vec<_> = thread::scope(|scope| {
        let worker = || {
            let mut done = Vec::new();
            while let Some((at, scenario)) = take(&next) {
                let mut bad = Vec::new();
                done.push((at, kill_everywhere(scenario, &mut bad), bad));
            }
            done
        };
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        let done = workers.into_iter().map(|worker| worker.join().unwrap());
        let mut done: Vec<_> = done.flatten().collect();
        done.sort_by_key(|(at, ..)| *at);
        done
    });
    let mut all_bad = Vec::new();
    for (at, tally, bad) in results {
        all_bad.extend(bad);
        let Tally {
            points,
            lost,
            duplicated,
            stuck,
        } = tally;
        let name = ALL[at].name;
        let _ = writeln!(
            matrix,
            "{name:<29} {points:>6} {lost:>5} {duplicated:>11} {stuck:>6}"
        );
        assert!(points > 4, "{name} has hardly been killed:\n{matrix}");
    }
    println!("{matrix}");
    assert!(all_bad.is_empty(), "{matrix}\n{}", all_bad.join("\n"));
}

fn take(next: &AtomicUsize) -> Option<(usize, &'static Scenario)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    ALL.get(at).map(|scenario| (at, scenario))
}

/// Not a test by itself: what the test starts again and again.
#[test]
fn child() {
    if let Ok(name) = std::env::var(child::SCENARIO) {
        child::main(&name);
    }
}

/// A folder for a scenario, with what it needs.
fn place(scenario: &Scenario) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    if scenario.in_project {
        project::make(folder.path());
    }
    folder
}

fn kill_everywhere(scenario: &Scenario, bad: &mut Vec<String>) -> Tally {
    let mut tally = Tally::default();
    let folder = place(scenario);
    let Run::Ended(expected) = run(scenario, folder.path(), None, Duration::ZERO) else {
        panic!("{} does not come to an end by itself", scenario.name);
    };
    for point in 0..MOST {
        let folder = place(scenario);
        match run(scenario, folder.path(), Some(point), Duration::ZERO) {
            Run::Killed => {}
            Run::Ended(_) => return tally,
            Run::Stuck(told) => {
                tally.stuck += 1;
                bad.push(format!(
                    "{}: stuck before point {point}:\n{told}",
                    scenario.name
                ));
                continue;
            }
        }
        tally.points += 1;
        let at = format!("{} killed at point {point}", scenario.name);
        match run(scenario, folder.path(), None, scenario.down_for) {
            Run::Ended(told) => {
                if told.effects.values().any(|times| *times > 1) {
                    tally.duplicated += 1;
                    bad.push(format!("{at}: done twice: {:?}", told.effects));
                }
                if let Err(why) = scenarios::same(&expected.story, &told.story) {
                    tally.lost += 1;
                    bad.push(format!(
                        "{at}: {why}\nexpected {:#?}\nfound {:#?}",
                        expected.story, told.story
                    ));
                }
            }
            Run::Killed => panic!("{at}: nobody killed the second process, and it died"),
            Run::Stuck(told) => {
                tally.stuck += 1;
                bad.push(format!("{at}: stuck afterwards:\n{told}"));
            }
        }
    }
    panic!("{} has more points than {MOST}", scenario.name);
}

enum Run {
    Ended(Told),
    Killed,
    Stuck(String),
}

/// Runs a scenario in a process of its own, which is killed at a point if one is given.
fn run(scenario: &Scenario, folder: &Path, kill_at: Option<u32>, later: Duration) -> Run {
    use std::os::unix::process::ExitStatusExt as _;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
        .env(child::SCENARIO, scenario.name)
        .env(child::FOLDER, folder)
        .env(child::LATER, later.as_millis().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(point) = kill_at {
        command.env(killer::KILL_AT, point.to_string());
    }
    let output = command.output().unwrap();
    if output.status.signal() == Some(9) {
        return Run::Killed;
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = printed
        .lines()
        .filter_map(|line| line.strip_prefix(child::TOLD))
        .collect();
    if !output.status.success() || lines.is_empty() {
        return Run::Stuck(format!(
            "{printed}{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let mut effects = BTreeMap::new();
    let log = std::fs::read_to_string(folder.join(tools::LOG)).unwrap_or_default();
    for line in log.lines() {
        *effects.entry(line.to_owned()).or_default() += 1;
    }
    let story = lines.into_iter().map(str::to_owned).collect();
    Run::Ended(Told { story, effects })
}
