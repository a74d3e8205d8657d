//! The system space that is part of the program.

use crate::space::{Embedded, EmbeddedFile};

include!(concat!(env!("OUT_DIR"), "/system.rs"));
