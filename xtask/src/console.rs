//! The web console: type check, vendored file, and tests in a browser.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::output::print_line;
use crate::paths;
use crate::process::{self, cargo, program};
use crate::tools::{self, Tool};

/// The vendored file, relative to the root of the repository.
const VENDORED: &str = "web/vendor/preact-htm.js";

/// Types of the API, and the document that they are generated from.
const TYPES: &str = "web/openapi.d.ts";
const OPENAPI: &str = "docs/reference/openapi.json";

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    Tool::Console.install()?;
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => check(),
        ["--vendor"] => bundle(&paths::workspace().join(VENDORED)),
        ["--types"] => generate_types(&paths::workspace().join(TYPES)),
        ["--only", filter] => tests(filter, &[]),
        ["--screenshots"] => tests("pages", &[("RYE_SCREENSHOTS", "docs/console")]),
        _ => bail!("usage: cargo xtask console [--vendor | --types | --only FILE | --screenshots]"),
    }
}

/// All checks of the console.
pub(crate) fn check() -> Result<()> {
    check_generated(VENDORED, "--vendor", bundle)?;
    check_generated(TYPES, "--types", generate_types)?;
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

/// Generates the types of the API.
fn generate_types(output: &Path) -> Result<()> {
    let document = paths::workspace().join(OPENAPI);
    let mut generate = program(tools::openapi_types()?, ["--default-non-nullable=false"]);
    generate.arg(document).arg("--output").arg(output);
    process::run(&mut generate)
}

/// Fails if a file is not what `generate` gives.
fn check_generated(
    file: &str,
    option: &str,
    generate: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let path = paths::workspace().join(file);
    let name = path.file_name().unwrap_or_default();
    let generated = paths::cache_dir("tools").join(name);
    generate(&generated)?;
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    if read(&generated)? != read(&path)? {
        bail!("{file} is out of date\n  hint: cargo xtask console {option}");
    }
    print_line!("{file} is up to date");
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
