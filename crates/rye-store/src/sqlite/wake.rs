//! Telling other processes that something was posted.
//!
//! Beside the database lies an empty file, `NAME-wake`. Whoever posts opens it before they
//! write and closes it when they have written; whoever listens is told by the kernel that it
//! was closed, and looks into the database. The kernel also closes it for those who are
//! killed in between, so nobody needs to look now and then. Watching the database itself
//! would wake everybody at every commit.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rye_engine::store::StoreError;
use rye_protocol::SessionId;
use tokio::sync::broadcast;

use super::error::Outcome;
use super::file;

/// How many posts a listener may be behind before it is told that it lagged.
const POSTS: usize = 1024;

/// How many posts the database remembers for those who are about to look.
const REMEMBERED: i64 = 1024;

/// How long one waits before one watches. Most processes end sooner, and for the kernel to
/// forget a watch takes it longer than all that they do.
const SETTLE: Duration = Duration::from_millis(25);

/// How often one looks where the kernel has no watch left to give, or the last look failed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Tells whoever listens, here and elsewhere.
pub(super) struct Bell {
    wire: Arc<Wire>,
    /// Open from before something is posted until it is written; closing it rings.
    cord: Mutex<Option<File>>,
    /// Tells of posts in this process.
    here: broadcast::Sender<SessionId>,
    listener: Mutex<Option<Listener>>,
}

/// What goes from process to process.
struct Wire {
    database: PathBuf,
    file: PathBuf,
    /// Who we are, so as not to hear ourselves.
    source: String,
}

/// The thread that listens for others.
struct Listener {
    stop: Arc<OwnedFd>,
    /// Ends when it reads no more.
    reads: Receiver<()>,
}

impl Bell {
    pub(super) fn new(database: &Path, source: String) -> Result<Self, StoreError> {
        let mut file = database.as_os_str().to_owned();
        file.push("-wake");
        let wire = Wire {
            database: database.to_owned(),
            file: file.into(),
            source,
        };
        wire.make().map_err(|error| {
            StoreError::Unavailable(format!("{}: {error}", wire.file.display()))
        })?;
        Ok(Self {
            wire: Arc::new(wire),
            cord: Mutex::default(),
            here: broadcast::channel(POSTS).0,
            listener: Mutex::default(),
        })
    }

    /// Notes down, in the transaction of a post, that there was one.
    pub(super) fn note(&self, db: &Connection, session: &SessionId) -> Outcome<()> {
        let mut cord = self.cord.lock().unwrap_or_else(PoisonError::into_inner);
        if cord.is_none() {
            // The post is written whether or not others can be told of it at once; they
            // find it when they look for another reason.
            *cord = self.wire.open().ok();
        }
        drop(cord);
        let mut note = db.prepare_cached(
            "INSERT INTO engine_posts (session, source) VALUES (?1, ?2) RETURNING number",
        )?;
        let number: i64 = note.query_row(params![session.as_str(), self.wire.source], |row| {
            row.get(0)
        })?;
        let mut forget = db.prepare_cached("DELETE FROM engine_posts WHERE number <= ?1")?;
        forget.execute([number - REMEMBERED])?;
        Ok(())
    }

    /// Tells of posts that are written.
    pub(super) fn ring(&self, sessions: &[&SessionId]) {
        let mut cord = self.cord.lock().unwrap_or_else(PoisonError::into_inner);
        drop(cord.take());
        for session in sessions {
            // Nobody here may be listening.
            let _ = self.here.send((*session).clone());
        }
    }

    /// Tells from now on. `last` gives the number of the last post, if it can be read.
    pub(super) fn listen(
        &self,
        last: impl FnOnce() -> Option<i64>,
    ) -> broadcast::Receiver<SessionId> {
        let posts = self.here.subscribe();
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.is_none() {
            // Where no thread can be had, those within this process are still heard.
            *listener = self.start(last()).ok();
        }
        posts
    }

    fn start(&self, last: Option<i64>) -> io::Result<Listener> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let ear = Ear {
            watch: None,
            stop: Arc::clone(&stop),
            db: None,
            // If it could not be read, the first look tells of every session.
            failed: last.is_none(),
            seen: last,
            wire: Arc::clone(&self.wire),
            here: self.here.clone(),
        };
        let (reading, reads) = mpsc::channel();
        let thread = thread::Builder::new().name("rye-store-wake".to_owned());
        thread.spawn(move || ear.listen(reading))?;
        Ok(Listener { stop, reads })
    }

    /// Listens no more.
    pub(super) fn hush(&self) {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Listener { stop, reads }) = listener.take() {
            let _ = rustix::io::write(&*stop, &1u64.to_ne_bytes());
            // Nothing is ever sent: it ends with the reading.
            let _ = reads.recv();
        }
    }
}

impl Wire {
    /// The file, made again if somebody took it away.
    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        options.mode(0o600).open(&self.file)
    }

    /// Makes the file if it is not there; where it is, nobody must hear of it.
    fn make(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        match options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.file)
        {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn watch(&self) -> io::Result<OwnedFd> {
        self.make()?;
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let what = WatchFlags::CLOSE_WRITE | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&inotify, &self.file, what)?;
        Ok(inotify)
    }
}

/// What listens for others.
struct Ear {
    watch: Option<OwnedFd>,
    stop: Arc<OwnedFd>,
    db: Option<Connection>,
    /// The last post that was looked at.
    seen: Option<i64>,
    /// Whether the last look did not come to its end, so that another is due.
    failed: bool,
    wire: Arc<Wire>,
    here: broadcast::Sender<SessionId>,
}

impl Ear {
    /// Watches first and looks then, so that nothing falls between.
    fn listen(mut self, reading: Sender<()>) {
        let mut on = self.poll(Some(SETTLE));
        if on {
            self.watch = self.wire.watch().ok();
        }
        while on {
            self.failed = self.look().is_err();
            on = self.wait();
        }
        self.db = None;
        drop(reading);
        // What is left is the watch, for whose end nobody waits.
    }

    /// Waits for news. Tells whether to go on.
    fn wait(&mut self) -> bool {
        let soon = self.watch.is_none() || self.failed;
        if !self.poll(soon.then_some(LOOK_AGAIN)) {
            return false;
        }
        if self.watch.as_ref().is_none_or(is_gone) {
            self.watch = self.wire.watch().ok();
        }
        true
    }

    /// Waits until something is heard, and at most so long. Tells whether to go on.
    fn poll(&self, longest: Option<Duration>) -> bool {
        let mut both = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        both.extend(
            self.watch
                .iter()
                .map(|watch| PollFd::new(watch, PollFlags::IN)),
        );
        let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
        let waited = poll(&mut both, longest.as_ref());
        let stopped = both.first().is_some_and(|stop| !stop.revents().is_empty());
        waited.is_err() || !stopped
    }

    /// Tells of what others have posted since the last look.
    fn look(&mut self) -> Outcome<()> {
        let db = match self.db.take() {
            Some(db) => db,
            None => file::reader(&self.wire.database)?,
        };
        let db = self.db.insert(db);
        let look = db.unchecked_transaction()?;
        let last = last(&look)?;
        let sessions = match self.seen {
            Some(seen) if last - seen <= REMEMBERED => posted(&look, seen, &self.wire.source)?,
            Some(_) | None => all(&look)?,
        };
        self.seen = Some(last);
        for session in sessions {
            if let Ok(session) = SessionId::try_from(session) {
                let _ = self.here.send(session);
            }
        }
        Ok(())
    }
}

/// The number of the last post.
pub(super) fn last(db: &Connection) -> rusqlite::Result<i64> {
    let mut find =
        db.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'engine_posts'")?;
    let last = find.query_row([], |row| row.get(0)).optional()?;
    Ok(last.unwrap_or(0))
}

/// What others have posted.
fn posted(db: &Connection, seen: i64, source: &str) -> rusqlite::Result<Vec<String>> {
    let mut find = db.prepare_cached(
        "SELECT session FROM engine_posts WHERE number > ?1 AND source <> ?2 ORDER BY number",
    )?;
    let sessions = find.query_map(params![seen, source], |row| row.get(0))?;
    sessions.collect()
}

/// More was posted than the database remembers, so it may have been to anyone.
fn all(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut find = db.prepare_cached("SELECT id FROM engine_sessions")?;
    let sessions = find.query_map([], |row| row.get(0))?;
    sessions.collect()
}

/// Reads what the kernel noted, and tells whether the file is no longer there.
fn is_gone(watch: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watch, &mut buffer);
    let mut gone = false;
    let end = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED;
    while let Ok(event) = events.next() {
        gone |= event.events().intersects(end);
    }
    gone
}
