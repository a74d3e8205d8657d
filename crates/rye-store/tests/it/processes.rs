//! Several processes that use one database, and killed processes.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use lillux::process::Handle;
use rye_engine::store::{
    Claim, InboxMessage, PostOutcome, SessionFilter, SessionStore, StoreError,
};
use rye_protocol::Batch;
use rye_store::SqliteStore;
use rye_testkit::store_contract::sample::{
    self, append, create_session, eid, message_event, prompt, put_prompt, sid, status_event,
};

/// Environment variables of a child process: its role and its database.
const ROLE: &str = "RYE_STORE_TEST_ROLE";
const FILE: &str = "RYE_STORE_TEST_FILE";

/// A child process that runs this program in a role. Killed when dropped.
struct Helper {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Helper {
    fn start(role: &str, file: &Path) -> Self {
        Self::run(Command::new(env::current_exe().unwrap()), role, file)
    }

    /// Starts the process in its own PID namespace and with another host name, like a container.
    fn start_in_container(role: &str, file: &Path) -> Self {
        let mut command = Command::new("unshare");
        let script = "mount -t proc proc /proc && hostname elsewhere && exec \"$0\" \"$@\"";
        command
            .args(["--pid", "--mount", "--uts", "--fork", "--kill-child"])
            .args(["sh", "-c", script])
            .arg(env::current_exe().unwrap());
        Self::run(command, role, file)
    }

    fn run(mut command: Command, role: &str, file: &Path) -> Self {
        command
            .args(["--exact", "processes::helper_process", "--nocapture"])
            .env(ROLE, role)
            .env(FILE, file)
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// The next line that starts with `> `; the others come from the test harness.
    fn next_line(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            if let Some((_, text)) = line.split_once("> ") {
                return Some(text.trim().to_owned());
            }
            line.clear();
        }
        None
    }

    /// The process in the container.
    fn child_in_container(&self) -> Handle {
        let pid = self.child.id();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(children).unwrap();
        Handle::from_pid(children.trim().parse().unwrap()).unwrap()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn report(line: &str) {
    let mut out = std::io::stdout().lock();
    // One write, so that a killed process leaves no partial line.
    out.write_all(format!("> {line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Entry point of the child processes; does nothing otherwise.
#[test]
fn helper_process() {
    let (Ok(role), Ok(file)) = (env::var(ROLE), env::var(FILE)) else {
        return;
    };
    if let Some(session) = role.strip_prefix("turn ") {
        // All processes start when the test closes their input.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        rye_testkit::store_contract::run(commit_turn(Path::new(&file), session));
        return;
    }
    rye_testkit::store_contract::run(async {
        let store = Arc::new(SqliteStore::open(file).unwrap());
        match role.as_str() {
            "hold" => {
                create_session(&*store, "s").await;
                report("held");
                std::future::pending::<()>().await;
            }
            "post" => {
                let post = InboxMessage::prompt(prompt("s", "q1", 1));
                let posted = store.post(&sid("s"), post).await.unwrap();
                assert_eq!(posted, PostOutcome::Written);
                report("posted");
            }
            "write" => write_forever(&store).await,
            other => unreachable!("{other}"),
        }
    });
}

/// The work of a short-lived process: opens the database, claims a session, posts, commits,
/// reads and closes.
async fn commit_turn(file: &Path, name: &str) {
    let store = SqliteStore::open(file).unwrap();
    let lease = create_session(&store, name).await;
    let prompt = InboxMessage::prompt(prompt(name, "q1", 1));
    store.post(&sid(name), prompt).await.unwrap();
    let entry = sample::entry(name, "e1", None);
    let ops = vec![append(entry.clone()), message_event(&entry)];
    sample::write(&store, &lease, ops).await.unwrap();
    let snapshot = store.snapshot(&sid(name)).await.unwrap().unwrap();
    assert_eq!((snapshot.prompts.len(), snapshot.sequence), (1, 1));
    store.release(&lease).await.unwrap();
}

async fn check_all_turns(file: &Path, count: usize) {
    let store = SqliteStore::open(file).unwrap();
    let filter = SessionFilter {
        limit: usize::MAX,
        ..SessionFilter::default()
    };
    let all = store.sessions(filter).await.unwrap();
    assert_eq!(all.len(), count);
    for session in all {
        let events = store.events(&session.id, 0, usize::MAX).await.unwrap();
        assert_eq!(events.len(), 1, "{}", session.id);
    }
}

#[test]
fn two_hundred_processes_write_to_a_new_database_at_once() {
    const COUNT: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    let start = |number| {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "processes::helper_process"])
            .env(ROLE, format!("turn s{number}"))
            .env(FILE, &file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut all: Vec<_> = (0..COUNT).map(start).collect();
    for child in &mut all {
        drop(child.stdin.take());
    }
    let outputs = all
        .into_iter()
        .map(|child| child.wait_with_output().unwrap());
    let failed: Vec<_> = outputs
        .filter(|output| !output.status.success())
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .collect();
    assert!(failed.is_empty(), "{} failed: {}", failed.len(), failed[0]);
    rye_testkit::store_contract::run(check_all_turns(&file, COUNT));
}

#[test]
fn threads_of_one_process_open_and_write_one_database_at_once() {
    const COUNT: usize = 50;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    let start = Barrier::new(COUNT);
    thread::scope(|scope| {
        for number in 0..COUNT {
            let (file, start) = (&file, &start);
            scope.spawn(move || {
                start.wait();
                rye_testkit::store_contract::run(commit_turn(file, &format!("s{number}")));
            });
        }
    });
    rye_testkit::store_contract::run(check_all_turns(&file, COUNT));
}

const SESSIONS: usize = 8;

/// Writes several sessions concurrently, and reports each acknowledged commit.
async fn write_forever(store: &Arc<SqliteStore>) {
    let mut writers = Vec::new();
    for session in 0..SESSIONS {
        let store = Arc::clone(store);
        writers.push(tokio::spawn(async move {
            let name = format!("s{session}");
            let lease = create_session(&*store, &name).await;
            let mut parent: Option<String> = None;
            for n in 1.. {
                let id = format!("e{n}");
                let entry = sample::entry(&name, &id, parent.as_deref());
                let ops = vec![
                    append(entry.clone()),
                    message_event(&entry),
                    put_prompt(prompt(&name, "q1", n)),
                    status_event(),
                ];
                let sequence = store.commit(&lease, Batch { ops }).await.unwrap();
                assert_eq!(sequence, 2 * n);
                report(&format!("{name} {n}"));
                parent = Some(id);
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

#[test]
fn acknowledged_commits_survive_a_kill() {
    for kill_after in [1, 60, 400] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s.db");
        let mut helper = Helper::start("write", &file);
        let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
        let mut note = |line: String| {
            let (session, n) = line.split_once(' ').unwrap();
            acknowledged.insert(session.to_owned(), n.parse().unwrap());
        };
        for _ in 0..kill_after {
            note(helper.next_line().unwrap());
        }
        helper.kill();
        // Including the lines that were still in the pipe.
        while let Some(line) = helper.next_line() {
            note(line);
        }
        rye_testkit::store_contract::run(check_acknowledged(&file, &acknowledged));
    }
}

async fn check_acknowledged(file: &Path, acknowledged: &BTreeMap<String, u64>) {
    let store = SqliteStore::open(file).unwrap();
    for (name, n) in acknowledged {
        let session = sid(name);
        let snapshot = store.snapshot(&session).await.unwrap().unwrap();
        let written = snapshot.sequence / 2;
        assert!(written >= *n, "{name}: {n} acknowledged, {written} stored");
        // Commits are atomic.
        assert_eq!(snapshot.sequence % 2, 0);
        assert_eq!(snapshot.prompts, [prompt(name, "q1", written)]);
        let leaf = eid(&format!("e{written}"));
        let path = store.path(&session, &leaf).await.unwrap();
        assert_eq!(path.len() as u64, written);
        let events = store.events(&session, 0, usize::MAX).await.unwrap();
        let numbers: Vec<_> = events.iter().filter_map(|event| event.sequence).collect();
        assert_eq!(numbers, (1..=snapshot.sequence).collect::<Vec<_>>());
        // The session can be continued.
        let lease = store.claim(&session, Claim::IfFree).await.unwrap();
        let next = store
            .commit(
                &lease,
                Batch {
                    ops: vec![status_event()],
                },
            )
            .await;
        assert_eq!(next, Ok(snapshot.sequence + 1));
    }
}

#[test]
fn session_of_a_killed_process_can_be_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    let mut helper = Helper::start("hold", &file);
    assert_eq!(helper.next_line().unwrap(), "held");
    rye_testkit::store_contract::run(async {
        let store = SqliteStore::open(&file).unwrap();
        let refused = store.claim(&sid("s"), Claim::IfFree).await;
        let Err(StoreError::InUse { holder, .. }) = refused else {
            unreachable!("{refused:?}");
        };
        let pid = helper.child.id().to_string();
        assert!(
            holder.starts_with(&format!("process {pid} on ")),
            "{holder}"
        );
        helper.kill();
        let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
        assert_eq!(
            sample::write(&store, &lease, vec![status_event()]).await,
            Ok(1)
        );
    });
}

#[test]
fn process_in_another_pid_namespace_holds_its_session_until_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    let mut helper = Helper::start_in_container("hold", &file);
    assert_eq!(helper.next_line().unwrap(), "held");
    rye_testkit::store_contract::run(async {
        let store = SqliteStore::open(&file).unwrap();
        for _ in 0..3 {
            let refused = store.claim(&sid("s"), Claim::IfFree).await;
            let Err(StoreError::InUse { holder, .. }) = refused else {
                unreachable!("{refused:?}");
            };
            assert!(holder.ends_with(" on elsewhere"), "{holder}");
        }
        let process = helper.child_in_container();
        helper.kill();
        assert!(process.wait(None).unwrap());
        let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
        assert_eq!(
            sample::write(&store, &lease, vec![status_event()]).await,
            Ok(1)
        );
    });
    let names = std::fs::read_dir(dir.path()).unwrap();
    let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|it| it.contains("-lease-")).collect();
    assert_eq!(
        left, [""; 0],
        "the lock file of a killed process is removed"
    );
}

#[test]
fn posts_are_announced_to_other_processes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    rye_testkit::store_contract::run(async {
        let store = SqliteStore::open(&file).unwrap();
        create_session(&store, "s").await;
        let mut posts = store.subscribe_posts();
        for round in 0..2 {
            let mut helper = Helper::start("post", &file);
            let post = tokio::time::timeout(Duration::from_mins(1), posts.recv());
            assert_eq!(post.await.unwrap().unwrap(), sid("s"));
            assert_eq!(helper.next_line().unwrap(), "posted");
            let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
            assert_eq!(snapshot.prompts, [prompt("s", "q1", 1)]);
            if round == 0 {
                // The listener survives the removal of the wake file.
                std::fs::remove_file(dir.path().join("s.db-wake")).unwrap();
                let lease = store.claim(&sid("s"), Claim::TakeOver).await.unwrap();
                let remove = rye_protocol::Op::RemovePrompt(sample::prompt_id("q1"));
                sample::write(&store, &lease, vec![remove]).await.unwrap();
            }
        }
    });
}
