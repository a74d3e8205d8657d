//! Process trees are ended completely: every shape of tree, by every way to end it.
//!
//! Each shape starts its processes, reports that it is ready, and then sleeps. All processes carry
//! a mark, by which they are found in `/proc`.

use std::fs::File;
use std::io::Read;
use std::process::{Command as StdCommand, Stdio};
use std::time::{Duration, Instant};

use crate::support::{MARK, assert_all_end, lillux, mark, marked};
use lillux::process::{Command, ExecError, Exit, Supervisor};

/// A tree to end: its name, the shell script that creates it, and the number of its marked
/// processes. The script runs `$READY` when the tree is complete. `$MARK` is the mark.
struct Shape {
    name: &'static str,
    script: &'static str,
    processes: usize,
}

const SHAPES: [Shape; 8] = [
    Shape {
        name: "one process",
        script: "$READY; exec sleep 300",
        processes: 1,
    },
    Shape {
        name: "ignores TERM",
        script: "trap '' TERM; $READY; while :; do sleep 300; done",
        processes: 2,
    },
    Shape {
        name: "left the session",
        script: "setsid sleep 300 & $READY; wait",
        processes: 2,
    },
    Shape {
        name: "forked twice and left the session",
        script: "(setsid sleep 300 & ) ; $READY; exec sleep 300",
        processes: 2,
    },
    Shape {
        name: "forked twice, left the session and ignores TERM",
        script: "(setsid sh -c 'trap \"\" TERM; while :; do sleep 300; done' & ); $READY; exec sleep 300",
        processes: 3,
    },
    Shape {
        name: "cleared its environment",
        script: "(setsid env -i sh -c 'sleep 300; :' $MARK & ); $READY; exec sleep 300",
        processes: 2,
    },
    Shape {
        name: "stopped",
        script: "sh -c 'kill -STOP $$; sleep 300' & $READY; exec sleep 300",
        processes: 2,
    },
    Shape {
        name: "sixty processes in new sessions",
        script: "for i in $(seq 20); do (setsid sh -c 'sleep 300 & sleep 300' &); done; $READY; exec sleep 300",
        processes: 61,
    },
];

impl Shape {
    fn script(&self, ready: &str, mark: &str) -> String {
        self.script.replace("$READY", ready).replace("$MARK", mark)
    }

    fn command(&self, ready: &str, mark: &str) -> Command<'static> {
        Command::new("sh")
            .args(["-c", &self.script(ready, mark)])
            .env(MARK, mark)
            .grace(Duration::from_millis(300))
    }

    /// Waits until all processes exist: `&` in a shell does not wait for the exec of the new
    /// process.
    fn wait_until_complete(&self, mark: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while marked(mark).len() < self.processes {
            assert!(Instant::now() < deadline, "{}: incomplete", self.name);
            std::thread::yield_now();
        }
    }
}

#[tokio::test]
async fn timeout_ends_every_tree() {
    let supervisor = Supervisor::start().unwrap();
    for shape in &SHAPES {
        let mark = mark();
        let command = shape.command("echo ready", &mark);
        let output = supervisor
            .exec(command.timeout(Duration::from_secs(2)))
            .await
            .unwrap();
        assert_eq!(marked(&mark), [], "{}", shape.name);
        assert!(output.timed_out, "{}", shape.name);
        assert!(!output.success(), "{}", shape.name);
        assert_eq!(output.stdout.text(), "ready\n", "{}", shape.name);
        assert_eq!(output.survivors, 0, "{}", shape.name);
        assert!(matches!(output.exit, Exit::Signal(_)), "{}", shape.name);
    }
}

#[tokio::test]
async fn dropping_the_future_ends_every_tree() {
    let supervisor = Supervisor::start().unwrap();
    for shape in &SHAPES {
        let mark = mark();
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let mut ready = Some(ready);
        let command = shape.command("echo ready", &mark).on_output(move |_, _| {
            ready.take().map(|ready| ready.send(()));
        });
        let mut running = Box::pin(supervisor.exec(command));
        tokio::select! {
            output = &mut running => panic!("{}: ended by itself: {output:?}", shape.name),
            _ = is_ready => shape.wait_until_complete(&mark),
        }
        drop(running);
        assert_all_end(&mark);
    }
}

#[test]
fn killing_the_host_ends_every_tree() {
    for shape in &SHAPES {
        let mark = mark();
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("ready");
        assert!(
            StdCommand::new("mkfifo")
                .arg(&fifo)
                .status()
                .unwrap()
                .success()
        );
        let script = shape.script(&format!("echo > {}", fifo.display()), &mark);
        let mut program = StdCommand::new(lillux())
            .args([
                "exec", "--grace", "0.3", "--cmd", "sh", "--arg", "-c", "--arg", &script,
            ])
            .env(MARK, &mark)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        File::open(&fifo)
            .unwrap()
            .read_to_end(&mut Vec::new())
            .unwrap();
        shape.wait_until_complete(&mark);

        program.kill().unwrap();
        program.wait().unwrap();
        assert_all_end(&mark);
    }
}

#[tokio::test]
async fn descendants_end_with_the_main_process() {
    let supervisor = Supervisor::start().unwrap();
    for (name, script) in [
        ("in its group", "sleep 300 &"),
        ("in another session", "setsid sleep 300 &"),
        ("forked twice", "(setsid sleep 300 &)"),
        ("holding no stream", "(setsid sleep 300 >&- 2>&- <&- &)"),
        (
            "ignoring TERM",
            "(setsid sh -c 'trap \"\" TERM; while :; do sleep 300; done' &)",
        ),
    ] {
        let mark = mark();
        let command = Command::new("sh")
            .args(["-c", &format!("{script}\necho done; exit 7")])
            .env(MARK, &mark)
            .grace(Duration::from_millis(300))
            .timeout(Duration::from_mins(1));
        let output = supervisor.exec(command).await.unwrap();
        assert_eq!(marked(&mark), [], "{name}");
        assert_eq!(output.exit, Exit::Code(7), "{name}");
        assert_eq!(output.stdout.text(), "done\n", "{name}");
        assert!(!output.timed_out, "{name}");
    }
}

#[tokio::test]
async fn output_after_sigterm_is_captured() {
    let supervisor = Supervisor::start().unwrap();
    let script = "trap 'echo goodbye; exit 0' TERM; while :; do sleep 0.01; done";
    let output = supervisor
        .exec(
            Command::new("sh")
                .args(["-c", script])
                .timeout(Duration::from_secs(3))
                .grace(Duration::from_secs(20)),
        )
        .await
        .unwrap();
    assert_eq!(output.stdout.text(), "goodbye\n");
    assert_eq!(output.exit, Exit::Code(0));
    assert!(output.timed_out && !output.success());
}

#[tokio::test]
async fn ending_one_tree_does_not_affect_another() {
    let supervisor = Supervisor::start().unwrap();
    let (ended, staying) = (mark(), mark());
    let with_stray = |mark: &str| {
        Command::new("sh")
            .args(["-c", "(setsid sleep 300 &) ; sleep 300"])
            .env(MARK, mark)
    };
    let both = async {
        let timeout = Duration::from_millis(500);
        let output = supervisor.exec(with_stray(&ended).timeout(timeout)).await;
        assert!(output.unwrap().timed_out);
        assert_eq!(marked(&ended), []);
        assert_eq!(marked(&staying).len(), 3);
    };
    tokio::select! {
        output = supervisor.exec(with_stray(&staying)) => panic!("ended by itself: {output:?}"),
        () = both => {}
    }
    assert_all_end(&staying);
}

#[tokio::test]
async fn killed_reaper_ends_its_tree_and_is_replaced() {
    let supervisor = Supervisor::start().unwrap();
    let mark = mark();
    // The parent of the command is its reaper.
    let script = "(setsid sleep 300 &) ; kill -9 $PPID; sleep 300";
    let error = supervisor
        .exec(Command::new("sh").args(["-c", script]).env(MARK, &mark))
        .await
        .unwrap_err();
    assert!(matches!(error, ExecError::Supervision(_)), "{error}");
    assert_all_end(&mark);

    let output = supervisor
        .exec(Command::new("echo").arg("still here"))
        .await;
    assert_eq!(output.unwrap().stdout.text(), "still here\n");
}

#[tokio::test]
async fn killed_fork_server_is_replaced() {
    let supervisor = Supervisor::start().unwrap();
    // The parent of the reaper is the fork server.
    let script = "kill -9 $(cut -d ' ' -f 4 /proc/$PPID/stat); echo done";
    let kill_it = || Command::new("sh").args(["-c", script]);
    assert!(supervisor.exec(kill_it()).await.unwrap().success());
    // More commands than idle reapers, so new reapers are needed.
    let many = (0..20).map(|_| supervisor.exec(Command::new("sleep").arg("0.2")));
    for output in futures_join(many).await {
        assert!(output.unwrap().success());
    }
}

/// Polls all futures in one task.
async fn futures_join<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(move |context| {
        for (future, output) in &mut futures {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if futures.iter().all(|(_, output)| output.is_some()) {
            let done = futures.iter_mut().filter_map(|(_, output)| output.take());
            return std::task::Poll::Ready(done.collect());
        }
        std::task::Poll::Pending
    })
    .await
}

#[tokio::test]
async fn stopped_reaper_is_continued_and_enforces_the_timeout() {
    let supervisor = Supervisor::start().unwrap();
    let mark = mark();
    let command = Command::new("sh")
        .args(["-c", "kill -STOP $PPID; echo stopped it; sleep 300"])
        .env(MARK, &mark)
        .timeout(Duration::from_secs(3));
    let output = supervisor.exec(command).await.unwrap();
    assert!(output.timed_out);
    assert_eq!(output.stdout.text(), "stopped it\n");
    assert_eq!(marked(&mark), []);
}

#[tokio::test]
async fn stopped_fork_server_does_not_block_other_commands() {
    let supervisor = Supervisor::start().unwrap();
    let (stopped, is_stopped) = tokio::sync::oneshot::channel();
    let mut stopped = Some(stopped);
    let script = "kill -STOP $(cut -d ' ' -f 4 /proc/$PPID/stat); echo stopped it; sleep 300";
    let mut stops_it = Box::pin(
        supervisor.exec(
            Command::new("sh")
                .args(["-c", script])
                .on_output(move |_, _| {
                    stopped.take().map(|stopped| stopped.send(()));
                }),
        ),
    );
    // While it runs, so that the next command needs another reaper.
    tokio::select! {
        output = &mut stops_it => panic!("ended by itself: {output:?}"),
        output = async {
            is_stopped.await.unwrap();
            supervisor.exec(Command::new("echo").arg("still here")).await
        } => assert_eq!(output.unwrap().stdout.text(), "still here\n"),
    }
}

/// Sets `$reaper` and `$fork_server`, and starts a process that has left the session.
const HELPERS: &str =
    "reaper=$PPID; fork_server=$(cut -d ' ' -f 4 /proc/$PPID/stat); (setsid sleep 300 &)";

/// Attacks of a command on one of the processes that supervise it.
const ATTACKS: [&str; 5] = [
    "kill -STOP $reaper",
    "kill -STOP $reaper; (setsid sh -c 'while kill -STOP '$reaper'; do :; done' &)",
    "kill -STOP $fork_server",
    "kill -KILL $fork_server",
    "kill -STOP $fork_server; kill -CONT $fork_server; kill -STOP $reaper",
];

#[test]
fn killed_host_leaves_no_process_after_an_attack_on_a_helper() {
    for attack in ATTACKS {
        let mark = mark();
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("ready");
        let made = StdCommand::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let script = format!("{HELPERS}; {attack}; echo > {}; sleep 300", fifo.display());
        // The helpers also carry the mark, since they are forks of the host.
        let mut program = StdCommand::new(lillux())
            .args(["exec", "--grace", "0.3", "--cmd", "sh", "--arg", "-c"])
            .args(["--arg", &script])
            .env(MARK, &mark)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = Vec::new();
        File::open(&fifo).unwrap().read_to_end(&mut ready).unwrap();
        program.kill().unwrap();
        program.wait().unwrap();
        assert_all_end(&mark);
    }
}

/// Stops both helpers in a loop, so that continuing them has no effect.
const FLOOD: &str = "(setsid sh -c 'while kill -STOP '$reaper' '$fork_server'; do :; done' &)";

#[tokio::test]
async fn shutdown_ends_a_tree_that_keeps_both_helpers_stopped() {
    let supervisor = Supervisor::start().unwrap();
    let mark = mark();
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let mut ready = Some(ready);
    let script = format!("{HELPERS}; {FLOOD}; echo ready; sleep 300");
    let command = Command::new("sh")
        .args(["-c", &script])
        .env(MARK, &mark)
        .grace(Duration::from_millis(300))
        .on_output(move |_, _| {
            ready.take().map(|ready| ready.send(()));
        });
    let mut running = Box::pin(supervisor.exec(command));
    tokio::select! {
        output = &mut running => panic!("ended by itself: {output:?}"),
        _ = is_ready => {}
    }
    drop(running);
    let start = Instant::now();
    supervisor.shut_down();
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_all_end(&mark);
}

#[tokio::test]
async fn timeout_ends_a_tree_that_keeps_both_helpers_stopped() {
    let supervisor = Supervisor::start().unwrap();
    let mark = mark();
    let command = Command::new("sh")
        .args(["-c", &format!("{HELPERS}; {FLOOD}; sleep 300")])
        .env(MARK, &mark)
        .grace(Duration::from_millis(300))
        .timeout(Duration::from_secs(1));
    let outcome = tokio::time::timeout(Duration::from_secs(30), supervisor.exec(command)).await;
    assert!(outcome.is_ok(), "the command outlives its timeout");
    assert_all_end(&mark);
}

#[test]
fn stopped_host_does_not_prolong_its_command() {
    let mark = mark();
    let mut program = StdCommand::new(lillux())
        .args([
            "exec",
            "--timeout",
            "0.5",
            "--cmd",
            "sh",
            "--arg",
            "-c",
            "--arg",
        ])
        .args(["exec env $0=x sleep 300", "--arg", &mark])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let sleeps = |handle: &&lillux::process::Handle| {
        std::fs::read_to_string(format!("/proc/{}/comm", handle.pid()))
            .is_ok_and(|name| name == "sleep\n")
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    let command = loop {
        let all = marked(&mark);
        if let Some(command) = all.iter().find(sleeps) {
            break command.clone();
        }
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    };
    let pid = rustix::process::Pid::from_child(&program);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    assert!(command.wait(Some(Duration::from_secs(20))).unwrap());
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(124));
}

#[tokio::test]
async fn processes_that_fork_and_exit_quickly_are_caught() {
    // Each process forks the next one and exits, so none exists for long.
    let hopper = "import os, signal\n\
                  signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                  os.setsid() if os.fork() == 0 else os.wait()\n\
                  while True:\n\
                  \x20   if os.fork(): os._exit(0)\n";
    let supervisor = Supervisor::start().unwrap();
    let mark = mark();
    let command = Command::new("python3")
        .args(["-c", hopper])
        .env(MARK, &mark)
        .grace(Duration::from_millis(100))
        .timeout(Duration::from_secs(2));
    let output = supervisor.exec(command).await.unwrap();
    assert_eq!(output.survivors, 0);
    assert_eq!(marked(&mark), []);
}

#[test]
fn proc_of_another_pid_namespace_is_rejected() {
    let output = StdCommand::new("unshare")
        .args(["--map-root-user", "--pid", "--fork"])
        .arg(lillux())
        .args(["exec", "--cmd", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["error"]["code"], "supervisor", "{report}");
}

#[test]
fn no_zombie_is_left_under_an_init_that_does_not_reap() {
    let script = "import os, subprocess, sys\n\
                  for _ in range(5): subprocess.run([sys.argv[1], 'exec', '--cmd', 'true'], stdout=subprocess.DEVNULL, check=True)\n\
                  print([p for p in os.listdir('/proc') if p.isdigit()])\n";
    let output = StdCommand::new("unshare")
        .args(["--map-root-user", "--pid", "--fork", "--mount-proc"])
        .args(["python3", "-c", script, lillux()])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text,
        "['1']\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn command_that_kills_or_stops_its_reaper_is_ended() {
    for (signal, code) in [("KILL", 1), ("STOP", 124)] {
        let mark = mark();
        let script = format!("(setsid sleep 300 &); sleep 300 & kill -{signal} $PPID; sleep 300");
        let status = StdCommand::new(lillux())
            .args([
                "exec",
                "--timeout",
                "1",
                "--cmd",
                "sh",
                "--arg",
                "-c",
                "--arg",
                &script,
            ])
            .env(MARK, &mark)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(code), "{signal}");
        assert_eq!(marked(&mark), [], "{signal}");
    }
}
