//! The system space that is part of the program.

use crate::space::{EmbeddedBundle, EmbeddedFile};

include!(concat!(env!("OUT_DIR"), "/system.rs"));
