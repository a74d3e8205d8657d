//! What every sandbox does, on each of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lillux::path_policy::{PathClass, ProtectedPaths};
use lillux::process::{Handle, Supervisor};
use rye_engine::sandbox::{Exec, ExecObserver, ExecOutput, Sandbox, SandboxError, WalkOptions};
use rye_sandbox::{Local, Virtual};
use tempfile::TempDir;
use tokio::sync::Notify;

#[derive(Default)]
struct Ear {
    processes: Mutex<Vec<String>>,
    text: Mutex<String>,
    heard: Notify,
}

impl ExecObserver for Ear {
    fn on_start(&self, process: &str) {
        self.processes.lock().unwrap().push(process.to_owned());
        self.heard.notify_one();
    }

    fn on_output(&self, text: &str) {
        self.text.lock().unwrap().push_str(text);
        self.heard.notify_one();
    }
}

impl Ear {
    /// Waits for what is printed.
    async fn text(&self) -> String {
        loop {
            let text = self.text.lock().unwrap().clone();
            if !text.is_empty() {
                return text;
            }
            self.heard.notified().await;
        }
    }

    /// Waits for a process and for what it prints, in whichever order they are told.
    async fn both(&self) -> (String, String) {
        loop {
            let text = self.text().await;
            if let Some(process) = self.processes.lock().unwrap().first() {
                return (process.clone(), text);
            }
            self.heard.notified().await;
        }
    }
}

/// Each sandbox, with the folder that one of them works in.
fn each() -> [(Arc<dyn Sandbox>, Option<TempDir>); 2] {
    let folder = tempfile::tempdir().unwrap();
    let (local, folder) = (local(&folder), folder);
    [
        (Arc::new(Virtual::new()), None),
        (Arc::new(local), Some(folder)),
    ]
}

fn local(folder: &TempDir) -> Local {
    Local::new(folder.path(), Supervisor::start().unwrap()).unwrap()
}

fn script(command: &str) -> Exec {
    Exec {
        command: command.to_owned(),
        timeout: Some(Duration::from_mins(1)),
        ..Exec::default()
    }
}

async fn run(sandbox: &dyn Sandbox, exec: Exec) -> ExecOutput {
    sandbox.exec(exec, &Ear::default()).await.unwrap()
}

#[tokio::test]
async fn what_is_written_is_read() {
    for (sandbox, _folder) in each() {
        let long = vec![7; 100_000];
        for bytes in [b"".as_slice(), b"short", b"\xff\0", &long, b"again"] {
            sandbox.write("a/b/c.bin", bytes).await.unwrap();
            assert_eq!(sandbox.read("a/b/c.bin").await.unwrap(), bytes);
            assert_eq!(sandbox.read("./a/../a//b/c.bin").await.unwrap(), bytes);
        }
    }
}

#[tokio::test]
async fn files_and_folders_are_listed_in_order() {
    for (sandbox, _folder) in each() {
        for path in ["d/z", "d/a/x", "d/.h", "d/b"] {
            sandbox.write(path, b"123").await.unwrap();
        }
        for path in ["d", "d/", "./d"] {
            let files = sandbox.list(path).await.unwrap();
            let names: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
            assert_eq!(names, ["d/.h", "d/a", "d/b", "d/z"], "{}", sandbox.kind());
            let told: Vec<_> = files.iter().map(|it| (it.is_dir, it.size)).collect();
            assert_eq!(told, [(false, 3), (true, 0), (false, 3), (false, 3)]);
        }
        let roots = ["", "."];
        for root in roots {
            assert_eq!(sandbox.list(root).await.unwrap()[0].path, "d");
            assert!(sandbox.stat(root).await.unwrap().is_dir);
        }
        let about = sandbox.stat("d/z").await.unwrap();
        assert_eq!((about.path.as_str(), about.size), ("d/z", 3));
    }
}

#[tokio::test]
async fn folders_are_made_and_removed() {
    for (sandbox, _folder) in each() {
        sandbox.mkdir("a/b/c").await.unwrap();
        sandbox.mkdir("a/b/c").await.unwrap();
        sandbox.write("a/b/f", b"x").await.unwrap();
        sandbox.rm("a/b/f").await.unwrap();
        sandbox.rm("a").await.unwrap();
        assert_eq!(sandbox.list("").await.unwrap(), []);
        for root in ["", ".", "x/.."] {
            sandbox.mkdir("x").await.unwrap();
            assert!(sandbox.rm(root).await.is_err(), "{root:?}");
            assert!(sandbox.stat("x").await.is_ok());
        }
    }
}

#[tokio::test]
async fn what_is_not_there_or_is_something_else_is_an_error() {
    for (sandbox, _folder) in each() {
        sandbox.write("file", b"x").await.unwrap();
        sandbox.mkdir("folder").await.unwrap();
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
        unusable(sandbox.read("folder").await.map(drop));
        unusable(sandbox.write("folder", b"x").await);
        unusable(sandbox.write("file/x", b"x").await);
        unusable(sandbox.list("file").await.map(drop));
        unusable(sandbox.mkdir("file").await);
        unusable(sandbox.mkdir("file/x").await);
        unusable(sandbox.read("a\0b").await.map(drop));
        assert_eq!(sandbox.read("file").await.unwrap(), b"x");
    }
}

#[tokio::test]
async fn a_command_prints_and_ends_with_a_number() {
    for (sandbox, _folder) in each() {
        sandbox.write("in.txt", b"b\na\n").await.unwrap();
        let executed = run(&*sandbox, script("sort < in.txt; echo bad >&2; exit 3")).await;
        let expected = ExecOutput {
            stdout: "a\nb\n".into(),
            stderr: "bad\n".into(),
            exit_code: Some(3),
            timed_out: false,
            truncated: false,
        };
        assert_eq!(executed, expected, "{}", sandbox.kind());
        let executed = run(&*sandbox, script("echo 'not closed")).await;
        assert_eq!(executed.exit_code, Some(2), "{}", sandbox.kind());
        let executed = run(&*sandbox, script("no-such-command")).await;
        assert_eq!(executed.exit_code, Some(127), "{}", sandbox.kind());
    }
}

#[tokio::test]
async fn a_command_has_its_folder_its_variables_and_what_it_reads() {
    for (sandbox, _folder) in each() {
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
        assert!(sandbox.exec(exec, &Ear::default()).await.is_err());
    }
}

#[tokio::test]
async fn of_long_output_the_beginning_and_the_end_are_kept() {
    for (sandbox, _folder) in each() {
        let exec = Exec {
            max_output: Some(100),
            ..script("seq 1 100000; seq 1 3 >&2")
        };
        let ear = Ear::default();
        let executed = sandbox.exec(exec, &ear).await.unwrap();
        assert!(executed.truncated, "{}", sandbox.kind());
        assert_eq!(executed.exit_code, Some(0));
        assert!(executed.stdout.starts_with("1\n2\n3\n"));
        assert!(executed.stdout.ends_with("\n99999\n100000\n"));
        assert!(executed.stdout.len() < 200);
        assert_eq!(executed.stderr, "1\n2\n3\n");
        // What nobody keeps nobody is told: a pipe's worth at most.
        assert!(ear.text.lock().unwrap().len() < 100_000);
    }
}

#[tokio::test]
async fn a_command_is_ended_when_its_time_is_up() {
    for (sandbox, _folder) in each() {
        let begun = Instant::now();
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
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}

#[tokio::test]
async fn what_a_command_prints_is_told_while_it_runs() {
    for (sandbox, _folder) in each() {
        let ear = Ear::default();
        let exec = sandbox.exec(script("echo begun; sleep 300"), &ear);
        tokio::select! {
            executed = exec => panic!("{executed:?}"),
            text = ear.text() => assert_eq!(text, "begun\n"),
        }
    }
}

#[tokio::test]
async fn commands_run_at_once() {
    for (sandbox, _folder) in each() {
        let begun = Instant::now();
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
            begun.elapsed() < Duration::from_secs(30),
            "{}",
            sandbox.kind()
        );
    }
}

#[tokio::test]
async fn an_unknown_process_is_ended_without_harm() {
    for (sandbox, _folder) in each() {
        for process in ["", "nonsense", "1:1:00000000", "999999999:1:00000000"] {
            sandbox.kill(process).await;
        }
    }
}

#[tokio::test]
async fn only_the_local_one_lets_paths_lead_out() {
    let sandbox = Virtual::new();
    for path in ["/etc/hostname", "..", "../x", "a/../../x"] {
        let outside = SandboxError::Outside(path.to_owned());
        assert_eq!(sandbox.read(path).await, Err(outside.clone()));
        assert_eq!(sandbox.write(path, b"x").await, Err(outside.clone()));
        assert_eq!(sandbox.list(path).await, Err(outside.clone()));
        assert_eq!(sandbox.rm(path).await, Err(outside.clone()));
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("work")).unwrap();
    std::fs::write(folder.path().join("beside"), "x").unwrap();
    let work = folder.path().join("work");
    let sandbox = Local::new(&work, Supervisor::start().unwrap()).unwrap();
    assert_eq!(sandbox.read("../beside").await.unwrap(), b"x");
    let absolute = folder.path().join("beside");
    assert_eq!(
        sandbox.read(absolute.to_str().unwrap()).await.unwrap(),
        b"x"
    );
    // Even so, it does not saw off the branch that it sits on.
    for above in ["..", work.to_str().unwrap()] {
        assert!(sandbox.rm(above).await.is_err(), "{above}");
    }
    assert!(work.is_dir());
}

#[tokio::test]
async fn the_local_one_refuses_private_directories_by_every_way_to_them() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let [work, keys] = ["work", "user/keys"].map(|it| folder.path().join(it));
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
    let sandbox = Local::new(&work, Supervisor::start().unwrap()).unwrap();
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
        let refused = sandbox.exec(exec, &Ear::default()).await;
        assert_eq!(refused, Err(private.clone()));
        assert_eq!(sandbox.resolve_path(path).await.class, PathClass::Private);
    }
    // What is above a private directory is neither removed nor searched through it.
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
async fn a_file_is_written_only_where_its_path_led_when_it_was_permitted() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let sandbox = local(&folder);
    for name in ["plain", ".git"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let link = folder.path().join("link");
    symlink("plain", &link).unwrap();
    let permitted = sandbox.resolve_path("link/config").await;
    sandbox
        .write_resolved("link/config", &permitted, b"x")
        .await
        .unwrap();
    assert!(folder.path().join("plain/config").exists());
    std::fs::remove_file(&link).unwrap();
    symlink(".git", &link).unwrap();
    let moved = Err(SandboxError::PathChanged("link/config".to_owned()));
    let written = sandbox
        .write_resolved("link/config", &permitted, b"x")
        .await;
    assert_eq!(written, moved);
    assert!(!folder.path().join(".git/config").exists());
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
async fn a_local_program_and_all_that_it_started_end_when_nobody_waits() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = local(&folder);
    let ear = Ear::default();
    let command = "trap '' TERM; (setsid sh -c 'echo $$; exec sleep 300' &); sleep 300";
    let both = async {
        let (process, child) = ear.both().await;
        let child = Handle::from_pid(child.trim().parse().unwrap());
        [process.parse().unwrap(), child.unwrap()]
    };
    let handles: [Handle; 2] = tokio::select! {
        executed = sandbox.exec(script(command), &ear) => panic!("{executed:?}"),
        both = both => both,
    };
    for handle in handles {
        assert!(handle.wait(Some(Duration::from_secs(20))).unwrap());
    }
}

#[tokio::test]
async fn a_process_that_was_written_down_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = local(&folder);
    let ear = Arc::new(Ear::default());
    let run = {
        let (sandbox, ear) = (sandbox.clone(), Arc::clone(&ear));
        tokio::spawn(async move { sandbox.exec(script("echo up; sleep 300"), &*ear).await })
    };
    let (process, _) = ear.both().await;
    sandbox.kill(&process).await;
    let executed = run.await.unwrap().unwrap();
    assert_eq!((executed.exit_code, executed.timed_out), (None, false));
    assert!(!process.parse::<Handle>().unwrap().is_alive().unwrap());
}

#[tokio::test]
async fn a_pipe_or_a_device_does_not_keep_one_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = local(&folder);
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
async fn a_local_program_does_not_see_the_variables_of_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = local(&folder);
    // Cargo sets it for tests.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let executed = run(&sandbox, script("echo $CARGO_MANIFEST_DIR; echo $PATH")).await;
    let path = std::env::var("PATH").unwrap();
    assert_eq!(executed.stdout, format!("\n{path}\n"));
}
