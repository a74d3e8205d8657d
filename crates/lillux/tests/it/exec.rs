//! Running commands: input, output, environment and results.

use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use lillux::cas::Cas;
use lillux::process::{
    Command, Environment, ExecError, Exit, LaunchError, Output, Overflow, Stream, Supervisor,
};

async fn exec(command: Command<'_>) -> Result<Output, ExecError> {
    Supervisor::start().unwrap().exec(command).await
}

async fn shell(script: &str) -> Output {
    exec(Command::new("sh").args(["-c", script])).await.unwrap()
}

#[tokio::test]
async fn output_contains_both_streams_and_the_exit_code() {
    let output = shell("echo out; echo err >&2; exit 3").await;
    assert_eq!(output.stdout.text(), "out\n");
    assert_eq!(output.stderr.text(), "err\n");
    assert_eq!(output.exit, Exit::Code(3));
    assert!(!output.success() && !output.timed_out);
}

#[tokio::test]
async fn signal_differs_from_an_exit_code() {
    let output = shell("kill -SEGV $$").await;
    assert_eq!(output.exit, Exit::Signal(11));
    assert_eq!(output.exit.return_code(), Some(-11));
}

#[tokio::test]
async fn arguments_are_passed_unchanged() {
    let hostile = [
        "", " ", "a b", "$(id)", "`id`", "'", "\"", "\\", "*", "-n", "ü\n", "${HOME}",
    ];
    let output = exec(Command::new("printf").arg("%s|").args(hostile))
        .await
        .unwrap();
    assert_eq!(output.stdout.text(), hostile.join("|") + "|");
}

#[tokio::test]
async fn ten_thousand_arguments_are_passed() {
    let args = (0..10_000).map(|number| format!("argument-{number}"));
    let output = exec(Command::new("sh").args(["-c", "echo $#", "sh"]).args(args))
        .await
        .unwrap();
    assert_eq!(output.stdout.text(), "10000\n");
}

#[tokio::test]
async fn oversized_arguments_are_rejected() {
    let huge = "x".repeat(200_000);
    let error = exec(Command::new("true").arg(huge)).await.unwrap_err();
    assert!(matches!(
        error,
        ExecError::Launch(LaunchError::TooLong { .. })
    ));
}

#[tokio::test]
async fn input_of_any_size_is_passed_through() {
    for size in [0, 1, 200_000, 30_000_000] {
        let bytes: Vec<u8> = (0..=255).cycle().take(size).collect();
        let command = Command::new("cat")
            .stdin(bytes.clone())
            .output_limit(usize::MAX);
        let output = exec(command).await.unwrap();
        assert!(output.stdout.bytes == bytes, "{size}");
        assert_eq!(output.stdout.total, size as u64);
        assert!(!output.stdout.is_truncated());
    }
}

#[tokio::test]
async fn unread_input_does_not_block() {
    let command = Command::new("sh")
        .args(["-c", "exec <&-; sleep 0.2; echo done"])
        .stdin(vec![0; 1 << 30]);
    assert_eq!(exec(command).await.unwrap().stdout.text(), "done\n");

    let command = Command::new("sleep")
        .arg("300")
        .stdin(vec![0; 1 << 30])
        .timeout(Duration::from_millis(300));
    assert!(exec(command).await.unwrap().timed_out);
}

#[tokio::test]
async fn standard_input_can_be_a_pipe() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::thread::spawn(move || {
        for _ in 0..1000 {
            std::io::Write::write_all(&mut writer, &[b'x'; 10_000]).unwrap();
        }
    });
    let command = Command::new("wc").arg("-c").stdin_fd(OwnedFd::from(reader));
    assert_eq!(
        exec(command).await.unwrap().stdout.text().trim(),
        "10000000"
    );
}

#[tokio::test]
async fn standard_output_can_be_a_pipe_and_ends_when_the_process_closes_it() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let (input, finish) = std::io::pipe().unwrap();
    let command = Command::new("sh")
        .args(["-c", "echo out; echo err >&2; exec >&-; read -r _"])
        .stdin_fd(OwnedFd::from(input))
        .stdout_fd(OwnedFd::from(writer));
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        // The process may end only now, after its output has ended.
        drop(finish);
        text
    });
    let output = exec(command).await.unwrap();
    assert_eq!(read.await.unwrap(), "out\n");
    assert_eq!(output.stdout.total, 0);
    assert_eq!(output.stderr.text(), "err\n");
    assert_eq!(
        output.exit,
        Exit::Code(1),
        "`read` reaches the end of its input"
    );
}

#[tokio::test]
async fn binary_output_is_captured_exactly() {
    let output = shell(r"printf '\000\377\376ok'").await;
    assert_eq!(output.stdout.bytes, b"\x00\xff\xfeok");
    assert_eq!(output.stdout.text(), "\0\u{fffd}\u{fffd}ok");
}

#[tokio::test]
async fn output_beyond_the_limit_is_stored_completely() {
    let dir = tempfile::tempdir().unwrap();
    let store = Cas::open(dir.path()).unwrap();
    let command = Command::new("sh")
        .args(["-c", "seq 100000; seq 9 >&2"])
        .output_limit(1000)
        .spill_to(store.clone());
    let output = exec(command).await.unwrap();
    let numbers: Vec<_> = (1..=100_000).map(|number| number.to_string()).collect();
    let all = numbers.join("\n") + "\n";
    assert_eq!(output.stdout.bytes, all.as_bytes()[..1000]);
    assert_eq!(output.stdout.total, all.len() as u64);
    let Some(Overflow::Stored(hash)) = &output.stdout.overflow else {
        panic!("{:?}", output.stdout.overflow);
    };
    assert_eq!(store.get(hash).unwrap(), all.as_bytes());
    assert!(output.stderr.overflow.is_none());
}

#[tokio::test]
async fn output_beyond_the_limit_is_counted_without_a_store() {
    let command = Command::new("seq").arg("100000").output_limit(10);
    let output = exec(command).await.unwrap();
    assert_eq!(output.stdout.bytes, b"1\n2\n3\n4\n5\n");
    assert_eq!(output.stdout.total, 588_895);
    assert!(matches!(output.stdout.overflow, Some(Overflow::Dropped)));

    let exact = Command::new("printf").arg("0123456789").output_limit(10);
    assert!(!exec(exact).await.unwrap().stdout.is_truncated());
}

#[tokio::test]
async fn failing_store_is_reported_and_does_not_disturb_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let store = Cas::open(&root).unwrap();
    fs::remove_dir_all(&root).unwrap();
    fs::write(&root, "in the way").unwrap();
    let command = Command::new("sh")
        .args(["-c", "seq 100000; exit 5"])
        .output_limit(10)
        .spill_to(store);
    let output = exec(command).await.unwrap();
    assert_eq!(output.exit, Exit::Code(5));
    assert!(matches!(output.stdout.overflow, Some(Overflow::Failed(_))));
}

#[tokio::test]
async fn cancelled_command_stores_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Cas::open(dir.path()).unwrap();
    let supervisor = Supervisor::start().unwrap();
    let (much, is_much) = tokio::sync::oneshot::channel();
    let (mut much, mut seen) = (Some(much), 0);
    let command = Command::new("yes")
        .output_limit(10)
        .spill_to(store.clone())
        .on_output(move |_, bytes| {
            seen += bytes.len();
            if seen > 1_000_000 {
                much.take().map(|much| much.send(()));
            }
        });
    tokio::select! {
        output = supervisor.exec(command) => panic!("ended by itself: {output:?}"),
        _ = is_much => {}
    }
    // A blocking thread may still write; it has finished when the temporary file is gone.
    let writer_is_done = || {
        let temporary = fs::read_dir(dir.path().join("tmp"));
        temporary.map_or(0, Iterator::count) == 0
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !writer_is_done() && Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    assert!(writer_is_done());
    let report = store.verify_all().unwrap();
    assert_eq!((report.blobs, report.objects), (0, 0));
}

#[tokio::test]
async fn output_callback_runs_while_the_command_runs() {
    let dir = tempfile::tempdir().unwrap();
    let answer = dir.path().join("answer");
    let script = format!(
        "echo question; while ! [ -e {0} ]; do sleep 0.01; done; echo thanks >&2",
        answer.display()
    );
    let mut pieces = Vec::new();
    let command = Command::new("sh")
        .args(["-c", &script])
        .timeout(Duration::from_secs(30))
        .on_output(|stream, bytes| {
            pieces.push((stream, String::from_utf8_lossy(bytes).into_owned()));
            fs::write(&answer, "").unwrap();
        });
    assert!(exec(command).await.unwrap().success());
    assert_eq!(
        pieces,
        [
            (Stream::Stdout, "question\n".to_owned()),
            (Stream::Stderr, "thanks\n".to_owned())
        ]
    );
}

#[tokio::test]
async fn start_callback_gets_the_handle_before_the_command_ends() {
    let mut started = None;
    let command = Command::new("sh")
        .args(["-c", "echo $$; sleep 0.2"])
        .on_start(|handle| started = Some((handle.clone(), handle.is_alive().unwrap())));
    let output = exec(command).await.unwrap();
    let (handle, was_alive) = started.unwrap();
    assert!(was_alive);
    assert_eq!(output.stdout.text(), format!("{}\n", handle.pid()));
    assert!(!handle.is_alive().unwrap());
}

#[tokio::test]
async fn environment_is_inherited_minimal_or_exact() {
    let env = |environment| {
        Command::new("/usr/bin/env")
            .environment(environment)
            .env("ADDED", "yes")
    };
    let names = |output: Output| -> Vec<String> {
        let text = output.stdout.text().into_owned();
        text.lines()
            .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
            .collect()
    };
    let exact = names(exec(env(Environment::Exact)).await.unwrap());
    assert_eq!(exact, ["ADDED"]);
    let inherited = names(exec(env(Environment::Inherit)).await.unwrap());
    assert!(inherited.contains(&"CARGO_MANIFEST_DIR".to_owned()));
    assert!(inherited.contains(&"ADDED".to_owned()));
    let minimal = names(exec(env(Environment::Minimal)).await.unwrap());
    assert!(minimal.contains(&"PATH".to_owned()) && minimal.contains(&"ADDED".to_owned()));
    assert!(!minimal.iter().any(|name| name.starts_with("CARGO")));
}

#[tokio::test]
async fn program_is_looked_up_in_its_own_path() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("greet");
    fs::write(&program, "#!/bin/sh\necho from $0\n").unwrap();
    let set_mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
    };
    let greet = || Command::new("greet").env("PATH", format!("/nowhere:{}", dir.path().display()));
    set_mode(0o644);
    let error = exec(greet()).await.unwrap_err();
    assert!(matches!(
        error,
        ExecError::Launch(LaunchError::NotFound { .. })
    ));
    set_mode(0o755);
    let output = exec(greet()).await.unwrap();
    assert_eq!(
        output.stdout.text(),
        format!("from {}\n", program.display())
    );

    let relative = Command::new("./greet").cwd(dir.path());
    assert_eq!(
        exec(relative).await.unwrap().stdout.text(),
        "from ./greet\n"
    );
}

#[tokio::test]
async fn working_directory_defaults_to_the_callers() {
    let output = exec(Command::new("pwd").arg("-P")).await.unwrap();
    let here = std::env::current_dir().unwrap();
    assert_eq!(Path::new(output.stdout.text().trim()), here);

    let dir = tempfile::Builder::new()
        .prefix("with space ü")
        .tempdir()
        .unwrap();
    let output = exec(Command::new("pwd").cwd(dir.path())).await.unwrap();
    assert_eq!(Path::new(output.stdout.text().trim()), dir.path());
}

#[tokio::test]
async fn process_inherits_no_descriptors_signals_or_terminal() {
    let output =
        shell("ls -l /proc/self/fd | wc -l; grep -E '^Sig(Blk|Ign)' /proc/self/status").await;
    let text = output.stdout.text();
    let lines: Vec<_> = text.lines().collect();
    // Three streams, the directory that `ls` reads, and the line "total".
    assert_eq!(lines[0].trim(), "5");
    for line in &lines[1..3] {
        assert!(line.ends_with("0000000000000000"), "{line}");
    }
    let session = shell("cut -d' ' -f 7 /proc/self/stat").await;
    assert_eq!(session.stdout.text().trim(), "0", "it has a terminal");
}

#[tokio::test]
async fn concurrent_commands_do_not_mix_up_their_results() {
    let supervisor = Supervisor::start().unwrap();
    let mut running = tokio::task::JoinSet::new();
    for number in 0..64 {
        let supervisor = supervisor.clone();
        running.spawn(async move {
            let script = format!("(setsid sleep 300 &); cat; echo {number} >&2; exit {number}");
            let command = Command::new("sh")
                .args(["-c", &script])
                .stdin(format!("in {number}"));
            (number, supervisor.exec(command).await.unwrap())
        });
    }
    while let Some(joined) = running.join_next().await {
        let (number, output) = joined.unwrap();
        assert_eq!(output.exit, Exit::Code(number));
        assert_eq!(output.stdout.text(), format!("in {number}"));
        assert_eq!(output.stderr.text(), format!("{number}\n"));
    }
}

#[tokio::test]
async fn dropped_supervisor_leaves_no_processes() {
    let supervisor = Supervisor::start().unwrap();
    let parents = "cut -d' ' -f 4 /proc/$PPID/stat; echo $PPID";
    let output = supervisor
        .exec(Command::new("sh").args(["-c", parents]))
        .await
        .unwrap();
    let text = output.stdout.text();
    let pids: Vec<_> = text.lines().collect();
    let helpers: Vec<_> = pids
        .iter()
        .map(|pid| lillux::process::Handle::from_pid(pid.parse().unwrap()).unwrap())
        .collect();
    assert_eq!(helpers.len(), 2);
    drop(supervisor);
    for handle in helpers {
        assert!(handle.wait(Some(Duration::from_secs(10))).unwrap());
    }
    // Not as zombies either.
    let deadline = Instant::now() + Duration::from_secs(10);
    while pids.iter().any(|pid| Path::new("/proc").join(pid).exists()) {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn slow_output_callback_does_not_delay_the_timeout() {
    let slow = |_: Stream, _: &[u8]| {
        let until = Instant::now() + Duration::from_millis(5);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    };
    let command = Command::new("yes")
        .on_output(slow)
        .timeout(Duration::from_millis(300));
    let output = exec(command).await.unwrap();
    assert!(output.timed_out);
    assert!(
        output.duration < Duration::from_secs(5),
        "{:?}",
        output.duration
    );
}

#[test]
fn both_streams_are_stored_with_one_blocking_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let command = Command::new("sh")
        .args(["-c", "seq 300000; seq 300000 >&2"])
        .output_limit(10)
        .spill_to(Cas::open(dir.path()).unwrap())
        .timeout(Duration::from_mins(1));
    let output = runtime.block_on(exec(command)).unwrap();
    assert!(output.success());
    for stream in [&output.stdout, &output.stderr] {
        assert!(matches!(stream.overflow, Some(Overflow::Stored(_))));
    }
}

#[tokio::test]
async fn writer_outside_the_tree_does_not_block_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    // A process outside the tree writes endlessly to the command's standard output.
    let script = format!("echo $$ > {}; echo mine; exec sleep 0.3", fifo.display());
    let path = fifo.clone();
    let outsider = std::thread::spawn(move || {
        let pid = fs::read_to_string(path).unwrap();
        let stream = format!("exec > /proc/{}/fd/1; exec yes", pid.trim());
        std::process::Command::new("sh")
            .args(["-c", &stream])
            .spawn()
            .unwrap()
    });
    let output = exec(Command::new("sh").args(["-c", &script]))
        .await
        .unwrap();
    let mut outsider = outsider.join().unwrap();
    outsider.kill().unwrap();
    outsider.wait().unwrap();
    assert!(output.success());
    assert!(
        output.duration < Duration::from_secs(10),
        "{:?}",
        output.duration
    );
}

#[tokio::test]
async fn timeout_beyond_the_clock_counts_as_none() {
    let command = Command::new("echo")
        .arg("hi")
        .timeout(Duration::MAX)
        .grace(Duration::MAX);
    assert!(exec(command).await.unwrap().success());
    let nothing = exec(Command::new("sleep").arg("300").timeout(Duration::ZERO));
    assert!(nothing.await.unwrap().timed_out);
}

#[tokio::test]
async fn supervisor_for_one_command_can_run_several() {
    let supervisor = Supervisor::for_one_command().unwrap();
    let echo = |word: &'static str| supervisor.exec(Command::new("echo").arg(word));
    let (one, two, three) = tokio::join!(echo("one"), echo("two"), echo("three"));
    for (output, word) in [(one, "one\n"), (two, "two\n"), (three, "three\n")] {
        assert_eq!(output.unwrap().stdout.text(), word);
    }
}

/// The reaper of the first command may still be ending when the second one starts.
#[tokio::test]
async fn sequential_commands_never_use_a_reaper_that_is_ending() {
    for _ in 0..50 {
        let supervisor = Supervisor::for_one_command().unwrap();
        for word in ["one", "two", "three"] {
            let output = supervisor.exec(Command::new("echo").arg(word)).await;
            assert_eq!(output.unwrap().stdout.text().trim(), word);
        }
        supervisor.shut_down();
    }
}

#[test]
fn exec_future_is_send() {
    fn assert_send<T: Send>(_: &T) {}
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let supervisor = Supervisor::start().unwrap();
    let future = supervisor.exec(Command::new("true"));
    assert_send(&future);
    assert!(runtime.block_on(future).unwrap().success());
}
