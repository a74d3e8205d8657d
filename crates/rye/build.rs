//! Linker flags of the `rye` binary.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=order.ld");
    link_at_fixed_address();
    order_functions();
}

/// Links a static binary at a fixed address. A position-independent one relocates thousands of
/// addresses before `main`, which counts for a program that scripts call in loops.
fn link_at_fixed_address() {
    let features = cargo("CARGO_CFG_TARGET_FEATURE");
    if features.split(',').any(|feature| feature == "crt-static") {
        println!("cargo::rustc-link-arg-bin=rye=-no-pie");
        println!("cargo::rustc-link-arg-bin=rye=-static");
    }
}

/// Places the functions of a short call side by side. Such a call runs one megabyte of the
/// binary's thirty-five; scattered over all pages, the page faults take a quarter of its time.
/// `order.ld`, which `cargo xtask order` writes, lists the functions; the linker ignores unknown
/// names. Skipped in debug builds and with a custom linker, which may not read such scripts.
fn order_functions() {
    let is_supported = cargo("CARGO_CFG_TARGET_ARCH") == "x86_64"
        && cargo("CARGO_CFG_TARGET_OS") == "linux"
        && cargo("CARGO_CFG_TARGET_ENV") == "gnu";
    let flags = cargo("CARGO_ENCODED_RUSTFLAGS");
    let is_custom_linker = env::var_os("RUSTC_LINKER").is_some()
        || flags.contains("linker=")
        || flags.contains("fuse-ld");
    let is_optimised = cargo("OPT_LEVEL") != "0";
    if is_supported && is_optimised && !is_custom_linker {
        let list = Path::new(&cargo("CARGO_MANIFEST_DIR")).join("order.ld");
        println!("cargo::rustc-link-arg-bin=rye=-Wl,-T,{}", list.display());
    }
}

fn cargo(variable: &str) -> String {
    env::var(variable).unwrap_or_default()
}
