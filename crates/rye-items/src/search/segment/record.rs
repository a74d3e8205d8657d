//! What is written down of one file.

use super::super::bytes::{Cursor, put_number, put_text};
use super::super::document::Document;
use crate::id::{ItemId, ItemKind};
use crate::space::FileIdentity;

/// The bytes of a file's identity.
pub(in super::super) const IDENTITY: usize = 56;
/// Kind, flags, three lengths, signer, end of texts, digest, identity.
pub(super) const FIXED: usize = 1 + 1 + 6 + 8 + 8 + 8 + IDENTITY;

const UNSETTLED: u8 = 1;
const INTACT: u8 = 2;
const SIGNED: u8 = 4;
const RUNS: u8 = 8;

/// Whether what was read may be used again as long as the file looks the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Settled {
    /// A change would show.
    Yes,
    /// It may have changed since without looking different, or could not be read.
    No,
}

/// A record, read.
#[derive(Debug, Clone)]
pub(in super::super) struct Record<'a> {
    pub(in super::super) kind: ItemKind,
    pub(in super::super) settled: Settled,
    pub(in super::super) intact: bool,
    /// The fingerprint in the signature line, as a number.
    pub(in super::super) signer: Option<u64>,
    /// Differs where the documents differ.
    pub(in super::super) digest: u64,
    pub(in super::super) identity: &'a [u8; IDENTITY],
    pub(in super::super) path: &'a str,
    pub(in super::super) id: &'a str,
    pub(in super::super) category: &'a str,
    pub(in super::super) risk: &'a str,
    rest: Cursor<'a>,
}

/// The texts of a record that are only shown.
#[derive(Debug)]
pub(in super::super) struct Rest<'a> {
    pub(in super::super) title: &'a str,
    pub(in super::super) description: &'a str,
    pub(in super::super) version: &'a str,
    pub(in super::super) signature: &'a str,
    pub(in super::super) problem: &'a str,
    pub(in super::super) tags: Vec<String>,
    pub(in super::super) parameters: Vec<String>,
}

impl<'a> Record<'a> {
    pub(super) fn read(fixed: &'a [u8; FIXED], texts: &'a [u8]) -> Option<Self> {
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
            settled: if flags & UNSETTLED == 0 {
                Settled::Yes
            } else {
                Settled::No
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

    /// What files are ordered by.
    pub(in super::super) fn order(&self) -> (ItemKind, &'a str, &'a str) {
        (self.kind, self.id, self.path)
    }

    /// What is before the last slash of the id.
    pub(in super::super) fn folder(&self) -> &'a str {
        self.id.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// What is behind the last slash of the id.
    pub(in super::super) fn name(&self) -> &'a str {
        self.id.rsplit('/').next().unwrap_or(self.id)
    }

    pub(in super::super) fn rest(&self) -> Option<Rest<'a>> {
        let mut texts = self.rest.clone();
        Some(Rest {
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
    let count = texts.number()?;
    // Each takes a byte at least, so a wrong count ends with the bytes.
    (0..count)
        .map(|_| texts.text().map(str::to_owned))
        .collect()
}

/// Where the texts of a record end.
pub(super) fn texts_end(fixed: &[u8; FIXED]) -> Option<usize> {
    usize::try_from(Cursor(&fixed[16..]).u64()?).ok()
}

/// Whether something runs the file.
pub(super) fn runs(fixed: &[u8; FIXED]) -> bool {
    fixed[1] & RUNS != 0
}

/// How many words name, description and body have.
pub(super) fn lengths(fixed: &[u8; FIXED]) -> [u16; 3] {
    [2, 4, 6].map(|at| u16::from_le_bytes([fixed[at], fixed[at + 1]]))
}

/// The part of a record that has one size. Where the texts end is filled in later.
pub(super) fn fixed(
    kind: ItemKind,
    document: &Document,
    settled: Settled,
    lengths: [u16; 3],
    digest: u64,
    identity: Option<&FileIdentity>,
) -> [u8; FIXED] {
    let claim = document.signature.as_ref();
    let signer = claim.map(|claim| signer(&claim.line.fingerprint.to_string()));
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let flags = flag(settled == Settled::No, UNSETTLED)
        | flag(claim.is_some_and(|claim| claim.intact), INTACT)
        | flag(claim.is_some(), SIGNED)
        | flag(document.runs, RUNS);
    let kind = ItemKind::ALL.iter().position(|k| *k == kind);
    let mut bytes = [0; FIXED];
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

/// The same part, with the place where the texts end.
pub(super) fn ending_at(mut fixed: [u8; FIXED], end: usize) -> [u8; FIXED] {
    fixed[16..24].copy_from_slice(&(end as u64).to_le_bytes());
    fixed
}

/// A fingerprint as a number.
pub(in super::super) fn signer(fingerprint: &str) -> u64 {
    u64::from_str_radix(fingerprint, 16).unwrap_or_default()
}

/// The texts of a record.
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
        put_text(&mut bytes, text);
    }
    for list in [&document.tags, &document.parameters] {
        put_number(&mut bytes, list.len() as u64);
        for text in list {
            put_text(&mut bytes, text);
        }
    }
    bytes
}

/// A file's identity as bytes; zeros for what is embedded.
pub(in super::super) fn identity_bytes(identity: Option<&FileIdentity>) -> [u8; IDENTITY] {
    let mut bytes = [0; IDENTITY];
    if let Some(identity) = identity {
        bytes[..8].copy_from_slice(&identity.device.to_le_bytes());
        bytes[8..16].copy_from_slice(&identity.inode.to_le_bytes());
        bytes[16..24].copy_from_slice(&identity.size.to_le_bytes());
        bytes[24..40].copy_from_slice(&identity.modified.to_le_bytes());
        bytes[40..].copy_from_slice(&identity.changed.to_le_bytes());
    }
    bytes
}
