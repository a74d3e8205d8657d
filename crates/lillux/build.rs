//! Sets the linker flags of the `lillux` binary.

use std::env;

/// Links the binary at a fixed address. A position-independent static binary relocates itself
/// at every start, which costs about 3 % of a short `exec`. `lillux` runs for the user who
/// starts it and reads no network input, so address randomisation matters little. This does
/// not affect programs that use the library.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|feature| feature == "crt-static") {
        println!("cargo::rustc-link-arg-bin=lillux=-no-pie");
        println!("cargo::rustc-link-arg-bin=lillux=-static");
    }
}
