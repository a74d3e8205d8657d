//! Notifies subscribers of commits, also of other processes.
//!
//! While there are subscribers, a thread watches the write-ahead log with inotify. A commit becomes
//! visible only after it was written to the log, so the thread then reads SQLite's `data_version`
//! until it has changed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::Connection;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::sync::watch;

use super::file;
use super::notifier::was_removed;

/// First delay of reading the version again after a write to the log; doubled each time.
const FIRST_DELAY: Duration = Duration::from_millis(1);

/// The last delay after a write. By then the commit is visible, or was rolled back.
const LAST_DELAY: Duration = Duration::from_millis(500);

/// Interval of reading the version if nothing is written, and of checking for subscribers.
const IDLE_INTERVAL: Duration = Duration::from_secs(2);

/// Interval of reading the version if the log cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Starts the thread when there is a subscriber.
pub(super) struct CommitWatch {
    database: PathBuf,
    commits: watch::Sender<()>,
    watcher: Mutex<Option<WatcherHandle>>,
    /// Locked by the thread when it decides to end.
    is_running: Arc<Mutex<bool>>,
}

/// Controls the thread.
struct WatcherHandle {
    stop: Arc<OwnedFd>,
    /// Disconnects when the thread has closed its database connection.
    closed: Receiver<()>,
}

impl CommitWatch {
    pub(super) fn new(database: &Path) -> Self {
        Self {
            database: database.to_owned(),
            commits: watch::Sender::default(),
            watcher: Mutex::default(),
            is_running: Arc::default(),
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        let commits = self.commits.subscribe();
        let mut watcher = self.watcher.lock();
        let mut is_running = self.is_running.lock();
        if !*is_running {
            *watcher = self.start().ok();
            *is_running = watcher.is_some();
        }
        commits
    }

    fn start(&self) -> io::Result<WatcherHandle> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let mut watcher = Watcher {
            database: self.database.clone(),
            commits: self.commits.clone(),
            stop: Arc::clone(&stop),
            is_running: Arc::clone(&self.is_running),
            log: None,
            db: None,
            version: None,
        };
        let (open, closed) = mpsc::channel();
        // Before the caller reads, so that it misses nothing that is committed later.
        watcher.version = watcher.read_version();
        watcher.log = watcher.watch_log().ok();
        thread::Builder::new()
            .name("rye-store-watch".to_owned())
            .spawn(move || {
                watcher.run();
                drop(watcher);
                drop(open);
            })?;
        Ok(WatcherHandle { stop, closed })
    }

    /// Stops the thread, and waits until it has closed its connection.
    pub(super) fn stop(&self) {
        if let Some(WatcherHandle { stop, closed }) = self.watcher.lock().take() {
            let _ = rustix::io::write(&*stop, &1u64.to_ne_bytes());
            // Nothing is ever sent; it returns when the channel disconnects.
            let _ = closed.recv();
        }
    }
}

/// The thread.
struct Watcher {
    database: PathBuf,
    commits: watch::Sender<()>,
    stop: Arc<OwnedFd>,
    is_running: Arc<Mutex<bool>>,
    /// Watches the write-ahead log.
    log: Option<OwnedFd>,
    db: Option<Connection>,
    /// The last version that was read.
    version: Option<i64>,
}

impl Watcher {
    /// Runs until it is stopped or there is no subscriber.
    fn run(&mut self) {
        let mut delay = None;
        loop {
            let idle = if self.log.is_some() {
                IDLE_INTERVAL
            } else {
                POLL_INTERVAL
            };
            match self.wait(delay.unwrap_or(idle)) {
                Woken::Stopped => return,
                Woken::Written => delay = Some(FIRST_DELAY),
                Woken::TimedOut => {
                    let doubled = delay.map(|delay| delay * 2);
                    delay = doubled.filter(|delay| *delay <= LAST_DELAY);
                }
            }
            let version = self.read_version();
            // An unreadable version counts as a change: subscribers find out at their next read.
            if version.is_none() || version != self.version {
                self.version = version;
                self.commits.send_replace(());
            }
            if delay.is_none() {
                let mut is_running = self.is_running.lock();
                if self.commits.receiver_count() == 0 {
                    *is_running = false;
                    return;
                }
            }
        }
    }

    /// Waits for a write to the log or a timeout.
    fn wait(&mut self, timeout: Duration) -> Woken {
        let mut fds = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        fds.extend(self.log.iter().map(|log| PollFd::new(log, PollFlags::IN)));
        let timeout = Timespec::try_from(timeout).ok();
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return Woken::TimedOut;
        }
        let woken: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        match woken.as_slice() {
            [true, ..] => Woken::Stopped,
            [_, true] => {
                if self.log.as_ref().is_none_or(was_removed) {
                    self.log = self.watch_log().ok();
                }
                Woken::Written
            }
            _ => {
                if self.log.is_none() {
                    self.log = self.watch_log().ok();
                }
                Woken::TimedOut
            }
        }
    }

    fn watch_log(&self) -> io::Result<OwnedFd> {
        let mut log = self.database.as_os_str().to_owned();
        log.push("-wal");
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let events = WatchFlags::MODIFY | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&watch, &log, events)?;
        Ok(watch)
    }

    /// The version of the database, which every commit of another connection changes.
    fn read_version(&mut self) -> Option<i64> {
        if self.db.is_none() {
            self.db = file::open_reader(&self.database).ok();
        }
        let db = self.db.as_ref()?;
        let version = db.pragma_query_value(None, "data_version", |row| row.get(0));
        if version.is_err() {
            self.db = None;
        }
        version.ok()
    }
}

/// Why the thread woke up.
enum Woken {
    Stopped,
    Written,
    TimedOut,
}
