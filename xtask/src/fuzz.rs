//! `cargo xtask fuzz`: each fuzz target for a bounded time.
//!
//! The targets have cargo-fuzz's layout. They are built here without it,
//! because it asks for a nightly compiler, which only its sanitizers need:
//! libFuzzer itself is content with the coverage that stable can insert.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::place;
use crate::run::{cargo, output, program, show};
use crate::say::say;
use crate::tools::Tool;

/// What libFuzzer steers by, in the words of the stable compiler: what
/// `cargo fuzz --sanitizer none` passes. From the environment, because there
/// it wins over the flags of every configuration file.
const COVERAGE: &str = "--cfg fuzzing -C passes=sancov-module -C codegen-units=1 \
    -C llvm-args=-sanitizer-coverage-level=4 \
    -C llvm-args=-sanitizer-coverage-inline-8bit-counters \
    -C llvm-args=-sanitizer-coverage-pc-table \
    -C llvm-args=-sanitizer-coverage-trace-compares \
    -C llvm-args=-simplifycfg-branch-fold-threshold=0";

/// Runs every target, or the one named.
pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let wanted = Wanted::read(arguments)?;
    let folder = place::workspace().join("fuzz");
    let targets = wanted.among(targets(&folder)?)?;
    Tool::CppCompiler.install()?;
    let host = host()?;
    let build = build(&folder, &host)?;
    for target in targets {
        say!("\n== {target}: {} s", wanted.seconds);
        let corpus = folder.join("corpus").join(&target);
        let artifacts = folder.join("artifacts").join(&target);
        for folder in [&corpus, &artifacts] {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        }
        // What is found goes to the first folder; the seeds are only read.
        let seeds = folder.join("seeds").join(&target);
        let mut fuzzer = program(build.join(&target), [corpus]);
        fuzzer.args(seeds.is_dir().then_some(seeds));
        fuzzer
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg(format!("-max_total_time={}", wanted.seconds))
            .args(["-timeout=10", "-print_final_stats=1"]);
        show(&mut fuzzer).with_context(|| {
            format!(
                "`{target}` found something; the input is in {}",
                artifacts.display()
            )
        })?;
    }
    Ok(())
}

/// The manifest of the fuzz targets, which are not part of the workspace.
pub(crate) fn manifest() -> Option<PathBuf> {
    let manifest = place::workspace().join("fuzz/Cargo.toml");
    manifest.is_file().then_some(manifest)
}

/// What was asked for on the command line.
#[derive(Debug, PartialEq)]
struct Wanted {
    target: Option<String>,
    seconds: u32,
}

impl Wanted {
    fn read(arguments: &[String]) -> Result<Self> {
        let mut wanted = Self {
            target: None,
            seconds: 30,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--seconds" => {
                    let number = arguments.next().context("--seconds needs a number")?;
                    wanted.seconds = number.parse().with_context(|| {
                        format!("--seconds needs a whole number, not `{number}`")
                    })?;
                }
                flag if flag.starts_with('-') => {
                    bail!("cannot read `{flag}`; usage: cargo xtask fuzz [TARGET] [--seconds N]")
                }
                target => wanted.target = Some(target.to_owned()),
            }
        }
        Ok(wanted)
    }

    fn among(&self, targets: Vec<String>) -> Result<Vec<String>> {
        match &self.target {
            None => Ok(targets),
            Some(target) if targets.contains(target) => Ok(vec![target.clone()]),
            Some(other) => bail!(
                "no fuzz target `{other}`; there are: {}",
                targets.join(", ")
            ),
        }
    }
}

/// The targets: one file each in `fuzz_targets`.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let folder = folder.join("fuzz_targets");
    let cannot = || format!("cannot read the folder {}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(cannot)? {
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

/// Builds all targets and gives the folder they are in. Naming the machine we
/// are on keeps the coverage flags away from build scripts and macros.
fn build(folder: &Path, host: &str) -> Result<PathBuf> {
    let target_folder = place::kept("fuzz");
    // Not `--locked`: this lock file follows what lillux depends on.
    let mut build = cargo(["build", "--release", "--bins", "--target", host]);
    build
        .arg("--manifest-path")
        .arg(folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_folder)
        .env("RUSTFLAGS", COVERAGE);
    show(&mut build)?;
    Ok(target_folder.join(host).join("release"))
}

/// This machine, as Rust names it.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let about = output(&mut program(rustc, ["-vV"]))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Wanted> {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        Wanted::read(&arguments)
    }

    #[test]
    fn a_target_and_its_seconds_are_read_in_any_order() {
        let wanted = Wanted {
            target: Some("canonical_json".into()),
            seconds: 5,
        };
        assert_eq!(read(&["canonical_json", "--seconds", "5"]).unwrap(), wanted);
        assert_eq!(read(&["--seconds", "5", "canonical_json"]).unwrap(), wanted);
        assert_eq!(
            read(&[]).unwrap(),
            Wanted {
                target: None,
                seconds: 30
            }
        );
        assert!(read(&["--seconds", "soon"]).is_err());
        assert!(read(&["--second", "5"]).is_err());
    }

    #[test]
    fn a_target_that_is_not_there_is_refused_with_those_that_are() {
        let there = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(read(&[]).unwrap().among(there.clone()).unwrap(), there);
        let error = read(&["c"]).unwrap().among(there).unwrap_err().to_string();
        assert!(error.ends_with("there are: a, b"), "{error}");
    }
}
