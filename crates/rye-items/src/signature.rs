//! The line that signs a file: what it says, where it stands, what it covers.
//!
//! ```text
//! # rye:signed:2026-04-10T03:28:17Z:<sha256 hex>:<base64url signature>:<16 hex>;item=tools/a.py
//! ```
//!
//! It is the file's first line, or the second where the first is `#!`, as a
//! comment of the file's language. The hash covers every byte of the file but the line
//! and its newline.
//!
//! A line with a [`Binding`] (`;item=PATH`) is a *bound* signature: it covers the purpose,
//! the path, the time, the hash, and the provenance (`|provider@user`) that may follow. It
//! does not verify for a file with another path. A line without one is the published form:
//! its signature covers the hash alone.

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
