//! A small shell that starts no processes.
//!
//! It knows pipes, `&&`, `||`, `;`, redirections, quotes, variables and `*`, and the
//! commands of [`builtins`]. It has no loops, functions or substitutions and says so
//! rather than guess: what it cannot read it does not run. So a script ends after as many
//! commands as it has, each of which is metered; whatever is fed to it, it neither hangs
//! nor fills the memory.
//!
//! The commands of a pipe run one after the other, each with all that the one before
//! wrote.

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

pub(crate) use run::{Shell, Task};
