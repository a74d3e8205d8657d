//! The built-in tools, called by an agent, in each sandbox.

mod agent;
mod edit;
mod long_output;
mod read_write;
mod search;
mod threads;
mod walk;
