//! Prints speed tables.
fn main() {}
