//! Detects changes below the roots with inotify.
//!
//! A watch is added to each directory, through its descriptor, before the directory is
//! listed, so every change is either in the listing or reported as an event. Events
//! only say that a root has to be walked again, never what it contains.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::fstatfs;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::scan::KINDS;
use crate::space::{Observer, is_skipped};

/// File systems that only this kernel changes, so that inotify reports every change:
/// ext2 to ext4, XFS, Btrfs, tmpfs, ramfs, F2FS, ZFS, bcachefs, overlayfs, JFS,
/// `ReiserFS`, NILFS, squashfs, EROFS. Network and user-space file systems are
/// excluded.
const LOCAL_FILE_SYSTEMS: [u64; 14] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x794c_7630,
    0x3153_464a,
    0x5265_4973,
    0x3434,
    0x7371_7368,
    0xe0f5_e1e2,
];

/// Identifies a root within one index.
pub(super) type RootId = u64;

/// Watches on the directories of all roots, and the roots that changed.
#[derive(Debug)]
pub(super) struct Watcher {
    inotify: OwnedFd,
    watches: HashMap<i32, Vec<WatchTarget>>,
    changed: HashSet<RootId>,
}

/// A reason to watch a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WatchTarget {
    root: RootId,
    role: DirRole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirRole {
    /// `.ai` itself, where only the item directories matter.
    SpaceRoot,
    Below,
}

impl Watcher {
    /// Returns `None` if inotify is not available.
    pub(super) fn new() -> Option<Self> {
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        Some(Self {
            inotify: inotify::init(flags).ok()?,
            watches: HashMap::new(),
            changed: HashSet::new(),
        })
    }

    /// Processes all pending events. A single system call if there are none.
    pub(super) fn drain_events(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut gone = Vec::new();
        loop {
            match events.next() {
                Ok(event) => {
                    let (watch, what) = (event.wd(), event.events());
                    if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                        let all = self.watches.values().flatten();
                        self.changed.extend(all.map(|watched| watched.root));
                        continue;
                    }
                    if what.contains(ReadFlags::IGNORED) {
                        gone.push(watch);
                    }
                    let name = event.file_name();
                    let affected = self.watches.get(&watch).into_iter().flatten();
                    let affected = affected.filter(|watched| watched.role.is_affected_by(name));
                    self.changed.extend(affected.map(|watched| watched.root));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // Events can no longer be received: treat every root as changed.
                Err(_) => {
                    let all = self.watches.drain().flat_map(|(_, watched)| watched);
                    self.changed.extend(all.map(|watched| watched.root));
                    break;
                }
            }
        }
        for watch in gone {
            self.watches.remove(&watch);
        }
    }

    /// Whether the root changed since its last walk began.
    pub(super) fn has_changed(&self, root: RootId) -> bool {
        self.changed.contains(&root)
    }

    /// Starts a walk: later events refer to what it sees.
    fn start_walk(&mut self, root: RootId) {
        self.drain_events();
        self.changed.remove(&root);
    }

    fn add(&mut self, dir: BorrowedFd<'_>, watched: WatchTarget) -> Result<i32, Errno> {
        if !reports_all_changes(dir)? {
            return Err(Errno::OPNOTSUPP);
        }
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        // Through its descriptor: another directory may have taken its path by now.
        let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
        let watch = inotify::add_watch(&self.inotify, path, flags)?;
        let here = self.watches.entry(watch).or_default();
        if !here.contains(&watched) {
            here.push(watched);
        }
        Ok(watch)
    }

    /// Removes the watches of a root, except those in `used`.
    fn retain_watches(&mut self, root: RootId, used: &HashSet<i32>) {
        let inotify = self.inotify.as_fd();
        self.watches.retain(|watch, roots| {
            if !used.contains(watch) {
                roots.retain(|watched| watched.root != root);
            }
            if roots.is_empty() {
                let _ = inotify::remove_watch(inotify, *watch);
            }
            !roots.is_empty()
        });
    }

    /// Removes a root and its watches.
    pub(super) fn remove_root(&mut self, root: RootId) {
        self.retain_watches(root, &HashSet::new());
        self.changed.remove(&root);
    }
}

impl DirRole {
    /// Whether an event for an entry of the directory, or for the directory itself, can
    /// change the result of a walk.
    fn is_affected_by(self, name: Option<&CStr>) -> bool {
        let Some(name) = name else {
            return true;
        };
        // The walk reports names that are not UTF-8 as errors.
        let Ok(name) = name.to_str() else {
            return self == Self::Below;
        };
        match self {
            Self::SpaceRoot => KINDS.iter().any(|kind| kind.dir() == name),
            Self::Below => !is_skipped(name),
        }
    }
}

#[expect(
    clippy::cast_sign_loss,
    reason = "only the bits of the file system's magic number matter"
)]
fn reports_all_changes(dir: BorrowedFd<'_>) -> Result<bool, Errno> {
    let kind = fstatfs(dir)?.f_type as u64;
    Ok(LOCAL_FILE_SYSTEMS.contains(&(kind & 0xffff_ffff)))
}

/// Watches every directory that a walk visits.
pub(super) struct WatchingObserver<'a> {
    watcher: &'a Mutex<Watcher>,
    root: RootId,
    used: HashSet<i32>,
    /// Some changes would not be reported.
    incomplete: bool,
}

impl<'a> WatchingObserver<'a> {
    /// Starts with the directory `.ai` itself.
    pub(super) fn begin(watcher: &'a Mutex<Watcher>, root: RootId, top: BorrowedFd<'_>) -> Self {
        watcher.lock().start_walk(root);
        let mut watching = Self {
            watcher,
            root,
            used: HashSet::new(),
            incomplete: false,
        };
        watching.watch(top, DirRole::SpaceRoot);
        watching
    }

    fn watch(&mut self, dir: BorrowedFd<'_>, role: DirRole) {
        if self.incomplete {
            return;
        }
        let root = self.root;
        match self.watcher.lock().add(dir, WatchTarget { root, role }) {
            Ok(watch) => {
                self.used.insert(watch);
            }
            Err(_) => self.incomplete = true,
        }
    }

    /// Ends the walk. Returns whether every change since its start will be reported.
    pub(super) fn finish(mut self) -> bool {
        if self.incomplete {
            self.used.clear();
        }
        self.watcher.lock().retain_watches(self.root, &self.used);
        !self.incomplete
    }
}

impl Observer for WatchingObserver<'_> {
    fn directory(&mut self, dir: BorrowedFd<'_>) {
        self.watch(dir, DirRole::Below);
    }

    fn loose_link(&mut self) {
        self.incomplete = true;
    }
}
