//! An item whose bytes were verified.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use lillux::Hash;

use crate::id::ItemRef;
use crate::integrity::IntegrityError;
use crate::signature::SignatureLine;
use crate::space::{FileIdentity, Space};
use crate::trust::TrustedKey;

/// Something that was verified. Only this crate makes one, so who holds one
/// holds what was checked: the bytes, not a path to them.
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

/// How much of the file its signature covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All of it.
    Whole,
    /// A published directive: its `<directive>` element alone. Nothing else of
    /// the file is here.
    Partial,
}

/// An item, read once.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its name.
    pub reference: ItemRef,
    /// Where it was found.
    pub space: Space,
    /// The bundle, in the system space.
    pub bundle: Option<String>,
    /// Its file, for people; the bytes may no longer be what is there.
    pub path: PathBuf,
    /// With its dot: `.py`.
    pub extension: String,
    /// How much of the file is here.
    pub coverage: Coverage,
    /// The state of the file when it was read; none for what is embedded.
    pub identity: Option<FileIdentity>,
    /// The hash of the covered bytes.
    pub hash: Hash,
    /// What its signature line says; none only where verification was waived.
    pub signature: Option<SignatureLine>,
    /// The key that signed; none only where verification was waived.
    pub signer: Option<Arc<TrustedKey>>,
    /// Set in development mode: what is wrong, and was let pass with a warning.
    pub waived: Option<IntegrityError>,
    pub(crate) bytes: Arc<[u8]>,
    /// The bytes without the signature line.
    pub(crate) content: Arc<[u8]>,
}

impl Item {
    /// The bytes to run or show: the file with its signature line, so that line
    /// numbers are those of the file; of a partial item the covered element.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The covered bytes: the file without its signature line.
    pub fn content(&self) -> &[u8] {
        &self.content
    }
}
