//! Verifies stored files against their hashes.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::{Cas, CasError, CorruptedFile, Kind};
use crate::error::PathContext as _;
use crate::{Hash, PathError};

/// Result of [`Cas::verify`] and [`Cas::verify_all`].
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Number of objects that were read, including corrupted ones.
    pub objects: u64,
    /// Number of blobs that were read, including corrupted ones.
    pub blobs: u64,
    /// Total size of the files that were read, in bytes.
    pub bytes: u64,
    /// Files whose content does not match their hash.
    pub corrupted: Vec<CorruptedFile>,
    /// Files that could not be read.
    pub unreadable: Vec<PathError>,
    /// Files and directories in the store that do not belong to it. They are ignored.
    pub strays: Vec<PathBuf>,
}

impl VerifyReport {
    /// Whether every file was read and none is corrupted.
    pub fn is_sound(&self) -> bool {
        self.corrupted.is_empty() && self.unreadable.is_empty()
    }
}

impl Cas {
    /// Verifies the content with one hash, in constant memory.
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

    /// Verifies every file of the store, in constant memory. Continues after a corrupted file.
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
            // The file does not exist, or was just garbage collected.
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
                    report.corrupted.push(CorruptedFile {
                        path,
                        expected: *hash,
                        found,
                    });
                }
            }
        }
    }
}
