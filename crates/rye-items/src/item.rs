//! A verified item.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use lillux::Hash;

use crate::id::ItemRef;
use crate::integrity::IntegrityError;
use crate::signature::SignatureLine;
use crate::space::{FileIdentity, Space};
use crate::trust::TrustedKey;

/// A value that passed verification. Only this crate can create one, and it holds the verified
/// bytes rather than a path, so the file cannot be swapped between check and use.
#[derive(Debug, Clone)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    pub(crate) fn new(checked: T) -> Self {
        Self(checked)
    }
}

impl<T> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// How much of a file its signature covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// The whole file except the signature line.
    Whole,
    /// Only the `<directive>` element of a published directive. The rest of the file is dropped.
    Partial,
}

/// An item's bytes and where they come from. The file is read only once.
#[derive(Debug, Clone)]
pub struct Item {
    /// The item's full reference.
    pub reference: ItemRef,
    /// The space that contains it.
    pub space: Space,
    /// The bundle's name; only in the system space.
    pub bundle: Option<String>,
    /// The path to display. The file may have changed since it was read.
    pub path: PathBuf,
    /// The extension with its dot: `.py`.
    pub extension: String,
    /// How much of the file the signature covers.
    pub coverage: Coverage,
    /// The state of the file when it was read; none for an embedded item.
    pub identity: Option<FileIdentity>,
    /// The hash of the covered bytes.
    pub hash: Hash,
    /// The signature line; none only where verification was waived.
    pub signature: Option<SignatureLine>,
    /// The key that signed; none only where verification was waived.
    pub signer: Option<Arc<TrustedKey>>,
    /// The verification failure that development mode turned into a warning.
    pub waived: Option<IntegrityError>,
    pub(crate) bytes: Arc<[u8]>,
    /// The bytes without the signature line.
    pub(crate) content: Arc<[u8]>,
}

impl Item {
    /// The bytes to run or show: the file including its signature line, so that line numbers match
    /// the file. For partial coverage, only the covered element.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The covered bytes: the file without its signature line.
    pub fn content(&self) -> &[u8] {
        &self.content
    }
}
