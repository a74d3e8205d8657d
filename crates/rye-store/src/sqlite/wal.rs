//! The log that SQLite keeps beside a file, read as its format is written down
//! (<https://www.sqlite.org/fileformat2.html#the_write_ahead_log>).
//!
//! SQLite takes the first frame that does not fit for the end of the log, since that is how a
//! log ends whose writer was cut off. One that is damaged ends there too, and with it all that
//! was acknowledged behind the damage. What tells the two apart: a writer waits for the disk
//! with each commit, so that only frames of the last one can be missing.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

const HEADER: usize = 32;
const FRAME: usize = 24;

/// A log that is damaged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// The first frame that is, from 1; 0 is the header.
    frame: u64,
    /// How many frames behind it were acknowledged and would not be read.
    lost: u64,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { frame, lost } = self;
        match frame {
            0 => write!(f, "the header of the log is damaged, ")?,
            frame => write!(f, "frame {frame} of the log is damaged, ")?,
        }
        write!(
            f,
            "and {lost} that were written with it or behind it would be lost"
        )
    }
}

/// Looks through a log that nobody writes to. None where it is as its writer left it, whole
/// or cut off.
pub(super) fn damage(log: &Path) -> io::Result<Option<Damage>> {
    let mut log = BufReader::with_capacity(1 << 18, File::open(log)?);
    let mut header = [0; HEADER];
    if !fill(&mut log, &mut header)? {
        return Ok(None);
    }
    let page = match word(&header, 8) {
        // As the format writes the largest.
        1 => 1 << 16,
        size if (512..=1 << 15).contains(&size) && size.is_power_of_two() => size as usize,
        // What cannot be read at all has nothing in it that could be missed knowingly.
        _ => 4096,
    };
    let salts = &header[16..24];
    let little = header[3] & 1 == 0;
    let mut sum = Sum { little, of: (0, 0) };
    sum.add(&header[..24]);
    let known = [0x377f_0682, 0x377f_0683].contains(&word(&header, 0));
    let mut fault = (!known || !sum.is(&header[24..32])).then_some(0);
    let (mut number, mut lost) = (0, 0);
    // Whether a commit has ended at the fault or behind it, and whether its writer went on.
    let (mut ended, mut went_on) = (false, false);
    let mut frame = vec![0; FRAME + page];
    while fill(&mut log, &mut frame)? {
        number += 1;
        // Behind the end lie frames of before, which have other salts.
        let is_new = frame[8..16] == *salts;
        if fault.is_none() {
            sum.add(&frame[..8]);
            sum.add(&frame[FRAME..]);
            let fits = is_new && sum.is(&frame[16..24]);
            fault = (!fits).then_some(number);
        }
        if fault.is_some() && is_new {
            lost += 1;
            went_on |= ended;
            ended |= word(&frame, 4) != 0;
        }
    }
    // A header is on the disk before any frame is written.
    let is_damage = went_on || (fault == Some(0) && ended);
    Ok(fault
        .filter(|_| is_damage)
        .map(|frame| Damage { frame, lost }))
}

/// Reads as much as fits; not if there is less.
fn fill(log: &mut impl Read, room: &mut [u8]) -> io::Result<bool> {
    match log.read_exact(room) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// The number that stands there.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

/// The sum that runs through a log.
struct Sum {
    little: bool,
    of: (u32, u32),
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let (mut first, mut second) = self.of;
        for pair in bytes.chunks_exact(8) {
            let word = |at| {
                let word = word(pair, at);
                if self.little { word.swap_bytes() } else { word }
            };
            first = first.wrapping_add(word(0)).wrapping_add(second);
            second = second.wrapping_add(word(4)).wrapping_add(first);
        }
        self.of = (first, second);
    }

    fn is(&self, written: &[u8]) -> bool {
        self.of == (word(written, 0), word(written, 4))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rusqlite::Connection;

    use super::*;

    /// A log of twenty commits on top of what is left of an older one, and where each of its
    /// frames begins.
    fn log() -> (tempfile::TempDir, std::path::PathBuf, Vec<usize>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
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
        let log = folder.path().join("a.db-wal");
        let bytes = fs::read(&log).unwrap();
        let copy = folder.path().join("copy");
        fs::write(&copy, &bytes).unwrap();
        let all = (HEADER..bytes.len()).step_by(FRAME + 4096);
        let new = all.filter(|at| bytes[at + 8..at + 16] == bytes[16..24]);
        (folder, copy, new.collect())
    }

    fn changed(log: &Path, at: usize) -> Option<Damage> {
        let mut bytes = fs::read(log).unwrap();
        bytes[at] ^= 0x40;
        let other = log.with_extension("changed");
        fs::write(&other, bytes).unwrap();
        damage(&other).unwrap()
    }

    #[test]
    fn a_log_as_it_was_left_is_whole_wherever_its_writer_was_cut_off() {
        let (_folder, log, frames) = log();
        assert_eq!(damage(&log).unwrap(), None);
        let bytes = fs::read(&log).unwrap();
        for length in [
            0,
            7,
            HEADER,
            HEADER + 9,
            frames[3],
            frames[3] + 100,
            frames[9] + 40,
        ] {
            let cut = log.with_extension("cut");
            fs::write(&cut, &bytes[..length]).unwrap();
            assert_eq!(damage(&cut).unwrap(), None, "{length}");
        }
        // Of the last commit some frames may be missing, also the first of them.
        let last = *frames.last().unwrap();
        assert_eq!(changed(&log, last + 500), None);
    }

    #[test]
    fn a_bit_that_is_wrong_in_what_was_acknowledged_is_found() {
        let (_folder, log, frames) = log();
        let number = |at: usize| (frames.iter().position(|it| *it == at).unwrap() + 1) as u64;
        let total = frames.len() as u64;
        for at in [frames[0], frames[5], frames[frames.len() / 2]] {
            for within in [1, 5, 9, 17, FRAME, FRAME + 4000] {
                let found = changed(&log, at + within).unwrap();
                assert_eq!(found.frame, number(at), "{at} {within}");
                assert!(found.lost + number(at) >= total, "{found:?}");
            }
        }
        for within in [0, 3, 5, 13, 25] {
            assert_eq!(changed(&log, within).unwrap().frame, 0, "{within}");
        }
    }

    #[test]
    fn what_is_left_of_an_older_log_does_not_count() {
        let (_folder, log, frames) = log();
        let behind = frames.last().unwrap() + FRAME + 4096;
        assert!(behind + 500 < fs::read(&log).unwrap().len());
        assert_eq!(changed(&log, behind + 500), None);
    }

    #[test]
    fn it_is_told_what_would_be_lost() {
        let damage = Damage { frame: 3, lost: 9 };
        let words = "frame 3 of the log is damaged, and 9 that were written with it or behind it \
                     would be lost";
        assert_eq!(damage.to_string(), words);
    }
}
