//! How the binary is linked.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=order.ld");
    stand_at_a_fixed_place();
    keep_together_what_a_call_runs();
}

/// A static program that may stand anywhere in memory moves itself at every
/// start: thousands of addresses are written before `main` begins. `rye` is
/// called in loops, so it stands at a fixed place.
fn stand_at_a_fixed_place() {
    let features = cargo("CARGO_CFG_TARGET_FEATURE");
    if features.split(',').any(|feature| feature == "crt-static") {
        println!("cargo::rustc-link-arg-bin=rye=-no-pie");
        println!("cargo::rustc-link-arg-bin=rye=-static");
    }
}

/// A short call runs a megabyte of the program's thirty-five, here and there in all
/// of it, and every place it comes to first is a page fault: together they are a
/// quarter of its time. So `order.ld` names those functions (`cargo xtask order`
/// writes it), and the linker puts them side by side. A name that is not there is
/// passed over. A linker that somebody chose may not read such scripts, and goes
/// without; so does a build to debug with.
fn keep_together_what_a_call_runs() {
    let is_usual = cargo("CARGO_CFG_TARGET_ARCH") == "x86_64"
        && cargo("CARGO_CFG_TARGET_OS") == "linux"
        && cargo("CARGO_CFG_TARGET_ENV") == "gnu";
    let flags = cargo("CARGO_ENCODED_RUSTFLAGS");
    let is_chosen = env::var_os("RUSTC_LINKER").is_some()
        || flags.contains("linker=")
        || flags.contains("fuse-ld");
    let is_fast = cargo("OPT_LEVEL") != "0";
    if is_usual && is_fast && !is_chosen {
        let list = Path::new(&cargo("CARGO_MANIFEST_DIR")).join("order.ld");
        println!("cargo::rustc-link-arg-bin=rye=-Wl,-T,{}", list.display());
    }
}

fn cargo(variable: &str) -> String {
    env::var(variable).unwrap_or_default()
}
