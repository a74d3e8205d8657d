//! A small kernel for programs that run other programs.

pub mod canonical;
pub mod cas;
mod durable;
pub mod envelope;
mod error;
pub mod hash;
pub mod keys;
pub mod process;
pub mod time;
pub mod watch;

pub use error::PathError;
pub use hash::Hash;
