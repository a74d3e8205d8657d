//! What a put costs, beside the same writes and syncs by hand.
//!
//! The floor is told each hash, takes no lock and looks at nothing before it
//! writes. Its folders, writes and syncs are those of a put: without any one of
//! them the content could be lost or half there after a crash.

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
/// Small, so that a busy moment of the disk falls on both.
const BATCH: u16 = 20;
const GOAL: f64 = 1.3;

/// Putting new content of a usual size into a store that fills up.
pub fn run() -> Result<Vec<Row>> {
    // On the disk that is built on: the usual temporary folder may be memory.
    let program = std::env::current_exe()?;
    let disk = program.parent().context("the program is in no folder")?;
    let folder = tempfile::tempdir_in(disk)?;
    let cas = Cas::open(folder.path().join("ours"))?;
    let by_hand = ByHand::open(&folder.path().join("floor"))?;

    let contents: Vec<_> = (0..OBJECTS).map(content).collect();
    let mut floor_batches = contents.chunks(BATCH.into());
    let mut our_batches = contents.chunks(BATCH.into());
    // One batch of each is taken before the first round.
    let rounds = floor_batches.len() - 1;
    let (floor, ours) = try_interleaved(
        rounds,
        || -> Result<()> {
            for (hash, bytes) in floor_batches.next().context("no batch left")? {
                by_hand.put(hash, bytes)?;
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
    let what = format!("cas put, each of {OBJECTS} objects of 4 KiB");
    let times = (floor / batch, ours / batch);
    Ok(vec![Row::time(&what, times, GOAL)])
}

/// Content that differs in every object, and its hash.
fn content(number: u32) -> (String, Vec<u8>) {
    let bytes: Vec<u8> = number
        .to_le_bytes()
        .into_iter()
        .cycle()
        .take(SIZE)
        .collect();
    (Hash::of(&bytes).to_hex(), bytes)
}

/// A store of the same layout, by hand.
struct ByHand {
    blobs: PathBuf,
    tmp: PathBuf,
}

impl ByHand {
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
        make(&outer, &self.blobs)?;
        make(&inner, &outer)?;
        fs::rename(temporary, inner.join(hash))?;
        sync(&inner)
    }
}

fn make(folder: &Path, parent: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Ok(()) => sync(parent),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
