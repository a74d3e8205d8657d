//! Notifies the stores of other processes about posts.
//!
//! A process that posts opens the empty file `NAME-wake` before it writes to the database and
//! closes it afterwards. Listening processes watch the file with inotify and read the new posts
//! from the database when it is closed. The kernel also closes the file of a killed process, so
//! no polling is necessary. Watching the database itself would wake all processes at every
//! commit.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rye_engine::store::StoreError;
use rye_protocol::SessionId;
use tokio::sync::broadcast;

use super::error::DbResult;
use super::file;

/// Capacity of the channel that announces posts. A slower subscriber gets a lag error.
const POSTS_CAPACITY: usize = 1024;

/// Number of posts that the database keeps for listeners.
const MAX_STORED_POSTS: i64 = 1024;

/// Delay before the listener watches the file. Most processes end sooner, and removing a watch
/// takes the kernel longer than their whole work.
const WATCH_DELAY: Duration = Duration::from_millis(25);

/// Interval of polling if no watch is available or the last read failed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Announces posts to subscribers in this process and in others.
pub(super) struct Notifier {
    wake_file: Arc<WakeFile>,
    /// The wake file, open from before a post until it is written.
    open_file: Mutex<Option<File>>,
    /// Posts of all processes.
    posts: broadcast::Sender<SessionId>,
    listener: Mutex<Option<ListenerHandle>>,
}

/// The file that processes watch.
struct WakeFile {
    database: PathBuf,
    path: PathBuf,
    /// Identifies this store, to ignore its own posts.
    source: String,
}

/// Controls the listener thread.
struct ListenerHandle {
    stop: Arc<OwnedFd>,
    /// Disconnects when the thread has closed its database connection.
    closed: Receiver<()>,
}

impl Notifier {
    pub(super) fn new(database: &Path, source: String) -> Result<Self, StoreError> {
        let mut path = database.as_os_str().to_owned();
        path.push("-wake");
        let wake_file = WakeFile {
            database: database.to_owned(),
            path: path.into(),
            source,
        };
        wake_file.create_if_missing().map_err(|error| {
            StoreError::Unavailable(format!("{}: {error}", wake_file.path.display()))
        })?;
        Ok(Self {
            wake_file: Arc::new(wake_file),
            open_file: Mutex::default(),
            posts: broadcast::channel(POSTS_CAPACITY).0,
            listener: Mutex::default(),
        })
    }

    /// Records a post in its transaction.
    pub(super) fn record_post(&self, db: &Connection, session: &SessionId) -> DbResult<()> {
        let mut open_file = self.open_file.lock();
        if open_file.is_none() {
            // If this fails, other processes find the post at their next read.
            *open_file = self.wake_file.open().ok();
        }
        drop(open_file);
        let mut insert = db.prepare_cached(
            "INSERT INTO engine_posts (session, source) VALUES (?1, ?2) RETURNING number",
        )?;
        let number: i64 = insert
            .query_row(params![session.as_str(), self.wake_file.source], |row| {
                row.get(0)
            })?;
        let mut delete = db.prepare_cached("DELETE FROM engine_posts WHERE number <= ?1")?;
        delete.execute([number - MAX_STORED_POSTS])?;
        Ok(())
    }

    /// Announces posts after their transaction.
    pub(super) fn notify(&self, sessions: &[&SessionId]) {
        let mut open_file = self.open_file.lock();
        drop(open_file.take());
        for session in sessions {
            // An error means that there is no subscriber.
            let _ = self.posts.send((*session).clone());
        }
    }

    /// Subscribes to posts from now on. `last` returns the number of the last post, if it can be
    /// read.
    pub(super) fn subscribe(
        &self,
        last: impl FnOnce() -> Option<i64>,
    ) -> broadcast::Receiver<SessionId> {
        let posts = self.posts.subscribe();
        let mut listener = self.listener.lock();
        if listener.is_none() {
            // Without a thread, posts within this process are still announced.
            *listener = self.start(last()).ok();
        }
        posts
    }

    fn start(&self, last: Option<i64>) -> io::Result<ListenerHandle> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let listener = Listener {
            watch: None,
            stop: Arc::clone(&stop),
            db: None,
            // If it could not be read, the first read announces every session.
            failed: last.is_none(),
            last_read: last,
            wake_file: Arc::clone(&self.wake_file),
            posts: self.posts.clone(),
        };
        let (open, closed) = mpsc::channel();
        let thread = thread::Builder::new().name("rye-store-wake".to_owned());
        thread.spawn(move || listener.run(open))?;
        Ok(ListenerHandle { stop, closed })
    }

    /// Stops the listener thread, and waits until it has closed its connection.
    pub(super) fn stop(&self) {
        let mut listener = self.listener.lock();
        if let Some(ListenerHandle { stop, closed }) = listener.take() {
            let _ = rustix::io::write(&*stop, &1u64.to_ne_bytes());
            // Nothing is ever sent; it returns when the channel disconnects.
            let _ = closed.recv();
        }
    }
}

impl WakeFile {
    /// Opens the file, and creates it if it was removed.
    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        options.mode(0o600).open(&self.path)
    }

    /// Creates a missing file. Does not open an existing one, which would wake listeners.
    fn create_if_missing(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        match options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)
        {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn watch(&self) -> io::Result<OwnedFd> {
        self.create_if_missing()?;
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let events = WatchFlags::CLOSE_WRITE | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&inotify, &self.path, events)?;
        Ok(inotify)
    }
}

/// The listener thread.
struct Listener {
    watch: Option<OwnedFd>,
    stop: Arc<OwnedFd>,
    db: Option<Connection>,
    /// Number of the last post that was read.
    last_read: Option<i64>,
    /// Whether the last read failed, so that it must be repeated.
    failed: bool,
    wake_file: Arc<WakeFile>,
    posts: broadcast::Sender<SessionId>,
}

impl Listener {
    /// Watches before it reads, so that no post is missed.
    fn run(mut self, open: Sender<()>) {
        let mut running = self.poll(Some(WATCH_DELAY));
        if running {
            self.watch = self.wake_file.watch().ok();
        }
        while running {
            self.failed = self.publish_new_posts().is_err();
            running = self.wait();
        }
        self.db = None;
        drop(open);
        // The watch is dropped afterwards, because that is slow.
    }

    /// Waits for a post. Returns false if the listener must stop.
    fn wait(&mut self) -> bool {
        let soon = self.watch.is_none() || self.failed;
        if !self.poll(soon.then_some(POLL_INTERVAL)) {
            return false;
        }
        if self.watch.as_ref().is_none_or(was_removed) {
            self.watch = self.wake_file.watch().ok();
        }
        true
    }

    /// Waits for an event or a timeout. Returns false if the listener must stop.
    fn poll(&self, timeout: Option<Duration>) -> bool {
        let mut fds = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        fds.extend(
            self.watch
                .iter()
                .map(|watch| PollFd::new(watch, PollFlags::IN)),
        );
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let waited = poll(&mut fds, timeout.as_ref());
        let stopped = fds.first().is_some_and(|stop| !stop.revents().is_empty());
        waited.is_err() || !stopped
    }

    /// Announces posts of other processes since the last read.
    fn publish_new_posts(&mut self) -> DbResult<()> {
        let db = match self.db.take() {
            Some(db) => db,
            None => file::open_reader(&self.wake_file.database)?,
        };
        let db = self.db.insert(db);
        let transaction = db.unchecked_transaction()?;
        let last = last_post(&transaction)?;
        let sessions = match self.last_read {
            Some(last_read) if last - last_read <= MAX_STORED_POSTS => {
                posts_after(&transaction, last_read, &self.wake_file.source)?
            }
            Some(_) | None => all_sessions(&transaction)?,
        };
        self.last_read = Some(last);
        for session in sessions {
            if let Ok(session) = SessionId::try_from(session) {
                let _ = self.posts.send(session);
            }
        }
        Ok(())
    }
}

/// The number of the last post.
pub(super) fn last_post(db: &Connection) -> rusqlite::Result<i64> {
    let mut query =
        db.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'engine_posts'")?;
    let last = query.query_row([], |row| row.get(0)).optional()?;
    Ok(last.unwrap_or(0))
}

/// Sessions of the posts of other sources.
fn posts_after(db: &Connection, last_read: i64, source: &str) -> rusqlite::Result<Vec<String>> {
    let mut query = db.prepare_cached(
        "SELECT session FROM engine_posts WHERE number > ?1 AND source <> ?2 ORDER BY number",
    )?;
    let sessions = query.query_map(params![last_read, source], |row| row.get(0))?;
    sessions.collect()
}

/// All sessions, for the case that the database no longer has all new posts.
fn all_sessions(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut query = db.prepare_cached("SELECT id FROM engine_sessions")?;
    let sessions = query.query_map([], |row| row.get(0))?;
    sessions.collect()
}

/// Reads the pending inotify events. Returns whether the file was removed or renamed.
pub(super) fn was_removed(watch: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watch, &mut buffer);
    let mut removed = false;
    let end = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED;
    while let Ok(event) = events.next() {
        removed |= event.events().intersects(end);
    }
    removed
}
