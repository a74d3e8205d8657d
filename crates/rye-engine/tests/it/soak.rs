//! Soak test: several hosts on one database perform random actions and are killed with SIGKILL.
//! Afterwards, all invariants must hold.
//!
//! All randomness comes from a printed seed. `RYE_SOAK_SEED=N` repeats a run, apart from timing.

mod check;
mod host;
mod rng;
mod tools;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rng::Rng;

const SEED: &str = "RYE_SOAK_SEED";
const DIR: &str = "RYE_SOAK_DIR";
const HOST: &str = "RYE_SOAK_HOST";
const STEPS: &str = "RYE_SOAK_STEPS";

/// Number of concurrent hosts, and of all hosts.
const CONCURRENT_HOSTS: u64 = 3;
const HOSTS: u64 = 36;

/// Time limit for starting hosts.
const TIME_LIMIT: Duration = Duration::from_secs(12);

/// Number of the host that finishes all work.
const LAST_HOST: u64 = 999;

#[test]
fn invariants_hold_after_random_actions_and_kills() {
    let seed = seed();
    println!("{SEED}={seed}");
    let dir = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let killed: u32 = std::thread::scope(|scope| {
        let hosts = |first| {
            let dir = dir.path();
            scope.spawn(move || run_hosts(dir, seed, first, start))
        };
        let hosts: Vec<_> = (0..CONCURRENT_HOSTS).map(hosts).collect();
        hosts.into_iter().map(|host| host.join().unwrap()).sum()
    });
    let last = start_host(dir.path(), seed, LAST_HOST, 0).wait_with_output();
    let last = last.unwrap();
    let stderr = String::from_utf8_lossy(&last.stderr);
    assert!(last.status.success(), "{SEED}={seed}: {stderr}");
    let found = check::check(dir.path());
    println!("{}", found.summary(killed, start.elapsed()));
    if !found.broken.is_empty() {
        let kept = dir.keep();
        let broken = found.broken.join("\n");
        panic!("{SEED}={seed}, kept in {}:\n{broken}", kept.display());
    }
    assert!(killed > 0, "no host was killed");
}

/// Entry point of the child processes; does nothing otherwise.
#[test]
fn child() {
    let Ok(host) = std::env::var(HOST) else {
        return;
    };
    let number = |name: &str| std::env::var(name).unwrap().parse().unwrap();
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    if host == LAST_HOST.to_string() {
        runtime.block_on(host::finish(&dir, number(SEED)));
    } else {
        runtime.block_on(host::run(&dir, number(SEED), number(HOST), number(STEPS)));
    }
    runtime.shutdown_background();
}

fn seed() -> u64 {
    let seed = std::env::var(SEED).ok();
    seed.map_or_else(
        || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            Rng::new(u64::from(now.subsec_nanos()) ^ now.as_secs()).next() % 1_000_000
        },
        |seed| seed.parse().unwrap(),
    )
}

/// Runs hosts one after the other. Most are killed at a random time, some end by themselves.
/// Returns the number of killed hosts.
fn run_hosts(dir: &Path, seed: u64, first: u64, start: Instant) -> u32 {
    let mut killed = 0;
    let lives = (first..HOSTS).step_by(usize::try_from(CONCURRENT_HOSTS).unwrap());
    for host in lives.take_while(|_| start.elapsed() < TIME_LIMIT) {
        let mut rng = Rng::for_stream(seed, 500 + host);
        let by_itself = rng.below(4) == 0;
        let steps = if by_itself { 40 } else { u64::MAX };
        let mut child = start_host(dir, seed, host, steps);
        if !by_itself {
            std::thread::sleep(Duration::from_millis(100 + rng.below(1_400)));
            child.kill().unwrap();
            killed += 1;
        }
        let end = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&end.stderr);
        let fits = end.status.success() || !by_itself;
        assert!(fits, "{SEED}={seed}, host {host}: {stderr}");
    }
    killed
}

fn start_host(dir: &Path, seed: u64, host: u64, steps: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "soak::child", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .env(SEED, seed.to_string())
        .env(HOST, host.to_string())
        .env(STEPS, steps.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}
