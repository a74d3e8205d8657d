//! How the binary is linked.

use std::env;

/// A static program that may stand anywhere in memory moves itself at every
/// start, which takes a thirtieth of the time of a short `exec`. `lillux` is
/// a tool that serves whoever starts it and listens to nobody, so it stands at
/// a fixed place. Programs that use the library are linked as they like.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|feature| feature == "crt-static") {
        println!("cargo::rustc-link-arg-bin=lillux=-no-pie");
        println!("cargo::rustc-link-arg-bin=lillux=-static");
    }
}
