//! A small shell that starts no processes.
//!
//! It runs the usual part of `bash`: `if`, `for`, `while`, `until`, `case`, functions, pipes, `&&`,
//! `||`, redirections, here-documents, quotes, `${…}`, `$(…)`, `$((…))`, patterns and braces, with
//! the commands of [`builtins`]. It has no background jobs, arrays or `[[ … ]]`; a script that uses
//! them is rejected before anything runs. Every step is metered, and nesting and output are
//! bounded: no script makes the shell hang or exhaust memory or the stack.
//!
//! The commands of a pipeline run one after the other, each reading the complete output
//! of the previous one.

mod arithmetic;
mod braces;
mod builtins;
mod expand;
mod io;
mod meter;
mod parse;
mod pattern;
mod run;
mod syntax;
#[cfg(test)]
mod tests;

pub(crate) use run::{Invocation, Shell};
