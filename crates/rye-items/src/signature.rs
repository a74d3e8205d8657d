//! The line that signs a file: what it says, where it stands, what it covers.
//!
//! ```text
//! # rye:signed:2026-04-10T03:28:17Z:<sha256 hex>:<base64url signature>:<16 hex>
//! ```
//!
//! It is the file's first line, or the second where the first is `#!`, as a
//! comment of the file's language. It covers every byte of the file but itself
//! and its newline. The time and what may follow the fingerprint (`|provider@user`)
//! are the signer's word; no hash covers them.

mod error;
mod line;
mod name;
mod split;

pub use error::{LineError, SignatureError};
pub use line::{SignatureLine, provenance_problem};
pub(crate) use name::name;
pub(crate) use split::{Part, place_of, readable};
pub use split::{Split, sign, split, unsigned};
