//! Crash test: a process runs a session and is killed with SIGKILL before and after every commit
//! and every tool effect; another process continues. The result is compared with an undisturbed
//! run.

#![expect(clippy::expect_used, clippy::print_stdout, reason = "tests may panic")]

mod child;
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

/// More kill points than any scenario has, so that the test terminates.
const MAX_POINTS: u32 = 300;

/// Number of scenarios that run in parallel.
const WORKERS: usize = 3;

/// Results of a scenario over all kill points.
#[derive(Default)]
struct Tally {
    points: u32,
    lost: u32,
    duplicated: u32,
    stuck: u32,
}

/// The output of a process that ended by itself.
struct Report {
    transcript: Vec<String>,
    /// Number of occurrences of each effect.
    effects: BTreeMap<String, u32>,
}

#[test]
fn killing_at_any_point_loses_nothing_and_repeats_no_effect() {
    let mut matrix =
        String::from("scenario                      points  lost  duplicated  stuck\n");
    // In parallel, because the processes mostly wait for the disk.
    let next = AtomicUsize::new(0);
    let results: Vec<_> = thread::scope(|scope| {
        let worker = || {
            let mut done = Vec::new();
            while let Some((at, scenario)) = next_scenario(&next) {
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

fn next_scenario(next: &AtomicUsize) -> Option<(usize, &'static Scenario)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    ALL.get(at).map(|scenario| (at, scenario))
}

/// Entry point of the child processes; does nothing otherwise.
#[test]
fn child() {
    if let Ok(name) = std::env::var(child::SCENARIO) {
        child::main(&name);
    }
}

/// Creates the directory of a scenario.
fn create_dir(scenario: &Scenario) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    if scenario.in_project {
        project::create(dir.path());
    }
    dir
}

fn kill_everywhere(scenario: &Scenario, bad: &mut Vec<String>) -> Tally {
    let mut tally = Tally::default();
    let dir = create_dir(scenario);
    let Run::Ended(expected) = run(scenario, dir.path(), None, Duration::ZERO) else {
        panic!("{} does not end by itself", scenario.name);
    };
    for point in 0..MAX_POINTS {
        let dir = create_dir(scenario);
        match run(scenario, dir.path(), Some(point), Duration::ZERO) {
            Run::Killed => {}
            Run::Ended(_) => return tally,
            Run::Stuck(report) => {
                tally.stuck += 1;
                bad.push(format!(
                    "{}: stuck before point {point}:\n{report}",
                    scenario.name
                ));
                continue;
            }
        }
        tally.points += 1;
        let at = format!("{} killed at point {point}", scenario.name);
        match run(scenario, dir.path(), None, scenario.down_for) {
            Run::Ended(report) => {
                if report.effects.values().any(|times| *times > 1) {
                    tally.duplicated += 1;
                    bad.push(format!("{at}: done twice: {:?}", report.effects));
                }
                if let Err(error) = scenarios::compare(&expected.transcript, &report.transcript) {
                    tally.lost += 1;
                    bad.push(format!(
                        "{at}: {error}\nexpected {:#?}\nfound {:#?}",
                        expected.transcript, report.transcript
                    ));
                }
            }
            Run::Killed => panic!("{at}: the second process died without being killed"),
            Run::Stuck(report) => {
                tally.stuck += 1;
                bad.push(format!("{at}: stuck afterwards:\n{report}"));
            }
        }
    }
    panic!("{} has more points than {MAX_POINTS}", scenario.name);
}

enum Run {
    Ended(Report),
    Killed,
    Stuck(String),
}

/// Runs a scenario in a child process, which is killed at a point if given.
fn run(scenario: &Scenario, dir: &Path, kill_at: Option<u32>, clock_offset: Duration) -> Run {
    use std::os::unix::process::ExitStatusExt as _;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
        .env(child::SCENARIO, scenario.name)
        .env(child::DIR, dir)
        .env(child::CLOCK_OFFSET, clock_offset.as_millis().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(point) = kill_at {
        command.env(rye_testkit::wrapped_store::KILL_AT, point.to_string());
    }
    let output = command.output().unwrap();
    if output.status.signal() == Some(9) {
        return Run::Killed;
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = printed
        .lines()
        .filter_map(|line| line.strip_prefix(child::REPORT_PREFIX))
        .collect();
    if !output.status.success() || lines.is_empty() {
        return Run::Stuck(format!(
            "{printed}{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let mut effects = BTreeMap::new();
    let log = std::fs::read_to_string(dir.join(tools::LOG)).unwrap_or_default();
    for line in log.lines() {
        *effects.entry(line.to_owned()).or_default() += 1;
    }
    let transcript = lines.into_iter().map(str::to_owned).collect();
    Run::Ended(Report {
        transcript,
        effects,
    })
}
