//! Signatures beside files that cannot hold one.
//!
//! A language without comments, such as JSON, has no place for a signature
//! line. What a tool brings along in such a file is signed beside it: `x.json`
//! by the line in `x.json.sig`, which covers every byte of `x.json`. So is a file
//! whose name no item can have, such as `[page].ts`.

use lillux::Hash;
use lillux::durable::{self, Existing};
use lillux::keys::SigningKey;

use super::{Good, ItemError, Library, SignError};
use crate::id::ItemKind;
use crate::integrity::{IntegrityError, Problem};
use crate::item::Coverage;
use crate::lookup;
use crate::place::Excerpt;
use crate::signature::{Binding, SignatureError, SignatureLine};
use crate::space::{RawFile, Root, Space, SpaceError};
use crate::trust::{self, Trust};
use crate::verify;

/// What is put behind the name of a file to name its signature.
const SUFFIX: &str = ".sig";

impl Library {
    /// Whether a file of the tools is signed beside it: no extractor knows how
    /// its language writes a comment, or its name is none that an item can have.
    pub fn is_signed_beside(&self, relative: &str) -> bool {
        relative.strip_prefix("tools/").is_some_and(|inner| {
            !inner.ends_with(SUFFIX)
                && lookup::split_name(ItemKind::Tool, inner, &self.extractors).is_none()
        })
    }

    /// Verifies a file by the signature beside it.
    pub fn verify_beside(
        &self,
        root: &Root,
        relative: &str,
        trust: &Trust<'_>,
    ) -> Result<Good, ItemError> {
        verify_beside(root, relative, trust)
    }

    /// Signs a file beside it; none about a key, as [`sign`](Self::sign) does.
    pub fn sign_beside(
        &self,
        root: &Root,
        relative: &str,
        key: &SigningKey,
    ) -> Result<(), SignError> {
        if root.space() == Space::System {
            return Err(SignError::System(relative.to_owned()));
        }
        let bytes = there(root, relative)?.bytes;
        if trust::is_about_keys(&bytes) {
            return Err(SignError::AboutKeys {
                file: relative.to_owned(),
                path: root.path_of(relative),
            });
        }
        let hash = Hash::of(&bytes);
        let time = lillux::time::now_seconds();
        let line = SignatureLine::sign(hash, Binding::item(relative), key, &time, None);
        // Beside the file that the name leads to.
        let changing = || SpaceError::Changing(root.path_of(relative));
        let mut path = root
            .real_path(relative)?
            .ok_or_else(changing)?
            .into_os_string();
        path.push(SUFFIX);
        let path = std::path::PathBuf::from(path);
        durable::write(
            &path,
            format!("{line}\n").as_bytes(),
            0o644,
            Existing::Replace,
        )
        .map_err(|source| SignError::Write { path, source })
    }
}

/// Verifies a file by the signature beside it.
pub(super) fn verify_beside(
    root: &Root,
    relative: &str,
    trust: &Trust<'_>,
) -> Result<Good, ItemError> {
    let problem = |problem: Problem| {
        let path = root.path_of(relative);
        let item = path.display().to_string();
        let error = IntegrityError::new(item, path, Some(root.space()), problem, None);
        ItemError::Integrity(Box::new(error))
    };
    let raw = there(root, relative)?;
    let beside = root.read(&format!("{relative}{SUFFIX}"))?;
    let beside = beside.ok_or_else(|| problem(Problem::Line(SignatureError::Unsigned)))?;
    let line = line(&beside).map_err(|error| problem(Problem::Line(error)))?;
    let found = Hash::of(&raw.bytes);
    if found != line.hash {
        return Err(problem(Problem::Changed {
            expected: line.hash,
            found: Some(found),
        }));
    }
    verify::check_binding(&line, Some(&Binding::item(relative))).map_err(problem)?;
    let signer = verify::judge(&line, trust).map_err(problem)?;
    Ok(Good {
        hash: found,
        signer,
        coverage: Coverage::Whole,
    })
}

fn there(root: &Root, relative: &str) -> Result<RawFile, SpaceError> {
    let changing = || SpaceError::Changing(root.path_of(relative));
    root.read(relative)?.ok_or_else(changing)
}

fn line(beside: &RawFile) -> Result<SignatureLine, SignatureError> {
    let malformed = |what: String, offset: usize| SignatureError::Malformed {
        what,
        excerpt: Excerpt::at(&beside.bytes, offset),
    };
    let text = std::str::from_utf8(&beside.bytes)
        .map_err(|e| malformed("it is not UTF-8".to_owned(), e.valid_up_to()))?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.parse()
        .map_err(|e: crate::signature::LineError| malformed(e.what, e.offset))
}
