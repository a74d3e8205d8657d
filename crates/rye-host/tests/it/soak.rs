//! The soak: several hosts on one file, people who do what comes into their minds, and
//! SIGKILL, again and again. Afterwards everything that must hold does.
//!
//! All chance comes from one seed, which is printed: `RYE_SOAK_SEED=N` does it again, as
//! far as the machine's own timing lets it.

mod check;
mod dice;
mod host;
mod tools;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dice::Dice;

const SEED: &str = "RYE_SOAK_SEED";
const FOLDER: &str = "RYE_SOAK_FOLDER";
const LIFE: &str = "RYE_SOAK_LIFE";
const STEPS: &str = "RYE_SOAK_STEPS";

/// How many hosts there are at once, and in all.
const AT_ONCE: u64 = 3;
const LIVES: u64 = 36;

/// How long hosts come and go, at most.
const TIME: Duration = Duration::from_secs(12);

/// The life that brings everything to an end.
const LAST: u64 = 999;

#[test]
fn whoever_is_killed_while_whatever_happens_everything_holds_afterwards() {
    let seed = seed();
    println!("{SEED}={seed}");
    let folder = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let killed: u32 = std::thread::scope(|scope| {
        let hosts = |first| {
            let folder = folder.path();
            scope.spawn(move || one_after_the_other(folder, seed, first, start))
        };
        let hosts: Vec<_> = (0..AT_ONCE).map(hosts).collect();
        hosts.into_iter().map(|host| host.join().unwrap()).sum()
    });
    let last = start_host(folder.path(), seed, LAST, 0).wait_with_output();
    let last = last.unwrap();
    let said = String::from_utf8_lossy(&last.stderr);
    assert!(last.status.success(), "{SEED}={seed}: {said}");
    let found = check::check(folder.path());
    println!("{}", found.summary(killed, start.elapsed()));
    if !found.broken.is_empty() {
        let kept = folder.keep();
        let broken = found.broken.join("\n");
        panic!("{SEED}={seed}, kept in {}:\n{broken}", kept.display());
    }
    assert!(killed > 0, "nobody was killed");
}

/// Not a test by itself: the process that is killed.
#[test]
fn child() {
    let Ok(life) = std::env::var(LIFE) else {
        return;
    };
    let number = |name: &str| std::env::var(name).unwrap().parse().unwrap();
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    if life == LAST.to_string() {
        runtime.block_on(host::finish(&folder, number(SEED)));
    } else {
        runtime.block_on(host::live(
            &folder,
            number(SEED),
            number(LIFE),
            number(STEPS),
        ));
    }
    runtime.shutdown_background();
}

fn seed() -> u64 {
    let given = std::env::var(SEED).ok();
    given.map_or_else(
        || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            Dice::new(u64::from(now.subsec_nanos()) ^ now.as_secs()).next() % 1_000_000
        },
        |seed| seed.parse().unwrap(),
    )
}

/// Hosts one after the other: most are killed at a moment of chance, some end by
/// themselves. Tells how many were killed.
fn one_after_the_other(folder: &Path, seed: u64, first: u64, start: Instant) -> u32 {
    let mut killed = 0;
    let lives = (first..LIVES).step_by(usize::try_from(AT_ONCE).unwrap());
    for life in lives.take_while(|_| start.elapsed() < TIME) {
        let mut dice = Dice::of(seed, 500 + life);
        let by_itself = dice.below(4) == 0;
        let steps = if by_itself { 40 } else { u64::MAX };
        let mut host = start_host(folder, seed, life, steps);
        if !by_itself {
            std::thread::sleep(Duration::from_millis(100 + dice.below(1_400)));
            host.kill().unwrap();
            killed += 1;
        }
        let end = host.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&end.stderr);
        let fits = end.status.success() || !by_itself;
        assert!(fits, "{SEED}={seed}, life {life}: {said}");
    }
    killed
}

fn start_host(folder: &Path, seed: u64, life: u64, steps: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "soak::child", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .env(LIFE, life.to_string())
        .env(STEPS, steps.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}
