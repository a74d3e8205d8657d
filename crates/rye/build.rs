//! How the binary is linked.

use std::env;

/// A static program that may stand anywhere in memory moves itself at every
/// start: thousands of addresses are written before `main` begins. `rye` is
/// called in loops, so it stands at a fixed place.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|feature| feature == "crt-static") {
        println!("cargo::rustc-link-arg-bin=rye=-no-pie");
        println!("cargo::rustc-link-arg-bin=rye=-static");
    }
}
