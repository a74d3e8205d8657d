//! `put` into the content-addressed store, compared with plain writes and syncs.
//!
//! The baseline gets each hash precomputed, takes no lock and checks nothing. Its directories,
//! writes and syncs are those of a put: without any of them, a crash could lose or truncate
//! the content.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lillux::Hash;
use lillux::cas::Cas;

use crate::measure::try_interleaved;
use crate::table::Row;

const OBJECTS: u32 = 10_000;
const SIZE: usize = 4096;
/// Small, so that load peaks of the disk affect both.
const BATCH: u16 = 20;
const GOAL: f64 = 1.3;

/// Puts new objects of a typical size into a growing store.
pub fn run() -> Result<Vec<Row>> {
    // On the disk of the build directory, because the temporary directory may be in memory.
    let program = std::env::current_exe()?;
    let disk = program
        .parent()
        .context("the program has no parent directory")?;
    let directory = tempfile::tempdir_in(disk)?;
    let cas = Cas::open(directory.path().join("ours"))?;
    let plain = PlainStore::open(&directory.path().join("baseline"))?;

    let contents: Vec<_> = (0..OBJECTS).map(content).collect();
    let mut baseline_batches = contents.chunks(BATCH.into());
    let mut our_batches = contents.chunks(BATCH.into());
    // One batch of each is the warm-up.
    let rounds = baseline_batches.len() - 1;
    let (baseline, ours) = try_interleaved(
        rounds,
        || -> Result<()> {
            for (hash, bytes) in baseline_batches.next().context("no batch left")? {
                plain.put(hash, bytes)?;
            }
            Ok(())
        },
        || {
            for (_, bytes) in our_batches.next().context("no batch left")? {
                cas.put(bytes)?;
            }
            Ok(())
        },
    )?;
    let batch = f64::from(BATCH);
    let what = format!("cas put of {OBJECTS} objects of 4 KiB, each vs. plain writes");
    let times = (baseline / batch, ours / batch);
    Ok(vec![Row::time(&what, times, GOAL)])
}

/// Unique content and its hash.
fn content(number: u32) -> (String, Vec<u8>) {
    let bytes: Vec<u8> = number
        .to_le_bytes()
        .into_iter()
        .cycle()
        .take(SIZE)
        .collect();
    (Hash::digest(&bytes).to_hex(), bytes)
}

/// A store of the same layout without checks.
struct PlainStore {
    blobs: PathBuf,
    tmp: PathBuf,
}

impl PlainStore {
    fn open(root: &Path) -> io::Result<Self> {
        let (blobs, tmp) = (root.join("blobs"), root.join("tmp"));
        fs::create_dir_all(&blobs)?;
        fs::create_dir_all(&tmp)?;
        Ok(Self { blobs, tmp })
    }

    fn put(&self, hash: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.tmp.join(hash);
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        let outer = self.blobs.join(&hash[..2]);
        let inner = outer.join(&hash[2..4]);
        create_dir(&outer, &self.blobs)?;
        create_dir(&inner, &outer)?;
        fs::rename(temporary, inner.join(hash))?;
        sync(&inner)
    }
}

fn create_dir(directory: &Path, parent: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Ok(()) => sync(parent),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
