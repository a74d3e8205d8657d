//! Finds damage in SQLite's write-ahead log
//! (<https://www.sqlite.org/fileformat2.html#the_write_ahead_log>).
//!
//! SQLite ignores everything from the first invalid frame on, because a log ends like that if its
//! writer was interrupted. In a damaged log this silently discards acknowledged commits. The
//! difference: a writer syncs each commit, so an interruption can only invalidate frames of the
//! last commit.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

const HEADER_LEN: usize = 32;
const FRAME_HEADER_LEN: usize = 24;

/// Damage of a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WalDamage {
    /// The first damaged frame, from 1; 0 is the header.
    frame: u64,
    /// Number of frames from there on that SQLite would ignore.
    lost: u64,
}

impl std::fmt::Display for WalDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { frame, lost } = self;
        match frame {
            0 => write!(f, "the header of the log is damaged, ")?,
            frame => write!(f, "frame {frame} of the log is damaged, ")?,
        }
        write!(f, "and {lost} frames from there on would be lost")
    }
}

/// Checks a log that no process writes to. Returns none if it is complete or was merely
/// interrupted.
pub(super) fn find_damage(wal: &Path) -> io::Result<Option<WalDamage>> {
    let mut log = BufReader::with_capacity(1 << 18, File::open(wal)?);
    let mut header = [0; HEADER_LEN];
    if !fill(&mut log, &mut header)? {
        return Ok(None);
    }
    let page = match read_u32(&header, 8) {
        // Encoding of the largest page size.
        1 => 1 << 16,
        size if (512..=1 << 15).contains(&size) && size.is_power_of_two() => size as usize,
        // Invalid; the header is reported as damaged if frames follow.
        _ => 4096,
    };
    let salts = &header[16..24];
    let little_endian = header[3] & 1 == 0;
    let mut checksum = Checksum {
        little_endian,
        value: (0, 0),
    };
    checksum.add(&header[..24]);
    let known = [0x377f_0682, 0x377f_0683].contains(&read_u32(&header, 0));
    let mut fault = (!known || !checksum.matches(&header[24..32])).then_some(0);
    let (mut number, mut lost) = (0, 0);
    // Whether a commit ends at or after the fault, and whether another one follows.
    let (mut ended, mut continued) = (false, false);
    let mut frame = vec![0; FRAME_HEADER_LEN + page];
    while fill(&mut log, &mut frame)? {
        number += 1;
        // After the end there may be frames of an earlier log, with other salts.
        let is_new = frame[8..16] == *salts;
        if fault.is_none() {
            checksum.add(&frame[..8]);
            checksum.add(&frame[FRAME_HEADER_LEN..]);
            let fits = is_new && checksum.matches(&frame[16..24]);
            fault = (!fits).then_some(number);
        }
        if fault.is_some() && is_new {
            lost += 1;
            continued |= ended;
            ended |= read_u32(&frame, 4) != 0;
        }
    }
    // The header is synced before any frame is written.
    let is_damage = continued || (fault == Some(0) && ended);
    Ok(fault
        .filter(|_| is_damage)
        .map(|frame| WalDamage { frame, lost }))
}

/// Fills the buffer. Returns false if there are not enough bytes.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// Reads a big-endian number.
fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

/// The cumulative checksum of a log.
struct Checksum {
    little_endian: bool,
    value: (u32, u32),
}

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        let (mut first, mut second) = self.value;
        for pair in bytes.chunks_exact(8) {
            let word = |at| {
                let word = read_u32(pair, at);
                if self.little_endian {
                    word.swap_bytes()
                } else {
                    word
                }
            };
            first = first.wrapping_add(word(0)).wrapping_add(second);
            second = second.wrapping_add(word(4)).wrapping_add(first);
        }
        self.value = (first, second);
    }

    fn matches(&self, written: &[u8]) -> bool {
        self.value == (read_u32(written, 0), read_u32(written, 4))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rusqlite::Connection;

    use super::*;

    /// A log of twenty commits that overwrites the start of an older one, and the offsets of its
    /// frames.
    fn log() -> (tempfile::TempDir, std::path::PathBuf, Vec<usize>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.db");
        let db = Connection::open(&file).unwrap();
        db.query_row("PRAGMA journal_mode = wal", [], |_| Ok(()))
            .unwrap();
        db.execute_batch("CREATE TABLE t (a TEXT)").unwrap();
        let put = |room: usize| {
            let text = "x".repeat(room);
            db.execute("INSERT INTO t VALUES (?1)", [text]).unwrap();
        };
        (0..40).for_each(|_| put(5000));
        db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))
            .unwrap();
        (0..20).for_each(|_| put(5000));
        let log = dir.path().join("a.db-wal");
        let bytes = fs::read(&log).unwrap();
        let copy = dir.path().join("copy");
        fs::write(&copy, &bytes).unwrap();
        let all = (HEADER_LEN..bytes.len()).step_by(FRAME_HEADER_LEN + 4096);
        let new = all.filter(|at| bytes[at + 8..at + 16] == bytes[16..24]);
        (dir, copy, new.collect())
    }

    fn damage_after_bit_flip(log: &Path, at: usize) -> Option<WalDamage> {
        let mut bytes = fs::read(log).unwrap();
        bytes[at] ^= 0x40;
        let other = log.with_extension("changed");
        fs::write(&other, bytes).unwrap();
        find_damage(&other).unwrap()
    }

    #[test]
    fn interrupted_log_is_not_damaged() {
        let (_dir, log, frames) = log();
        assert_eq!(find_damage(&log).unwrap(), None);
        let bytes = fs::read(&log).unwrap();
        for length in [
            0,
            7,
            HEADER_LEN,
            HEADER_LEN + 9,
            frames[3],
            frames[3] + 100,
            frames[9] + 40,
        ] {
            let cut = log.with_extension("cut");
            fs::write(&cut, &bytes[..length]).unwrap();
            assert_eq!(find_damage(&cut).unwrap(), None, "{length}");
        }
        // Any frame of the last commit may be invalid.
        let last = *frames.last().unwrap();
        assert_eq!(damage_after_bit_flip(&log, last + 500), None);
    }

    #[test]
    fn bit_flip_in_an_acknowledged_commit_is_found() {
        let (_dir, log, frames) = log();
        let number = |at: usize| (frames.iter().position(|it| *it == at).unwrap() + 1) as u64;
        let total = frames.len() as u64;
        for at in [frames[0], frames[5], frames[frames.len() / 2]] {
            for offset in [1, 5, 9, 17, FRAME_HEADER_LEN, FRAME_HEADER_LEN + 4000] {
                let found = damage_after_bit_flip(&log, at + offset).unwrap();
                assert_eq!(found.frame, number(at), "{at} {offset}");
                assert!(found.lost + number(at) >= total, "{found:?}");
            }
        }
        for offset in [0, 3, 5, 13, 25] {
            assert_eq!(
                damage_after_bit_flip(&log, offset).unwrap().frame,
                0,
                "{offset}"
            );
        }
    }

    #[test]
    fn frames_of_an_older_log_are_ignored() {
        let (_dir, log, frames) = log();
        let end = frames.last().unwrap() + FRAME_HEADER_LEN + 4096;
        assert!(end + 500 < fs::read(&log).unwrap().len());
        assert_eq!(damage_after_bit_flip(&log, end + 500), None);
    }

    #[test]
    fn message_names_the_frame_and_the_loss() {
        let damage = WalDamage { frame: 3, lost: 9 };
        let expected = "frame 3 of the log is damaged, and 9 frames from there on would be lost";
        assert_eq!(damage.to_string(), expected);
    }
}
