//! The web console: type check, vendored file, and tests in a browser.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::output::print_line;
use crate::paths;
use crate::process::{self, cargo, program};
use crate::tools::{self, Tool};

/// The vendored file, relative to the root of the repository.
const VENDORED: &str = "web/vendor/preact-htm.js";

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    Tool::Console.install()?;
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => check(),
        ["--vendor"] => bundle(&paths::workspace().join(VENDORED)),
        ["--screenshots"] => tests("pages", &[("RYE_SCREENSHOTS", "docs/console")]),
        _ => bail!("usage: cargo xtask console [--vendor | --screenshots]"),
    }
}

/// All checks of the console.
pub(crate) fn check() -> Result<()> {
    check_vendored()?;
    let compiler = tools::console()?.join(".bin/tsc");
    process::run(program(compiler, ["--project", "web"]).current_dir(paths::workspace()))?;
    tests("", &[])
}

/// Builds the vendored file.
fn bundle(output: &Path) -> Result<()> {
    let modules = tools::console()?;
    let entry = paths::workspace().join("web/vendor/entry.js");
    let mut build = program(modules.join(".bin/esbuild"), ["--bundle", "--format=esm"]);
    build
        .args(["--minify", "--legal-comments=none", "--log-level=warning"])
        .arg(format!("--outfile={}", output.display()))
        .arg(entry)
        .env("NODE_PATH", modules);
    process::run(&mut build)
}

/// Fails if the vendored file is not what the pinned packages give.
fn check_vendored() -> Result<()> {
    let rebuilt = paths::cache_dir("tools").join("preact-htm.js");
    bundle(&rebuilt)?;
    let read =
        |path: PathBuf| fs::read(&path).with_context(|| format!("cannot read {}", path.display()));
    if read(rebuilt)? != read(paths::workspace().join(VENDORED))? {
        bail!("{VENDORED} is not the bundle of its packages\n  hint: cargo xtask console --vendor");
    }
    print_line!("{VENDORED} is the bundle of its packages");
    Ok(())
}

/// Runs the tests in a browser whose file name contains `filter`.
fn tests(filter: &str, variables: &[(&str, &str)]) -> Result<()> {
    process::run(&mut cargo(["build", "--locked", "--package", "rye"]))?;
    let folder = paths::workspace().join("web/tests");
    let entries = fs::read_dir(&folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".test.mjs") && name.contains(filter)
    });
    files.sort();
    let mut node: Command = program("node", ["--test", "--test-concurrency=1"]);
    node.args(files)
        .current_dir(paths::workspace())
        .env("RYE_BIN", paths::built_program("debug", "rye")?)
        .env("RYE_CONSOLE_MODULES", tools::console()?)
        .envs(variables.iter().copied());
    process::run(&mut node)
}
