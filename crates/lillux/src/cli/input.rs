//! A file named on the command line, or standard input.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use lillux::envelope::{Envelope, MAX_DOCUMENT};
use lillux::{Hash, PathError};

use super::args::Content;
use super::report::Failure;

/// What standard input is called in messages.
const STDIN: &str = "standard input";

/// Something to read, and what to call it when that fails.
pub(super) struct Input {
    pub(super) reader: File,
    name: PathBuf,
}

impl Input {
    /// Standard input is read without the standard library's buffer, which would
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

    /// Gives an error of the reader its place.
    pub(super) fn failure(&self, error: io::Error) -> Failure {
        read_failure(self.name.clone(), error)
    }
}

/// Gives a failure with what was read its place.
pub(super) fn of(path: Option<&Path>, mut failure: Failure) -> Failure {
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
    /// The hash given, or that of the content, which is read as a stream.
    pub(super) fn hash(&self) -> Result<Hash, Failure> {
        if let Some(hash) = self.hash {
            return Ok(hash);
        }
        let mut input = Input::open(self.file.as_deref())?;
        let (hash, _) = Hash::digest_reader(&mut input.reader).map_err(|e| input.failure(e))?;
        Ok(hash)
    }
}

/// Reads an envelope. What is wrong with it is told of the place it was read from.
pub(super) fn envelope(path: Option<&Path>) -> Result<Envelope, Failure> {
    let mut input = Input::open(path)?;
    let mut bytes = Vec::new();
    // One more than there may be: `parse` refuses it.
    let limit = MAX_DOCUMENT as u64 + 1;
    let read = (&mut input.reader).take(limit).read_to_end(&mut bytes);
    read.map_err(|e| input.failure(e))?;
    Envelope::parse(&bytes).map_err(|e| of(path, e.into()))
}
