//! Signature lines: format, position in the file, and the bytes they cover.
//!
//! ```text
//! # rye:signed:2026-04-10T03:28:17Z:<sha256 hex>:<base64url signature>:<16 hex>;item=tools/a.py
//! ```
//!
//! The line is a comment in the file's language. It is the first line of the file, or the second
//! after `#!`. The hash covers every byte of the file except the line and its newline.
//!
//! A line with a [`Binding`] (`;item=PATH`) is a *bound* signature: it covers the purpose,
//! the path, the time, the hash, and the provenance (`|provider@user`) that may follow. It
//! does not verify for a file with another path. A line without a binding covers only the hash;
//! published items have this form.

mod binding;
mod error;
mod line;
mod split;

pub use binding::{ACCEPTANCE, APPROVAL, Binding, ITEM, REVOCATION, TRUST};
pub use error::{LineError, SignatureError};
pub(crate) use line::cache_key;
pub use line::{SignatureLine, provenance_problem};
pub(crate) use split::{Part, normalize_comments, part_offset};
pub use split::{SignedFile, sign, split, strip_signature};
