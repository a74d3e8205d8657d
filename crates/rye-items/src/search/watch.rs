//! Hearing of changes below the roots, by inotify.
//!
//! Each folder is watched from before it is listed, by its descriptor, so that
//! what happens to its entries is either in the list or told. What the watcher
//! is told only says that a root has to be walked again, never what is there.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::fstatfs;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::scan::KINDS;
use crate::space::{Observer, is_passed_by};

/// File systems whose changes are all made through this kernel, and so are told:
/// ext2 to ext4, XFS, Btrfs, tmpfs, ramfs, F2FS, ZFS, bcachefs, overlayfs, JFS,
/// `ReiserFS`, NILFS, squashfs, EROFS. Network and user-space ones are not among them.
const TOLD: [u64; 14] = [
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

/// The number of a root, in one catalogue.
pub(super) type RootNumber = u64;

/// Watches on the folders of all roots, and which roots something was told of.
#[derive(Debug)]
pub(super) struct Watcher {
    inotify: OwnedFd,
    watches: HashMap<i32, Vec<Watched>>,
    changed: HashSet<RootNumber>,
}

/// For whom a folder is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Watched {
    root: RootNumber,
    part: Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// `.ai` itself, in which only the folders of items matter.
    Top,
    Below,
}

impl Watcher {
    /// None where the system has no watches left.
    pub(super) fn new() -> Option<Self> {
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        Some(Self {
            inotify: inotify::init(flags).ok()?,
            watches: HashMap::new(),
            changed: HashSet::new(),
        })
    }

    /// Takes in all that was told since the last time. One system call where that is nothing.
    pub(super) fn listen(&mut self) {
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
                    let told = self.watches.get(&watch).into_iter().flatten();
                    let told = told.filter(|watched| watched.part.matters(name));
                    self.changed.extend(told.map(|watched| watched.root));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // Deaf from now on: everything has to be looked at.
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

    /// Whether something was told of a root since its walk began.
    pub(super) fn has_changed(&self, root: RootNumber) -> bool {
        self.changed.contains(&root)
    }

    /// A walk of a root begins: what is told from now on is about what it sees.
    fn begin(&mut self, root: RootNumber) {
        self.listen();
        self.changed.remove(&root);
    }

    fn add(&mut self, folder: BorrowedFd<'_>, watched: Watched) -> Result<i32, Errno> {
        if !is_told(folder)? {
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
        // By its descriptor: under its path there may be another folder by now.
        let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
        let watch = inotify::add_watch(&self.inotify, path, flags)?;
        let here = self.watches.entry(watch).or_default();
        if !here.contains(&watched) {
            here.push(watched);
        }
        Ok(watch)
    }

    /// Gives up the watches of a root but for those in use.
    fn keep(&mut self, root: RootNumber, used: &HashSet<i32>) {
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

    /// Gives up a root.
    pub(super) fn forget(&mut self, root: RootNumber) {
        self.keep(root, &HashSet::new());
        self.changed.remove(&root);
    }
}

impl Part {
    /// Whether something that happened to an entry of the folder, or to the
    /// folder itself, can change what a walk sees.
    fn matters(self, name: Option<&CStr>) -> bool {
        let Some(name) = name else {
            return true;
        };
        // A name that is not UTF-8 is an error of the walk, which is shown.
        let Ok(name) = name.to_str() else {
            return self == Self::Below;
        };
        match self {
            Self::Top => KINDS.iter().any(|kind| kind.folder() == name),
            Self::Below => !is_passed_by(name),
        }
    }
}

#[expect(
    clippy::cast_sign_loss,
    reason = "a number that names the file system, whatever its sign"
)]
fn is_told(folder: BorrowedFd<'_>) -> Result<bool, Errno> {
    let kind = fstatfs(folder)?.f_type as u64;
    Ok(TOLD.contains(&(kind & 0xffff_ffff)))
}

/// Watches every folder that a walk passes.
pub(super) struct Watching<'a> {
    watcher: &'a Mutex<Watcher>,
    root: RootNumber,
    used: HashSet<i32>,
    /// Not all that can change would be told.
    incomplete: bool,
}

impl<'a> Watching<'a> {
    /// Begins with the folder `.ai` itself.
    pub(super) fn begin(
        watcher: &'a Mutex<Watcher>,
        root: RootNumber,
        top: BorrowedFd<'_>,
    ) -> Self {
        lock(watcher).begin(root);
        let mut watching = Self {
            watcher,
            root,
            used: HashSet::new(),
            incomplete: false,
        };
        watching.watch(top, Part::Top);
        watching
    }

    fn watch(&mut self, folder: BorrowedFd<'_>, part: Part) {
        if self.incomplete {
            return;
        }
        let root = self.root;
        match lock(self.watcher).add(folder, Watched { root, part }) {
            Ok(watch) => {
                self.used.insert(watch);
            }
            Err(_) => self.incomplete = true,
        }
    }

    /// Ends the walk. Whether all that changes from its beginning on will be told.
    pub(super) fn finish(mut self) -> bool {
        if self.incomplete {
            self.used.clear();
        }
        lock(self.watcher).keep(self.root, &self.used);
        !self.incomplete
    }
}

impl Observer for Watching<'_> {
    fn folder(&mut self, folder: BorrowedFd<'_>) {
        self.watch(folder, Part::Below);
    }

    fn loose_link(&mut self) {
        self.incomplete = true;
    }
}

/// What is behind the lock is whole at any moment, whoever panicked while holding it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
