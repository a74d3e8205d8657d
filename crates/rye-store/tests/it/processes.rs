//! Several processes on one file, and what becomes of it when one is killed.

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
use rye_store_contract::sample::{
    self, append, begin, eid, prompt, put_prompt, sid, told, told_of,
};

/// What a second process is to do, and with which file.
const ROLE: &str = "RYE_STORE_TEST_ROLE";
const FILE: &str = "RYE_STORE_TEST_FILE";

/// A second process: this very program, in another role. Killed when it is dropped.
struct Second {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Second {
    fn start(role: &str, file: &Path) -> Self {
        Self::run(Command::new(env::current_exe().unwrap()), role, file)
    }

    /// Where it cannot be seen, nor what it is called there: as in a container.
    fn start_unseen(role: &str, file: &Path) -> Self {
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
            .args(["--exact", "processes::second_process", "--nocapture"])
            .env(ROLE, role)
            .env(FILE, file)
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Self { child, says }
    }

    /// The next line for us; the test harness has some of its own.
    fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.says.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.split_once("> ") {
                return Some(said.trim().to_owned());
            }
            line.clear();
        }
        None
    }

    /// The process that it has started, as it is seen from here.
    fn within(&self) -> Handle {
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

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    // In one piece, so that a kill cuts off no line in the middle that looks whole.
    out.write_all(format!("> {what}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// The second process of the other tests; by itself it has nothing to do.
#[test]
fn second_process() {
    let (Ok(role), Ok(file)) = (env::var(ROLE), env::var(FILE)) else {
        return;
    };
    if let Some(session) = role.strip_prefix("turn ") {
        // All begin at once: when the test closes their input.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        rye_store_contract::run(commit_turn(Path::new(&file), session));
        return;
    }
    rye_store_contract::run(async {
        let store = Arc::new(SqliteStore::open(file).unwrap());
        match role.as_str() {
            "hold" => {
                begin(&*store, "s").await;
                say("held");
                std::future::pending::<()>().await;
            }
            "post" => {
                let post = InboxMessage::Prompt(Box::new(prompt("s", "q1", 1)));
                let posted = store.post(&sid("s"), post).await.unwrap();
                assert_eq!(posted, PostOutcome::Written);
                say("posted");
            }
            "write" => write_for_ever(&store).await,
            other => unreachable!("{other}"),
        }
    });
}

/// What a short-lived process does with the database: it opens it, claims a session, posts to
/// it, commits, reads, and closes it.
async fn commit_turn(file: &Path, name: &str) {
    let store = SqliteStore::open(file).unwrap();
    let lease = begin(&store, name).await;
    let prompt = InboxMessage::Prompt(Box::new(prompt(name, "q1", 1)));
    store.post(&sid(name), prompt).await.unwrap();
    let entry = sample::entry(name, "e1", None);
    let ops = vec![append(entry.clone()), told_of(&entry)];
    sample::write(&store, &lease, ops).await.unwrap();
    let record = store.snapshot(&sid(name)).await.unwrap().unwrap();
    assert_eq!((record.prompts.len(), record.sequence), (1, 1));
    store.release(&lease).await.unwrap();
}

async fn has_all_turns(file: &Path, count: usize) {
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
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    let start = |number| {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "processes::second_process"])
            .env(ROLE, format!("turn s{number}"))
            .env(FILE, &file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut all: Vec<_> = (0..COUNT).map(start).collect();
    for it in &mut all {
        drop(it.stdin.take());
    }
    let ends = all.into_iter().map(|it| it.wait_with_output().unwrap());
    let failed: Vec<_> = ends
        .filter(|end| !end.status.success())
        .map(|end| String::from_utf8_lossy(&end.stdout).into_owned())
        .collect();
    assert!(failed.is_empty(), "{} failed: {}", failed.len(), failed[0]);
    rye_store_contract::run(has_all_turns(&file, COUNT));
}

#[test]
fn threads_of_one_process_open_and_write_one_database_at_once() {
    const COUNT: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    let start = Barrier::new(COUNT);
    thread::scope(|scope| {
        for number in 0..COUNT {
            let (file, start) = (&file, &start);
            scope.spawn(move || {
                start.wait();
                rye_store_contract::run(commit_turn(file, &format!("s{number}")));
            });
        }
    });
    rye_store_contract::run(has_all_turns(&file, COUNT));
}

const SESSIONS: usize = 8;

/// Several sessions at once; each commit is said when it is acknowledged.
async fn write_for_ever(store: &Arc<SqliteStore>) {
    let mut writers = Vec::new();
    for session in 0..SESSIONS {
        let store = Arc::clone(store);
        writers.push(tokio::spawn(async move {
            let name = format!("s{session}");
            let lease = begin(&*store, &name).await;
            let mut parent: Option<String> = None;
            for n in 1.. {
                let id = format!("e{n}");
                let entry = sample::entry(&name, &id, parent.as_deref());
                let ops = vec![
                    append(entry.clone()),
                    told_of(&entry),
                    put_prompt(prompt(&name, "q1", n)),
                    told(),
                ];
                let sequence = store.commit(&lease, Batch { ops }).await.unwrap();
                assert_eq!(sequence, 2 * n);
                say(&format!("{name} {n}"));
                parent = Some(id);
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_in_the_middle() {
    for kill_after in [1, 60, 400] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("s.db");
        let mut second = Second::start("write", &file);
        let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
        let mut note = |line: String| {
            let (session, n) = line.split_once(' ').unwrap();
            acknowledged.insert(session.to_owned(), n.parse().unwrap());
        };
        for _ in 0..kill_after {
            note(second.hear().unwrap());
        }
        second.kill();
        // What it said before it died counts, too.
        while let Some(line) = second.hear() {
            note(line);
        }
        rye_store_contract::run(hold_against(&file, &acknowledged));
    }
}

async fn hold_against(file: &Path, acknowledged: &BTreeMap<String, u64>) {
    let store = SqliteStore::open(file).unwrap();
    for (name, n) in acknowledged {
        let session = sid(name);
        let record = store.snapshot(&session).await.unwrap().unwrap();
        let written = record.sequence / 2;
        assert!(written >= *n, "{name}: {n} acknowledged, {written} there");
        // A commit is there whole or not at all.
        assert_eq!(record.sequence % 2, 0);
        assert_eq!(record.prompts, [prompt(name, "q1", written)]);
        let leaf = eid(&format!("e{written}"));
        let path = store.path(&session, &leaf).await.unwrap();
        assert_eq!(path.len() as u64, written);
        let events = store.events(&session, 0, usize::MAX).await.unwrap();
        let numbers: Vec<_> = events.iter().filter_map(|event| event.sequence).collect();
        assert_eq!(numbers, (1..=record.sequence).collect::<Vec<_>>());
        // And it goes on.
        let lease = store.claim(&session, Claim::IfFree).await.unwrap();
        let next = store.commit(&lease, Batch { ops: vec![told()] }).await;
        assert_eq!(next, Ok(record.sequence + 1));
    }
}

#[test]
fn a_session_of_a_process_that_was_killed_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    let mut second = Second::start("hold", &file);
    assert_eq!(second.hear().unwrap(), "held");
    rye_store_contract::run(async {
        let store = SqliteStore::open(&file).unwrap();
        let refused = store.claim(&sid("s"), Claim::IfFree).await;
        let Err(StoreError::InUse { holder, .. }) = refused else {
            unreachable!("{refused:?}");
        };
        let pid = second.child.id().to_string();
        assert!(
            holder.starts_with(&format!("process {pid} on ")),
            "{holder}"
        );
        second.kill();
        let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
        assert_eq!(sample::write(&store, &lease, vec![told()]).await, Ok(1));
    });
}

#[test]
fn a_process_that_cannot_be_seen_holds_its_session_until_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    let mut second = Second::start_unseen("hold", &file);
    assert_eq!(second.hear().unwrap(), "held");
    rye_store_contract::run(async {
        let store = SqliteStore::open(&file).unwrap();
        for _ in 0..3 {
            let refused = store.claim(&sid("s"), Claim::IfFree).await;
            let Err(StoreError::InUse { holder, .. }) = refused else {
                unreachable!("{refused:?}");
            };
            assert!(holder.ends_with(" on elsewhere"), "{holder}");
        }
        let within = second.within();
        second.kill();
        assert!(within.wait(None).unwrap());
        let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
        assert_eq!(sample::write(&store, &lease, vec![told()]).await, Ok(1));
    });
    let names = std::fs::read_dir(folder.path()).unwrap();
    let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|it| it.contains("-lease-")).collect();
    assert_eq!(left, [""; 0], "what a killed one leaves is tidied up");
}

#[test]
fn a_process_hears_what_another_posts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    rye_store_contract::run(async {
        let store = SqliteStore::open(&file).unwrap();
        begin(&store, "s").await;
        let mut posts = store.subscribe_posts();
        for round in 0..2 {
            let mut second = Second::start("post", &file);
            let news = tokio::time::timeout(Duration::from_mins(1), posts.recv());
            assert_eq!(news.await.unwrap().unwrap(), sid("s"));
            assert_eq!(second.hear().unwrap(), "posted");
            let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
            assert_eq!(record.prompts, [prompt("s", "q1", 1)]);
            if round == 0 {
                // Somebody tidies up: whoever listens goes on listening.
                std::fs::remove_file(folder.path().join("s.db-wake")).unwrap();
                let lease = store.claim(&sid("s"), Claim::TakeOver).await.unwrap();
                let remove = rye_protocol::Op::RemovePrompt(sample::qid("q1"));
                sample::write(&store, &lease, vec![remove]).await.unwrap();
            }
        }
    });
}
