//! The index record of one file.

use super::super::bytes::{Cursor, write_str, write_varint};
use super::super::document::Document;
use crate::id::{ItemId, ItemKind};
use crate::space::FileIdentity;

/// Length of an encoded [`FileIdentity`].
pub(in super::super) const IDENTITY_LEN: usize = 56;
/// Kind, flags, three word counts, signer, end of texts, digest, identity.
pub(super) const RECORD_LEN: usize = 1 + 1 + 6 + 8 + 8 + 8 + IDENTITY_LEN;

const RACY: u8 = 1;
const INTACT: u8 = 2;
const SIGNED: u8 = 4;
const RUNNABLE: u8 = 8;

/// Whether the record may be reused while the file's identity is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Timestamps {
    /// Any change must alter the timestamps.
    Reliable,
    /// The file may have changed without a visible difference, or could not be read.
    Racy,
}

/// A decoded record.
#[derive(Debug, Clone)]
pub(in super::super) struct Record<'a> {
    pub(in super::super) kind: ItemKind,
    pub(in super::super) timestamps: Timestamps,
    pub(in super::super) intact: bool,
    /// The key fingerprint in the signature line, as an integer.
    pub(in super::super) signer: Option<u64>,
    /// Differs if the documents differ.
    pub(in super::super) digest: u64,
    pub(in super::super) identity: &'a [u8; IDENTITY_LEN],
    pub(in super::super) path: &'a str,
    pub(in super::super) id: &'a str,
    pub(in super::super) category: &'a str,
    pub(in super::super) risk: &'a str,
    rest: Cursor<'a>,
}

/// The strings of a record that are only displayed.
#[derive(Debug)]
pub(in super::super) struct DisplayTexts<'a> {
    pub(in super::super) title: &'a str,
    pub(in super::super) description: &'a str,
    pub(in super::super) version: &'a str,
    pub(in super::super) signature: &'a str,
    pub(in super::super) problem: &'a str,
    pub(in super::super) tags: Vec<String>,
    pub(in super::super) parameters: Vec<String>,
}

impl<'a> Record<'a> {
    pub(super) fn read(fixed: &'a [u8; RECORD_LEN], texts: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor(fixed);
        let &[kind, flags] = cursor.array()?;
        cursor.take(6)?;
        let signer = cursor.u64()?;
        cursor.u64()?;
        let digest = cursor.u64()?;
        let identity = cursor.array()?;
        let mut texts = Cursor(texts);
        Some(Self {
            kind: *ItemKind::ALL.get(usize::from(kind))?,
            timestamps: if flags & RACY == 0 {
                Timestamps::Reliable
            } else {
                Timestamps::Racy
            },
            intact: flags & INTACT != 0,
            signer: (flags & SIGNED != 0).then_some(signer),
            digest,
            identity,
            path: texts.text()?,
            id: texts.text()?,
            category: texts.text()?,
            risk: texts.text()?,
            rest: texts,
        })
    }

    /// Sort key.
    pub(in super::super) fn order(&self) -> (ItemKind, &'a str, &'a str) {
        (self.kind, self.id, self.path)
    }

    /// The id up to the last slash.
    pub(in super::super) fn dir(&self) -> &'a str {
        self.id.rsplit_once('/').map_or("", |(dir, _)| dir)
    }

    /// The id after the last slash.
    pub(in super::super) fn name(&self) -> &'a str {
        self.id.rsplit('/').next().unwrap_or(self.id)
    }

    pub(in super::super) fn rest(&self) -> Option<DisplayTexts<'a>> {
        let mut texts = self.rest.clone();
        Some(DisplayTexts {
            title: texts.text()?,
            description: texts.text()?,
            version: texts.text()?,
            signature: texts.text()?,
            problem: texts.text()?,
            tags: list(&mut texts)?,
            parameters: list(&mut texts)?,
        })
    }
}

fn list(texts: &mut Cursor<'_>) -> Option<Vec<String>> {
    let count = texts.varint()?;
    // Each element takes at least one byte, so a wrong count stops at the end of the
    // input.
    (0..count)
        .map(|_| texts.text().map(str::to_owned))
        .collect()
}

/// End offset of a record's texts.
pub(super) fn texts_end(fixed: &[u8; RECORD_LEN]) -> Option<usize> {
    usize::try_from(Cursor(&fixed[16..]).u64()?).ok()
}

/// Whether the file can be executed.
pub(super) fn is_runnable(fixed: &[u8; RECORD_LEN]) -> bool {
    fixed[1] & RUNNABLE != 0
}

/// Word counts of name, description and body.
pub(super) fn lengths(fixed: &[u8; RECORD_LEN]) -> [u16; 3] {
    [2, 4, 6].map(|at| u16::from_le_bytes([fixed[at], fixed[at + 1]]))
}

/// Encodes the fixed-size part of a record. [`with_texts_end`] fills in the end of the
/// texts.
pub(super) fn fixed(
    kind: ItemKind,
    document: &Document,
    timestamps: Timestamps,
    lengths: [u16; 3],
    digest: u64,
    identity: Option<&FileIdentity>,
) -> [u8; RECORD_LEN] {
    let claim = document.signature.as_ref();
    let signer = claim.map(|claim| signer(&claim.line.fingerprint.to_string()));
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let flags = flag(timestamps == Timestamps::Racy, RACY)
        | flag(claim.is_some_and(|claim| claim.intact), INTACT)
        | flag(claim.is_some(), SIGNED)
        | flag(document.runnable, RUNNABLE);
    let kind = ItemKind::ALL.iter().position(|k| *k == kind);
    let mut bytes = [0; RECORD_LEN];
    bytes[0] = kind.and_then(|k| u8::try_from(k).ok()).unwrap_or(u8::MAX);
    bytes[1] = flags;
    for (at, length) in [2, 4, 6].into_iter().zip(lengths) {
        bytes[at..at + 2].copy_from_slice(&length.to_le_bytes());
    }
    bytes[8..16].copy_from_slice(&signer.unwrap_or_default().to_le_bytes());
    bytes[24..32].copy_from_slice(&digest.to_le_bytes());
    bytes[32..].copy_from_slice(&identity_bytes(identity));
    bytes
}

/// Sets the end offset of the texts.
pub(super) fn with_texts_end(mut fixed: [u8; RECORD_LEN], end: usize) -> [u8; RECORD_LEN] {
    fixed[16..24].copy_from_slice(&(end as u64).to_le_bytes());
    fixed
}

/// Converts a hexadecimal fingerprint to an integer.
pub(in super::super) fn signer(fingerprint: &str) -> u64 {
    u64::from_str_radix(fingerprint, 16).unwrap_or_default()
}

/// Encodes the strings of a record.
pub(super) fn texts(path: &str, id: &ItemId, document: &Document) -> Vec<u8> {
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    let line = document.signature.as_ref();
    let line = line.map(|claim| claim.line.to_string()).unwrap_or_default();
    let mut bytes = Vec::new();
    for text in [
        path,
        id.as_str(),
        &optional(&document.category),
        &optional(&document.risk),
        &document.title,
        &document.description,
        &optional(&document.version),
        &line,
        &optional(&document.problem),
    ] {
        write_str(&mut bytes, text);
    }
    for list in [&document.tags, &document.parameters] {
        write_varint(&mut bytes, list.len() as u64);
        for text in list {
            write_str(&mut bytes, text);
        }
    }
    bytes
}

/// Encodes a file identity; all zeros for embedded files.
pub(in super::super) fn identity_bytes(identity: Option<&FileIdentity>) -> [u8; IDENTITY_LEN] {
    let mut bytes = [0; IDENTITY_LEN];
    if let Some(identity) = identity {
        bytes[..8].copy_from_slice(&identity.device.to_le_bytes());
        bytes[8..16].copy_from_slice(&identity.inode.to_le_bytes());
        bytes[16..24].copy_from_slice(&identity.size.to_le_bytes());
        bytes[24..40].copy_from_slice(&identity.modified.to_le_bytes());
        bytes[40..].copy_from_slice(&identity.changed.to_le_bytes());
    }
    bytes
}
