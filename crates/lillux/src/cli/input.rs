//! Reads input from a file on the command line or from standard input.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use lillux::envelope::{Envelope, MAX_DOCUMENT};
use lillux::{Hash, PathError};

use super::args::Content;
use super::report::Failure;

/// Name of standard input in messages.
const STDIN: &str = "standard input";

/// An open input and its name for messages.
pub(super) struct Input {
    pub(super) reader: File,
    name: PathBuf,
}

impl Input {
    /// Opens the file, or standard input without the standard library's buffer, which would
    /// keep a copy of a secret.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let name = path.unwrap_or(Path::new(STDIN));
        let opened = match path {
            Some(path) => File::open(path),
            None => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        };
        let name = name.to_owned();
        match opened {
            Ok(reader) => Ok(Self { reader, name }),
            Err(error) => Err(read_failure(name, error)),
        }
    }

    /// Turns a read error into a failure with the name of the input.
    pub(super) fn failure(&self, error: io::Error) -> Failure {
        read_failure(self.name.clone(), error)
    }
}

/// Prefixes the message of a failure with the name of the input.
pub(super) fn with_input_name(path: Option<&Path>, mut failure: Failure) -> Failure {
    let name = path.unwrap_or(Path::new(STDIN)).display();
    failure.message = format!("{name}: {}", failure.message);
    failure
}

fn read_failure(path: PathBuf, source: io::Error) -> Failure {
    let action = "read";
    PathError {
        action,
        path,
        source,
    }
    .into()
}

impl Content {
    /// The given hash, or the hash of the input.
    pub(super) fn hash(&self) -> Result<Hash, Failure> {
        if let Some(hash) = self.hash {
            return Ok(hash);
        }
        let mut input = Input::open(self.file.as_deref())?;
        let (hash, _) = Hash::digest_reader(&mut input.reader).map_err(|e| input.failure(e))?;
        Ok(hash)
    }
}

/// Reads and parses an envelope.
pub(super) fn read_envelope(path: Option<&Path>) -> Result<Envelope, Failure> {
    let mut input = Input::open(path)?;
    let mut bytes = Vec::new();
    // One byte more than allowed, so that `parse` rejects a larger input.
    let limit = MAX_DOCUMENT as u64 + 1;
    let read = (&mut input.reader).take(limit).read_to_end(&mut bytes);
    read.map_err(|e| input.failure(e))?;
    Envelope::parse(&bytes).map_err(|e| with_input_name(path, e.into()))
}
