//! The system space: items that `build.rs` signs and embeds in the binary.

use crate::space::{EmbeddedBundle, EmbeddedFile};

include!(concat!(env!("OUT_DIR"), "/system.rs"));
