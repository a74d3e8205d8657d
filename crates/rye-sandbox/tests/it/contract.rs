//! The behaviour that all sandboxes share, and that of the local one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lillux::path_policy::{PathClass, ProtectedPaths};
use lillux::process::{Handle, Supervisor};
use rye_engine::sandbox::{Exec, ExecObserver, ExecOutput, Sandbox, SandboxError, WalkOptions};
use rye_sandbox::{
    Availability, ConfinedSandbox, ConfinementPolicy, Launcher, LocalSandbox, VirtualSandbox,
};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::remote;

/// Records the events of a command.
#[derive(Default)]
pub(crate) struct Recorder {
    processes: Mutex<Vec<String>>,
    pub(crate) text: Mutex<String>,
    changed: Notify,
}

impl ExecObserver for Recorder {
    fn on_start(&self, process: &str) {
        self.processes.lock().unwrap().push(process.to_owned());
        self.changed.notify_one();
    }

    fn on_output(&self, text: &str) {
        self.text.lock().unwrap().push_str(text);
        self.changed.notify_one();
    }
}

impl Recorder {
    /// Waits for output.
    pub(crate) async fn text(&self) -> String {
        loop {
            let text = self.text.lock().unwrap().clone();
            if !text.is_empty() {
                return text;
            }
            self.changed.notified().await;
        }
    }

    /// Waits for the start of a process and for its output, in any order.
    pub(crate) async fn start_and_output(&self) -> (String, String) {
        loop {
            let text = self.text().await;
            if let Some(process) = self.processes.lock().unwrap().first() {
                return (process.clone(), text);
            }
            self.changed.notified().await;
        }
    }
}

/// All sandboxes, and the directories of those with processes.
async fn sandboxes() -> Vec<(Arc<dyn Sandbox>, Option<TempDir>)> {
    let [first, second, third, fourth, fifth, sixth] =
        [(); 6].map(|()| tempfile::tempdir().unwrap());
    let https = remote::https(Arc::new(local(&third))).await;
    let stdio = remote::stdio(&fourth).await;
    let docker = remote::docker(&fifth).await;
    vec![
        (Arc::new(VirtualSandbox::new()), None),
        (Arc::new(local(&first)), Some(first)),
        (Arc::new(confined(&second)), Some(second)),
        (Arc::new(https), Some(third)),
        (Arc::new(stdio), Some(fourth)),
        (Arc::new(docker), Some(fifth)),
        (Arc::new(reviewed(&sixth)), Some(sixth)),
    ]
}

fn confined(dir: &TempDir) -> ConfinedSandbox {
    confined_in(dir.path())
}

/// A sandbox in review mode. The workspace is a directory in `dir`.
pub(crate) fn reviewed(dir: &TempDir) -> ConfinedSandbox {
    let workspace = dir.path().join("ws");
    std::fs::create_dir_all(&workspace).unwrap();
    let sandbox = confined_in(&workspace);
    sandbox.with_review(&dir.path().join("state")).unwrap()
}

fn confined_in(workspace: &Path) -> ConfinedSandbox {
    let launcher = Launcher::new(env!("CARGO_BIN_EXE_rye-sandbox-launcher"), [] as [&str; 0]);
    let tier = Availability::probe_tier(&launcher).unwrap();
    let supervisor = Supervisor::start().unwrap();
    let policy = ConfinementPolicy::default();
    ConfinedSandbox::new(workspace, supervisor, launcher, tier, policy).unwrap()
}

pub(crate) fn local(dir: &TempDir) -> LocalSandbox {
    LocalSandbox::new(dir.path(), Supervisor::start().unwrap()).unwrap()
}

pub(crate) fn script(command: &str) -> Exec {
    Exec {
        command: command.to_owned(),
        timeout: Some(Duration::from_mins(1)),
        ..Exec::default()
    }
}

async fn run(sandbox: &dyn Sandbox, exec: Exec) -> ExecOutput {
    sandbox.exec(exec, &Recorder::default()).await.unwrap()
}

#[tokio::test]
async fn written_bytes_are_read_back() {
    for (sandbox, _dir) in sandboxes().await {
        let long = vec![7; 100_000];
        for bytes in [b"".as_slice(), b"short", b"\xff\0", &long, b"again"] {
            sandbox.write("a/b/c.bin", bytes).await.unwrap();
            assert_eq!(sandbox.read("a/b/c.bin").await.unwrap(), bytes);
            assert_eq!(sandbox.read("./a/../a//b/c.bin").await.unwrap(), bytes);
        }
    }
}

#[tokio::test]
async fn files_and_directories_are_listed_in_order() {
    for (sandbox, _dir) in sandboxes().await {
        for path in ["d/z", "d/a/x", "d/.h", "d/b"] {
            sandbox.write(path, b"123").await.unwrap();
        }
        for path in ["d", "d/", "./d"] {
            let files = sandbox.list(path).await.unwrap();
            let names: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
            assert_eq!(names, ["d/.h", "d/a", "d/b", "d/z"], "{}", sandbox.kind());
            let found: Vec<_> = files.iter().map(|it| (it.is_dir, it.size)).collect();
            assert_eq!(found, [(false, 3), (true, 0), (false, 3), (false, 3)]);
        }
        let roots = ["", "."];
        for root in roots {
            assert_eq!(sandbox.list(root).await.unwrap()[0].path, "d");
            assert!(sandbox.stat(root).await.unwrap().is_dir);
        }
        let info = sandbox.stat("d/z").await.unwrap();
        assert_eq!((info.path.as_str(), info.size), ("d/z", 3));
    }
}

#[tokio::test]
async fn directories_are_created_and_removed() {
    for (sandbox, _dir) in sandboxes().await {
        sandbox.mkdir("a/b/c").await.unwrap();
        sandbox.mkdir("a/b/c").await.unwrap();
        sandbox.write("a/b/f", b"x").await.unwrap();
        for path in ["a/b", "a/b/f"] {
            assert!(sandbox.rmdir(path).await.is_err(), "{path}");
        }
        let walk = sandbox.walk(&walk("")).await.unwrap();
        let mut directories = walk.directories;
        directories.sort();
        assert_eq!(directories, ["a", "a/b", "a/b/c"]);
        sandbox.rmdir("a/b/c").await.unwrap();
        assert!(sandbox.rmdir("a/b/c").await.is_err());
        sandbox.rm("a/b/f").await.unwrap();
        sandbox.rm("a").await.unwrap();
        assert_eq!(sandbox.list("").await.unwrap(), []);
        for root in ["", ".", "x/.."] {
            sandbox.mkdir("x").await.unwrap();
            assert!(sandbox.rm(root).await.is_err(), "{root:?}");
            assert!(sandbox.rmdir(root).await.is_err(), "{root:?}");
            assert!(sandbox.stat("x").await.is_ok());
        }
    }
}

#[tokio::test]
async fn missing_and_unusable_paths_are_errors() {
    for (sandbox, _dir) in sandboxes().await {
        sandbox.write("file", b"x").await.unwrap();
        sandbox.mkdir("dir").await.unwrap();
        let kind = sandbox.kind();
        let not_found = SandboxError::NotFound("no".to_owned());
        assert_eq!(sandbox.read("no").await, Err(not_found.clone()), "{kind}");
        assert_eq!(sandbox.list("no").await, Err(not_found.clone()), "{kind}");
        assert_eq!(sandbox.stat("no").await, Err(not_found.clone()), "{kind}");
        assert_eq!(sandbox.rm("no").await, Err(not_found), "{kind}");
        let unusable = |outcome: Result<(), SandboxError>| {
            assert!(
                matches!(outcome, Err(SandboxError::Unusable { .. })),
                "{kind} {outcome:?}"
            );
        };
        unusable(sandbox.read("dir").await.map(drop));
        unusable(sandbox.write("dir", b"x").await);
        unusable(sandbox.write("file/x", b"x").await);
        unusable(sandbox.list("file").await.map(drop));
        unusable(sandbox.mkdir("file").await);
        unusable(sandbox.mkdir("file/x").await);
        unusable(sandbox.read("a\0b").await.map(drop));
        assert_eq!(sandbox.read("file").await.unwrap(), b"x");
    }
}

#[tokio::test]
async fn command_returns_its_output_and_exit_code() {
    for (sandbox, _dir) in sandboxes().await {
        sandbox.write("in.txt", b"b\na\n").await.unwrap();
        let executed = run(&*sandbox, script("sort < in.txt; echo bad >&2; exit 3")).await;
        let expected = ExecOutput {
            stdout: "a\nb\n".into(),
            stderr: "bad\n".into(),
            exit_code: Some(3),
            timed_out: false,
            truncated: false,
            ..ExecOutput::default()
        };
        assert_eq!(executed, expected, "{}", sandbox.kind());
        let executed = run(&*sandbox, script("echo 'not closed")).await;
        assert_eq!(executed.exit_code, Some(2), "{}", sandbox.kind());
        let executed = run(&*sandbox, script("no-such-command")).await;
        assert_eq!(executed.exit_code, Some(127), "{}", sandbox.kind());
    }
}

#[tokio::test]
async fn command_has_working_directory_variables_and_input() {
    for (sandbox, _dir) in sandboxes().await {
        sandbox.mkdir("sub").await.unwrap();
        let exec = Exec {
            cwd: Some("sub".into()),
            env: BTreeMap::from([("WHO".into(), "Ada".into())]),
            stdin: b"line\n".to_vec(),
            ..script("cat > $WHO; cat Ada")
        };
        assert_eq!(run(&*sandbox, exec).await.stdout, "line\n");
        assert_eq!(sandbox.read("sub/Ada").await.unwrap(), b"line\n");
        let exec = Exec {
            cwd: Some("missing".into()),
            ..script("true")
        };
        assert!(sandbox.exec(exec, &Recorder::default()).await.is_err());
    }
}

#[tokio::test]
async fn middle_of_long_output_is_dropped() {
    for (sandbox, _dir) in sandboxes().await {
        let exec = Exec {
            max_output: Some(100),
            ..script("seq 1 100000; seq 1 3 >&2")
        };
        let recorder = Recorder::default();
        let executed = sandbox.exec(exec, &recorder).await.unwrap();
        assert!(executed.truncated, "{}", sandbox.kind());
        assert_eq!(executed.exit_code, Some(0));
        assert!(executed.stdout.starts_with("1\n2\n3\n"));
        assert!(executed.stdout.ends_with("\n99999\n100000\n"));
        assert!(executed.stdout.len() < 200);
        assert_eq!(executed.stderr, "1\n2\n3\n");
        // Output beyond the limit is not reported, except for the rest of one read.
        assert!(recorder.text.lock().unwrap().len() < 100_000);
    }
}

#[tokio::test]
async fn timeout_ends_a_command() {
    for (sandbox, _dir) in sandboxes().await {
        let start = Instant::now();
        let exec = Exec {
            timeout: Some(Duration::from_millis(200)),
            ..script("echo a; sleep 300; echo b")
        };
        let executed = run(&*sandbox, exec).await;
        assert!(executed.timed_out, "{}", sandbox.kind());
        assert_eq!(
            (executed.stdout.as_str(), executed.exit_code),
            ("a\n", None)
        );
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}

#[tokio::test]
async fn output_is_reported_while_the_command_runs() {
    for (sandbox, _dir) in sandboxes().await {
        let recorder = Recorder::default();
        let exec = sandbox.exec(script("echo started; sleep 300"), &recorder);
        tokio::select! {
            executed = exec => panic!("{executed:?}"),
            text = recorder.text() => assert_eq!(text, "started\n"),
        }
    }
}

#[tokio::test]
async fn commands_run_concurrently() {
    for (sandbox, _dir) in sandboxes().await {
        let start = Instant::now();
        let runs = (0..20).map(|number| {
            let sandbox = Arc::clone(&sandbox);
            let command = format!("sleep 2; echo {number} > out{number}");
            tokio::spawn(async move { run(&*sandbox, script(&command)).await })
        });
        for run in runs.collect::<Vec<_>>() {
            assert_eq!(run.await.unwrap().exit_code, Some(0));
        }
        assert_eq!(sandbox.list("").await.unwrap().len(), 20);
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{}",
            sandbox.kind()
        );
    }
}

#[tokio::test]
async fn killing_an_unknown_process_has_no_effect() {
    for (sandbox, _dir) in sandboxes().await {
        for process in ["", "nonsense", "1:1:00000000", "999999999:1:00000000"] {
            sandbox.kill(process).await;
        }
    }
}

#[tokio::test]
async fn only_local_allows_paths_outside_the_workspace() {
    let sandbox = VirtualSandbox::new();
    for path in ["/etc/hostname", "..", "../x", "a/../../x"] {
        let outside = SandboxError::Outside(path.to_owned());
        assert_eq!(sandbox.read(path).await, Err(outside.clone()));
        assert_eq!(sandbox.write(path, b"x").await, Err(outside.clone()));
        assert_eq!(sandbox.list(path).await, Err(outside.clone()));
        assert_eq!(sandbox.rm(path).await, Err(outside.clone()));
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    std::fs::write(dir.path().join("beside"), "x").unwrap();
    let work = dir.path().join("work");
    let sandbox = LocalSandbox::new(&work, Supervisor::start().unwrap()).unwrap();
    assert_eq!(sandbox.read("../beside").await.unwrap(), b"x");
    let absolute = dir.path().join("beside");
    assert_eq!(
        sandbox.read(absolute.to_str().unwrap()).await.unwrap(),
        b"x"
    );
    // The workspace itself and its parents cannot be removed.
    for above in ["..", work.to_str().unwrap()] {
        assert!(sandbox.rm(above).await.is_err(), "{above}");
    }
    assert!(work.is_dir());
}

#[tokio::test]
async fn local_rejects_private_directories_through_any_path() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let [work, keys] = ["work", "user/keys"].map(|it| dir.path().join(it));
    std::fs::create_dir_all(work.join("sub")).unwrap();
    std::fs::create_dir_all(&keys).unwrap();
    std::fs::write(keys.join("key"), "secret").unwrap();
    symlink("../user/keys", work.join("keys")).unwrap();
    symlink("../../user", work.join("sub/up")).unwrap();
    std::fs::hard_link(keys.join("key"), work.join("hard")).unwrap();
    let protected = ProtectedPaths {
        private: vec![keys.clone()],
        homes: Vec::new(),
    };
    let sandbox = LocalSandbox::new(&work, Supervisor::start().unwrap()).unwrap();
    let sandbox = sandbox.protected(protected, &work);
    let absolute = keys.join("key").display().to_string();
    let through_proc = format!("/proc/self/root{absolute}");
    let paths = [
        "keys/key",
        "keys/new/deep",
        "keys",
        "sub/up/keys/key",
        "../user/keys/key",
        "hard",
        &absolute,
        &through_proc,
    ];
    for path in paths {
        let private = SandboxError::Private(path.to_owned());
        assert_eq!(sandbox.read(path).await, Err(private.clone()));
        assert_eq!(sandbox.write(path, b"x").await, Err(private.clone()));
        assert_eq!(sandbox.list(path).await, Err(private.clone()));
        assert_eq!(sandbox.stat(path).await, Err(private.clone()));
        assert_eq!(sandbox.mkdir(path).await, Err(private.clone()));
        assert_eq!(sandbox.rm(path).await, Err(private.clone()));
        assert_eq!(sandbox.walk(&walk(path)).await, Err(private.clone()));
        let many = sandbox.read_many(&[path.to_owned()], 100).await;
        assert_eq!(many, [Err(private.clone())]);
        let exec = Exec {
            cwd: Some(path.to_owned()),
            ..script("true")
        };
        let refused = sandbox.exec(exec, &Recorder::default()).await;
        assert_eq!(refused, Err(private.clone()));
        assert_eq!(sandbox.resolve_path(path).await.class, PathClass::Private);
    }
    // A parent of a private directory cannot be removed, and a walk skips the private directory.
    assert!(sandbox.rm("../user").await.is_err());
    let found = sandbox.walk(&walk("..")).await.unwrap().files;
    let names: Vec<_> = found.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(names, ["../work/hard"]);
    let listed = sandbox.list("").await.unwrap();
    let names: Vec<_> = listed.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(names, ["sub"]);
    assert_eq!(std::fs::read(keys.join("key")).unwrap(), b"secret");
    assert_eq!(std::fs::read_dir(&keys).unwrap().count(), 1);
}

#[tokio::test]
async fn write_resolved_fails_if_the_path_changed() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let sandbox = local(&dir);
    for name in ["plain", ".git"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let link = dir.path().join("link");
    symlink("plain", &link).unwrap();
    let permitted = sandbox.resolve_path("link/config").await;
    sandbox
        .write_resolved("link/config", &permitted, b"x")
        .await
        .unwrap();
    assert!(dir.path().join("plain/config").exists());
    std::fs::remove_file(&link).unwrap();
    symlink(".git", &link).unwrap();
    let moved = Err(SandboxError::PathChanged("link/config".to_owned()));
    let written = sandbox
        .write_resolved("link/config", &permitted, b"x")
        .await;
    assert_eq!(written, moved);
    assert!(!dir.path().join(".git/config").exists());
}

fn walk(path: &str) -> WalkOptions {
    WalkOptions {
        path: path.to_owned(),
        hidden: true,
        ignored: true,
        max_files: 100,
        time_limit: Duration::from_mins(1),
    }
}

#[tokio::test]
async fn dropping_the_future_ends_a_local_command_and_its_descendants() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = local(&dir);
    let recorder = Recorder::default();
    let command = "trap '' TERM; (setsid sh -c 'echo $$; exec sleep 300' &); sleep 300";
    let both = async {
        let (process, child) = recorder.start_and_output().await;
        let child = Handle::from_pid(child.trim().parse().unwrap());
        [process.parse().unwrap(), child.unwrap()]
    };
    let handles: [Handle; 2] = tokio::select! {
        executed = sandbox.exec(script(command), &recorder) => panic!("{executed:?}"),
        both = both => both,
    };
    for handle in handles {
        assert!(handle.wait(Some(Duration::from_secs(20))).unwrap());
    }
}

#[tokio::test]
async fn kill_ends_a_recorded_process() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = local(&dir);
    let recorder = Arc::new(Recorder::default());
    let run = {
        let (sandbox, recorder) = (sandbox.clone(), Arc::clone(&recorder));
        tokio::spawn(async move { sandbox.exec(script("echo up; sleep 300"), &*recorder).await })
    };
    let (process, _) = recorder.start_and_output().await;
    sandbox.kill(&process).await;
    let executed = run.await.unwrap().unwrap();
    assert_eq!((executed.exit_code, executed.timed_out), (None, false));
    assert!(!process.parse::<Handle>().unwrap().is_alive().unwrap());
}

#[tokio::test]
async fn pipes_and_devices_do_not_block() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = local(&dir);
    assert_eq!(
        run(&sandbox, script("mkfifo pipe")).await.exit_code,
        Some(0)
    );
    for path in ["pipe", "/dev/zero"] {
        assert!(sandbox.read(path).await.is_err(), "{path}");
    }
    assert!(sandbox.write("pipe", b"x").await.is_err());
}

#[tokio::test]
async fn local_command_does_not_inherit_all_variables() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = local(&dir);
    // Cargo sets it for tests.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let executed = run(&sandbox, script("echo $CARGO_MANIFEST_DIR; echo $PATH")).await;
    let path = std::env::var("PATH").unwrap();
    assert_eq!(executed.stdout, format!("\n{path}\n"));
}
