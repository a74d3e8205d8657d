//! A program for tests that runs commands in the confined sandbox, and is its own launcher.
//!
//! `rye-sandbox-launcher run TIER WORKSPACE COMMAND…` runs a command; `RYE_TEST_LIMITS=1` sets low
//! limits, `RYE_TEST_PRIVATE=PATH` hides a path, `RYE_TEST_NETWORK` is a network policy. `sandbox
//! serve --stdio --sandbox KIND --workspace DIR` serves a sandbox, as `rye` does.
//!
//! `rye-sandbox-launcher review STATE WORKSPACE …` works in review mode: `run COMMAND` runs a
//! command, `changes` prints the changes, and `approve` and `deny` decide about them. There,
//! `RYE_TEST_KILL_AT=N` kills the process at the Nth step, and `RYE_TEST_WRITE_AT=N` writes to a
//! file of the workspace. Every other call is one of the launcher.

#![expect(clippy::unwrap_used, reason = "a test program may panic")]

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lillux::path_policy::ProtectedPaths;
use lillux::process::{Exit, Supervisor};
use rye_engine::protocol::Selection;
use rye_engine::review::{ChangeReview, ReviewDecision, Settled, set_hash};
use rye_engine::sandbox::{Exec, ExecObserver, Sandbox};
use rye_sandbox::{
    Availability, ConfinedSandbox, ConfinementPolicy, Launcher, LocalSandbox, ResourceLimits,
    SandboxServer, ServeOptions, SystemResolver, Tier,
};
use zeroize::Zeroizing;

/// Serves a sandbox on the standard streams.
fn serve(arguments: &[OsString]) -> ExitCode {
    let (kind, workspace) = (arguments[4].to_str().unwrap(), &arguments[6]);
    let supervisor = Supervisor::start().unwrap();
    let sandbox: Arc<dyn Sandbox> = if kind == "local" {
        Arc::new(LocalSandbox::new(workspace, supervisor).unwrap())
    } else {
        let launcher = Launcher::new(std::env::current_exe().unwrap(), [] as [&str; 0]);
        let tier = Availability::probe_tier(&launcher).unwrap();
        let policy = ConfinementPolicy::default();
        let built = ConfinedSandbox::new(workspace, supervisor, launcher, tier, policy);
        Arc::new(built.unwrap())
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = SandboxServer::new(sandbox, ServeOptions::default());
        let served = server.serve_stdio(tokio::io::stdin(), tokio::io::stdout());
        served.await.unwrap();
    });
    runtime.shutdown_background();
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.first().and_then(|it| it.to_str()) {
        Some("run") => {}
        Some("review") => return review(&arguments[1..]),
        Some("sandbox") => return serve(&arguments),
        _ => return rye_sandbox::launch(arguments),
    }
    let command = arguments.split_off(3);
    let tier = match arguments[1].to_str() {
        Some("full") => Tier::Full,
        _ => Tier::Landlock,
    };
    let mut policy = ConfinementPolicy::default();
    if std::env::var_os("RYE_TEST_LIMITS").is_some() {
        policy.limits = ResourceLimits {
            processes: Some(400),
            memory_mib: Some(64),
            file_size_mib: Some(8),
            open_files: Some(64),
            cpu_percent: None,
        };
    }
    if let Some(paths) = std::env::var_os("RYE_TEST_READ") {
        let paths = std::env::split_paths(&paths);
        policy.read = paths.map(|it| it.to_string_lossy().into_owned()).collect();
    }
    if let Some(network) = std::env::var_os("RYE_TEST_NETWORK") {
        policy.network = serde_json::from_str(network.to_str().unwrap()).unwrap();
    }
    let supervisor = Supervisor::start().unwrap();
    let launcher = Launcher::new(std::env::current_exe().unwrap(), [] as [&str; 0]);
    let sandbox = ConfinedSandbox::new(&arguments[2], supervisor, launcher, tier, policy).unwrap();
    let private = std::env::var_os("RYE_TEST_PRIVATE").map(PathBuf::from);
    let protected = ProtectedPaths {
        private: private.into_iter().collect(),
        ..ProtectedPaths::default()
    };
    let sandbox = sandbox.protected(protected, &arguments[2]);
    let secret = |name: &str| Ok(Zeroizing::new(format!("value of {name}")));
    let sandbox = sandbox.lookups(Arc::new(SystemResolver), Arc::new(secret));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stdin = io::stdin().as_fd().try_clone_to_owned().unwrap();
    let stdout = io::stdout().as_fd().try_clone_to_owned().unwrap();
    let on_stderr = |bytes: &[u8]| io::stderr().write_all(bytes).unwrap();
    let ran = runtime.block_on(sandbox.run_attached(command, stdin, stdout, on_stderr));
    match ran.unwrap().exit {
        Exit::Code(code) => ExitCode::from(u8::try_from(code).unwrap()),
        Exit::Signal(signal) => ExitCode::from(u8::try_from(128 + signal).unwrap()),
        Exit::Unknown => ExitCode::from(99),
    }
}

struct Discard;

impl ExecObserver for Discard {
    fn on_start(&self, _: &str) {}
    fn on_output(&self, _: &str) {}
}

/// The step at which a test wants something to happen.
fn step(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

fn review(arguments: &[OsString]) -> ExitCode {
    let (state, workspace) = (PathBuf::from(&arguments[0]), PathBuf::from(&arguments[1]));
    let supervisor = Supervisor::start().unwrap();
    let launcher = Launcher::new(std::env::current_exe().unwrap(), [] as [&str; 0]);
    let policy = ConfinementPolicy::default();
    let sandbox =
        ConfinedSandbox::new(&workspace, supervisor, launcher, Tier::Full, policy).unwrap();
    let passed = AtomicU32::new(0);
    let (kill_at, write_at) = (step("RYE_TEST_KILL_AT"), step("RYE_TEST_WRITE_AT"));
    let checkpoint = move || {
        let number = Some(passed.fetch_add(1, Ordering::SeqCst));
        if number == write_at {
            std::fs::write(workspace.join("kept.txt"), "mine\n").unwrap();
        }
        if number == kill_at {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
    };
    let sandbox = sandbox.with_review_checkpoints(&state, Box::new(checkpoint));
    let sandbox = sandbox.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let code = runtime.block_on(async {
        let review = sandbox.review().unwrap();
        if arguments[2] == "run" {
            let command = arguments[3].to_str().unwrap().to_owned();
            let exec = Exec {
                command,
                ..Exec::default()
            };
            let output = sandbox.exec(exec, &Discard).await.unwrap();
            io::stdout().write_all(output.stdout.as_bytes()).unwrap();
            io::stderr().write_all(output.stderr.as_bytes()).unwrap();
            return u8::try_from(output.exit_code.unwrap()).unwrap();
        }
        if arguments[2] == "changes" {
            let changes = review.changes().await.unwrap();
            let text = serde_json::json!({ "set": changes.set, "diff": changes.diff });
            io::stdout().write_all(text.to_string().as_bytes()).unwrap();
            return 0;
        }
        settle(review, arguments[2] == "approve").await
    });
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// Decides as the engine does, also after a restart. The exit code is 0 if the decision took
/// effect, and 3 if the changes or the workspace differ.
async fn settle(review: &dyn ChangeReview, is_approved: bool) -> u8 {
    if review.settlement("decision").await.unwrap().is_some() {
        return 0;
    }
    let changes = review.changes().await.unwrap();
    let decision = ReviewDecision {
        key: "decision".to_owned(),
        hash: set_hash(&changes.set),
        apply: is_approved.then(Selection::default),
        contents: Vec::new(),
    };
    match review.settle(&decision).await.unwrap() {
        Settled::Done(_) => 0,
        Settled::Outdated => 3,
    }
}
