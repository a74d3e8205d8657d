//! Is everything still as it was put?

use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::{Cas, CasError, Corrupted, Kind};
use crate::error::PathContext as _;
use crate::{Hash, PathError};

/// What a check of some or all files found.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// How many objects were read, good or bad.
    pub objects: u64,
    /// How many blobs were read, good or bad.
    pub blobs: u64,
    /// How many bytes these were.
    pub bytes: u64,
    /// Files that are not as they were put.
    pub corrupted: Vec<Corrupted>,
    /// Files that could not be read, so that nobody knows.
    pub unreadable: Vec<PathError>,
    /// What lies in the store and is not of it. Nothing reads it.
    pub strays: Vec<PathBuf>,
}

impl VerifyReport {
    /// Whether everything was read and found whole.
    pub fn is_sound(&self) -> bool {
        self.corrupted.is_empty() && self.unreadable.is_empty()
    }
}

impl Cas {
    /// Reads what is under one hash, in constant memory.
    pub fn verify(&self, hash: &Hash) -> Result<VerifyReport, CasError> {
        let mut report = VerifyReport::default();
        for kind in Kind::ALL {
            self.check(kind, hash, &mut report);
        }
        if report.objects + report.blobs == 0 && report.is_sound() {
            return Err(self.not_found(hash));
        }
        Ok(report)
    }

    /// Reads every file of the store, in constant memory. Does not stop at the
    /// first bad one.
    pub fn verify_all(&self) -> Result<VerifyReport, CasError> {
        let mut report = VerifyReport::default();
        for kind in Kind::ALL {
            let shards = self.shards(kind)?;
            report.strays.extend(shards.strays);
            for shard in &shards.entries {
                let files = self.files(kind, shard)?;
                report.strays.extend(files.strays);
                for hash in &files.entries {
                    self.check(kind, hash, &mut report);
                }
            }
        }
        Ok(report)
    }

    fn check(&self, kind: Kind, hash: &Hash, report: &mut VerifyReport) {
        let path = self.path_of(kind, hash);
        match File::open(&path).and_then(Hash::digest_reader) {
            // Not there, or collected a moment ago.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => report
                .unreadable
                .extend(Err::<(), _>(e).at("read", &path).err()),
            Ok((found, size)) => {
                match kind {
                    Kind::Object => report.objects += 1,
                    Kind::Blob => report.blobs += 1,
                }
                report.bytes += size;
                if found != *hash {
                    report.corrupted.push(Corrupted {
                        path,
                        expected: *hash,
                        found,
                    });
                }
            }
        }
    }
}
