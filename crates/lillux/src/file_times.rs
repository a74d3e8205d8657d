//! Detects files that can change without a new modification time, for caches that identify
//! content by a file's times.
//!
//! A process that maps a file shared and writable dirties a page with one page fault and
//! then writes to that page any number of times. The kernel updates the file's times at the
//! fault, not at the later writes. Such a cache is therefore only sound for a file that no
//! process has open for writing when it is read: every later writer must open or map the file
//! again, and its first write updates the times.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::fs::fstatfs;

/// File systems that update a file's times at the first write through each new mapping.
/// Others, such as tmpfs, map a page writable when it is read, or, such as overlayfs, count
/// writers of another inode than the one that is open here.
const EXT: u64 = 0xEF53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683E;
const F2FS: u64 = 0xF2F5_2010;

/// `F_SETSIG` of `fcntl`, which the libc crate lacks; the same on all architectures.
const F_SETSIG: libc::c_int = 10;

/// Whether any change of the file's content from now on updates its times.
///
/// `file` must be open for reading only. The answer is `false` while any process has the
/// file open for writing or mapped shared and writable, and wherever that cannot be
/// determined: on other file systems, and for files of other owners.
pub fn updates_times(file: BorrowedFd<'_>) -> bool {
    #[expect(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        reason = "the magic numbers have 32 bits; the width of the field depends on the platform"
    )]
    let known = fstatfs(file).is_ok_and(|metadata| {
        let magic = u64::from(metadata.f_type as u32);
        matches!(magic, EXT | XFS | BTRFS | F2FS)
    });
    known && has_no_writers(file)
}

/// Acquires a read lease and releases it at once. The kernel grants one only while no process
/// has the file open for writing; a shared writable mapping keeps its file open.
#[expect(
    unsafe_code,
    reason = "neither the standard library nor rustix wraps F_SETLEASE"
)]
fn has_no_writers(file: BorrowedFd<'_>) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: `fd` is open for the whole call since `file` borrows it, and these commands
    // only use integer arguments. If a writer opens the file while the lease is held, the
    // kernel sends the signal chosen here; SIGURG is ignored unless a handler is installed,
    // while the default, SIGIO, would end the process.
    unsafe {
        if libc::fcntl(fd, F_SETSIG, libc::SIGURG) != 0
            || libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) != 0
        {
            return false;
        }
        libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) == 0
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "mapping a file is unsafe by nature")]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;

    /// A shared writable mapping of the first page of a file.
    struct Mapping(*mut libc::c_void);

    impl Mapping {
        fn new(path: &Path) -> Self {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(path)
                .unwrap();
            // SAFETY: a new mapping of an open file; the kernel chooses the address.
            let base = unsafe {
                let prot = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(
                    std::ptr::null_mut(),
                    1,
                    prot,
                    libc::MAP_SHARED,
                    file.as_raw_fd(),
                    0,
                )
            };
            assert_ne!(base, libc::MAP_FAILED);
            Self(base)
        }

        fn write(&self, byte: u8) {
            // SAFETY: the first byte is mapped, writable, and inside the file.
            unsafe { self.0.cast::<u8>().write_volatile(byte) };
        }

        fn read(&self) -> u8 {
            // SAFETY: as above.
            unsafe { self.0.cast::<u8>().read_volatile() }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: nothing refers to the mapping any more.
            unsafe { libc::munmap(self.0, 1) };
        }
    }

    fn file() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "a").unwrap();
        (dir, path)
    }

    /// Whether the file system of the temporary directory is one of the known ones.
    fn is_supported(path: &Path) -> bool {
        updates_times(File::open(path).unwrap().as_fd())
    }

    #[test]
    fn writers_and_writable_mappings_are_detected() {
        let (_dir, path) = file();
        if !is_supported(&path) {
            return;
        }
        let reader = File::open(&path).unwrap();
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(!updates_times(reader.as_fd()));
        drop(writer);
        assert!(updates_times(reader.as_fd()));
        // The file descriptor is closed, the mapping stays.
        let mapping = Mapping::new(&path);
        assert!(!updates_times(reader.as_fd()));
        mapping.write(b'b');
        assert!(!updates_times(reader.as_fd()));
        drop(mapping);
        assert!(updates_times(reader.as_fd()));
    }

    /// Checks the claim of the module documentation on this kernel.
    #[test]
    fn only_the_first_write_through_a_mapping_updates_the_times() {
        let (_dir, path) = file();
        if !is_supported(&path) {
            return;
        }
        let times = || {
            let metadata = fs::metadata(&path).unwrap();
            (
                metadata.mtime_nsec(),
                metadata.ctime_nsec(),
                metadata.ctime(),
            )
        };
        let next_tick = || {
            let probe = path.with_extension("probe");
            let until = Instant::now() + Duration::from_secs(5);
            let before = fs::metadata(&path).unwrap().modified().unwrap();
            while Instant::now() < until {
                fs::write(&probe, "").unwrap();
                if fs::metadata(&probe).unwrap().modified().unwrap() > before {
                    return;
                }
            }
            panic!("the clock of the file system does not advance");
        };
        next_tick();
        let before = times();
        let mapping = Mapping::new(&path);
        // A page that was read first is written to by a second fault.
        assert_eq!(mapping.read(), b'a');
        assert_eq!(times(), before);
        mapping.write(b'b');
        assert_ne!(times(), before, "the first write must update the times");
        let first = times();
        next_tick();
        mapping.write(b'c');
        assert_eq!(fs::read(&path).unwrap(), b"c");
        assert_eq!(times(), first, "this is why mapped files are not cached");
    }

    #[test]
    fn writable_descriptor_counts_as_writer() {
        let (_dir, path) = file();
        let both = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        assert!(!updates_times(both.as_fd()));
    }
}
