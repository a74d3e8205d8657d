//! `cargo xtask fuzz`: runs each fuzz target for a limited time.
//!
//! The targets have the layout of cargo-fuzz, but are built without it: cargo-fuzz needs a
//! nightly compiler for sanitizers, while libFuzzer only needs the coverage instrumentation
//! that stable provides.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::output::print_line;
use crate::paths;
use crate::process::{capture, cargo, program, run};
use crate::tools::Tool;

/// Coverage instrumentation, as `cargo fuzz --sanitizer none` passes it. Set through the
/// environment, which takes precedence over all configuration files.
const COVERAGE_FLAGS: &str = "--cfg fuzzing -C passes=sancov-module -C codegen-units=1 \
    -C llvm-args=-sanitizer-coverage-level=4 \
    -C llvm-args=-sanitizer-coverage-inline-8bit-counters \
    -C llvm-args=-sanitizer-coverage-pc-table \
    -C llvm-args=-sanitizer-coverage-trace-compares \
    -C llvm-args=-simplifycfg-branch-fold-threshold=0";

/// Runs every target, or the one named.
pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let options = FuzzOptions::parse(arguments)?;
    let directory = paths::workspace().join("fuzz");
    let targets = options.select(targets(&directory)?)?;
    Tool::CppCompiler.install()?;
    let host = host()?;
    let build = build(&directory, &host)?;
    for target in targets {
        print_line!("\n== {target}: {} s", options.seconds);
        let corpus = directory.join("corpus").join(&target);
        let artifacts = directory.join("artifacts").join(&target);
        for directory in [&corpus, &artifacts] {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot create the directory {}", directory.display()))?;
        }
        // libFuzzer writes new inputs to the first directory and only reads the others.
        let seeds = directory.join("seeds").join(&target);
        let mut fuzzer = program(build.join(&target), [corpus]);
        fuzzer.args(seeds.is_dir().then_some(seeds));
        fuzzer
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg(format!("-max_total_time={}", options.seconds))
            .args(["-timeout=10", "-print_final_stats=1"]);
        run(&mut fuzzer).with_context(|| {
            format!("`{target}` failed; the input is in {}", artifacts.display())
        })?;
    }
    Ok(())
}

/// The manifest of the fuzz targets, which are not part of the workspace.
pub(crate) fn manifest() -> Option<PathBuf> {
    let manifest = paths::workspace().join("fuzz/Cargo.toml");
    manifest.is_file().then_some(manifest)
}

/// Command-line options.
#[derive(Debug, PartialEq)]
struct FuzzOptions {
    target: Option<String>,
    seconds: u32,
}

impl FuzzOptions {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            target: None,
            seconds: 30,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--seconds" => {
                    let number = arguments.next().context("--seconds needs a number")?;
                    options.seconds = number.parse().with_context(|| {
                        format!("--seconds needs a whole number, not `{number}`")
                    })?;
                }
                flag if flag.starts_with('-') => {
                    bail!("unknown option `{flag}`; usage: cargo xtask fuzz [TARGET] [--seconds N]")
                }
                target => options.target = Some(target.to_owned()),
            }
        }
        Ok(options)
    }

    fn select(&self, targets: Vec<String>) -> Result<Vec<String>> {
        match &self.target {
            None => Ok(targets),
            Some(target) if targets.contains(target) => Ok(vec![target.clone()]),
            Some(other) => bail!(
                "unknown fuzz target `{other}`; available: {}",
                targets.join(", ")
            ),
        }
    }
}

/// Names of the targets: one file each in `fuzz_targets`.
fn targets(directory: &Path) -> Result<Vec<String>> {
    let directory = directory.join("fuzz_targets");
    let cannot = || format!("cannot read the directory {}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).with_context(cannot)? {
        let file = entry.with_context(cannot)?.path();
        if let (Some(name), Some("rs")) = (
            file.file_stem(),
            file.extension().and_then(|kind| kind.to_str()),
        ) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Builds all targets and returns their directory. `--target` keeps the coverage flags away
/// from build scripts and procedural macros.
fn build(directory: &Path, host: &str) -> Result<PathBuf> {
    let target_folder = paths::cache_dir("fuzz");
    // Not `--locked`: the dependencies of lillux determine this lock file.
    let mut build = cargo(["build", "--release", "--bins", "--target", host]);
    build
        .arg("--manifest-path")
        .arg(directory.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_folder)
        .env("RUSTFLAGS", COVERAGE_FLAGS);
    run(&mut build)?;
    Ok(target_folder.join(host).join("release"))
}

/// The host's target triple.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = capture(&mut program(rustc, ["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<FuzzOptions> {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        FuzzOptions::parse(&arguments)
    }

    #[test]
    fn target_and_seconds_are_parsed_in_any_order() {
        let options = FuzzOptions {
            target: Some("canonical_json".into()),
            seconds: 5,
        };
        assert_eq!(
            parse(&["canonical_json", "--seconds", "5"]).unwrap(),
            options
        );
        assert_eq!(
            parse(&["--seconds", "5", "canonical_json"]).unwrap(),
            options
        );
        assert_eq!(
            parse(&[]).unwrap(),
            FuzzOptions {
                target: None,
                seconds: 30
            }
        );
        assert!(parse(&["--seconds", "soon"]).is_err());
        assert!(parse(&["--second", "5"]).is_err());
    }

    #[test]
    fn unknown_target_is_refused_with_the_available_ones() {
        let available = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(
            parse(&[]).unwrap().select(available.clone()).unwrap(),
            available
        );
        let error = parse(&["c"])
            .unwrap()
            .select(available)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("available: a, b"), "{error}");
    }
}
