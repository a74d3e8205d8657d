//! A small shell that starts no processes.
//!
//! It supports pipes, `&&`, `||`, `;`, redirections, quotes, variables, `*` and the
//! commands of [`builtins`]. It has no loops, functions or substitutions; a script that
//! uses them is rejected before anything runs. A script therefore ends after a bounded
//! number of commands, and every command is metered: no input makes the shell hang or
//! exhaust memory.
//!
//! The commands of a pipeline run one after the other, each reading the complete output
//! of the previous one.

mod builtins;
mod expand;
mod glob;
mod io;
mod lex;
mod meter;
mod parse;
mod run;
#[cfg(test)]
mod tests;

pub(crate) use run::{Invocation, Shell};
