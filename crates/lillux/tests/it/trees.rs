//! The whole tree dies: every shape of tree, by every way to end.
//!
//! Each shape starts its processes, tells that it is ready, and then stays.
//! All of them carry a mark, by which they are found again through `/proc`.

use std::fs::File;
use std::io::Read;
use std::process::{Command as StdCommand, Stdio};
use std::time::{Duration, Instant};

use crate::support::{MARK, assert_all_end, lillux, mark, marked};
use lillux::process::{Command, Exit, Supervisor};

/// A tree to be ended: its name, the shell script that makes it, and how many
/// marked processes it has. `$READY` tells that it stands. `$MARK` is the mark.
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
        name: "one that ignores TERM",
        script: "trap '' TERM; $READY; while :; do sleep 300; done",
        processes: 2,
    },
    Shape {
        name: "one that left the session",
        script: "setsid sleep 300 & $READY; wait",
        processes: 2,
    },
    Shape {
        name: "one that forked twice and left the session",
        script: "(setsid sleep 300 & ) ; $READY; exec sleep 300",
        processes: 2,
    },
    Shape {
        name: "one that did all of it and ignores TERM",
        script: "(setsid sh -c 'trap \"\" TERM; while :; do sleep 300; done' & ); $READY; exec sleep 300",
        processes: 3,
    },
    Shape {
        name: "one that emptied its environment",
        script: "(setsid env -i sh -c 'sleep 300; :' $MARK & ); $READY; exec sleep 300",
        processes: 2,
    },
    Shape {
        name: "one that is stopped",
        script: "sh -c 'kill -STOP $$; sleep 300' & $READY; exec sleep 300",
        processes: 2,
    },
    Shape {
        name: "sixty of them, in sessions of their own",
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

    /// Counts until all are there: `&` in a shell does not wait for the new
    /// process to have become what it will be.
    fn wait_until_it_stands(&self, mark: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while marked(mark).len() < self.processes {
            assert!(Instant::now() < deadline, "{}: never stood", self.name);
            std::thread::yield_now();
        }
    }
}

#[tokio::test]
async fn every_tree_is_gone_when_a_timeout_has_ended_it() {
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
async fn every_tree_ends_when_the_future_is_dropped() {
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
            _ = is_ready => shape.wait_until_it_stands(&mark),
        }
        drop(running);
        assert_all_end(&mark);
    }
}

#[test]
fn every_tree_ends_when_the_program_that_runs_it_is_killed() {
    for shape in &SHAPES {
        let mark = mark();
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("ready");
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
        shape.wait_until_it_stands(&mark);

        program.kill().unwrap();
        program.wait().unwrap();
        assert_all_end(&mark);
    }
}

#[tokio::test]
async fn what_the_main_process_leaves_behind_is_ended_with_it() {
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
async fn a_process_that_ends_well_on_term_may_say_its_last_words() {
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
async fn ending_one_tree_leaves_the_strays_of_another_alone() {
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
async fn a_keeper_that_is_killed_takes_its_tree_along_and_is_replaced() {
    let supervisor = Supervisor::start().unwrap();
    let mark = mark();
    // The parent of the command is its keeper.
    let script = "(setsid sleep 300 &) ; kill -9 $PPID; sleep 300";
    let error = supervisor
        .exec(Command::new("sh").args(["-c", script]).env(MARK, &mark))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("gone"), "{error}");
    assert_all_end(&mark);

    let output = supervisor
        .exec(Command::new("echo").arg("still here"))
        .await;
    assert_eq!(output.unwrap().stdout.text(), "still here\n");
}

#[tokio::test]
async fn a_warden_that_is_killed_is_replaced() {
    let supervisor = Supervisor::start().unwrap();
    // The parent of the keeper is the warden.
    let script = "kill -9 $(cut -d ' ' -f 4 /proc/$PPID/stat); echo done";
    let kill_it = || Command::new("sh").args(["-c", script]);
    assert!(supervisor.exec(kill_it()).await.unwrap().success());
    // More at once than are idle, so new ones must be had.
    let many = (0..20).map(|_| supervisor.exec(Command::new("sleep").arg("0.2")));
    for output in futures_join(many).await {
        assert!(output.unwrap().success());
    }
}

/// Polls all of them together, as one task.
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
async fn a_keeper_that_is_stopped_is_woken_and_keeps_the_time() {
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
async fn a_warden_that_is_stopped_does_not_stop_the_rest() {
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
    // While it runs, so that the next one needs a keeper of its own.
    tokio::select! {
        output = &mut stops_it => panic!("ended by itself: {output:?}"),
        output = async {
            is_stopped.await.unwrap();
            supervisor.exec(Command::new("echo").arg("still here")).await
        } => assert_eq!(output.unwrap().stdout.text(), "still here\n"),
    }
}

/// Sets `$keeper` and `$warden`, and starts a process that has left the session.
const HELPERS: &str =
    "keeper=$PPID; warden=$(cut -d ' ' -f 4 /proc/$PPID/stat); (setsid sleep 300 &)";

/// What a command can do to one of the processes that supervise it.
const ATTACKS: [&str; 5] = [
    "kill -STOP $keeper",
    "kill -STOP $keeper; (setsid sh -c 'while kill -STOP '$keeper'; do :; done' &)",
    "kill -STOP $warden",
    "kill -KILL $warden",
    "kill -STOP $warden; kill -CONT $warden; kill -STOP $keeper",
];

#[test]
fn killed_program_leaves_nothing_when_its_command_attacked_a_helper() {
    for attack in ATTACKS {
        let mark = mark();
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("ready");
        let made = StdCommand::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let script = format!("{HELPERS}; {attack}; echo > {}; sleep 300", fifo.display());
        // The helpers carry the mark, too: they are forks of the program.
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

/// Stops both helpers without a pause, so that continuing them is of no use.
const FLOOD: &str = "(setsid sh -c 'while kill -STOP '$keeper' '$warden'; do :; done' &)";

#[tokio::test]
async fn shutting_down_ends_a_tree_that_keeps_both_helpers_stopped() {
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
    let began = Instant::now();
    supervisor.shut_down();
    assert!(began.elapsed() < Duration::from_secs(30));
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
fn a_program_that_is_stopped_does_not_prolong_its_command() {
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
async fn one_hop_ahead_is_not_far_enough() {
    // Each process forks the next and exits, so none is there for long.
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
fn another_namespaces_proc_is_not_mistaken_for_ones_own() {
    let output = StdCommand::new("unshare")
        .args(["--map-root-user", "--pid", "--fork"])
        .arg(lillux())
        .args(["exec", "--cmd", "true"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("/proc belongs to another pid namespace"),
        "{text}"
    );
}

#[test]
fn no_zombie_is_left_where_the_first_process_reaps_nobody() {
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
fn a_command_that_kills_or_stops_the_keeper_of_the_binary_gains_nothing() {
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
