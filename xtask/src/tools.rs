//! Programs that the chores need and a fresh machine may lack.
//!
//! System packages come from apt; the rest from the registries of pip, npm and
//! cargo, in pinned versions, and is kept in `target/tools`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::place;
use crate::run;
use crate::say::say;

/// Spelling checker, a ready-made wheel of a Rust program.
const TYPOS: &str = "1.51.1";
/// The ready-made wheel is 0.14.2, which panics on the package ids that today's
/// cargo prints; so this one is built, once. Unoptimised that takes a minute
/// instead of three, and the check still ends within two seconds.
const CARGO_DENY: &str = "0.20.2";
/// A Node that runs TypeScript by itself, whatever the machine's own is.
const NODE_22: &str = "22.23.3";
/// What runs TypeScript on an older Node.
const TSX: &str = "4.23.15";
/// What MCP servers and clients are held to, by those who write the protocol.
const CONFORMANCE: &str = "0.2.0-alpha.12";
/// The official MCP clients: of Python, of TypeScript, and the one to look around with.
const PYTHON_SDK: &str = "2.3.0";
const TYPESCRIPT_SDK: &str = "1.32.2";
const INSPECTOR: &str = "2.12.0";
/// What most MCP servers are written with, to measure ours beside.
const FASTMCP: &str = "4.1.2";
/// Another runtime of agents, to measure ours beside.
const PI: &str = "0.73.1";
/// Another walker of graphs, and what it keeps its state with, to measure ours beside.
const LANGGRAPH: &str = "1.2.20";
const LANGGRAPH_SQLITE: &str = "3.1.2";

/// Something a step needs before it can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Rustfmt,
    Clippy,
    Typos,
    CargoDeny,
    /// What the tests run as other people's programs.
    TestPrograms,
    /// Node 22, beside the machine's own.
    Node22,
    /// TypeScript for the machine's own Node.
    Tsx,
    /// The suite of MCP.
    Conformance,
    /// Clients of other people that tests let call our MCP server.
    McpClients,
    /// Programs of npm that tests run.
    NpmPackages,
    /// What libFuzzer is compiled with.
    CppCompiler,
}

/// Programs that tests call, with the Debian package of each.
const TEST_PROGRAMS: [(&str, &str); 8] = [
    ("node", "nodejs"),
    ("npm", "npm"),
    ("openssl", "openssl"),
    ("ps", "procps"),
    ("python3", "python3"),
    ("ruby", "ruby"),
    ("strace", "strace"),
    ("unshare", "util-linux"),
];

/// A package of npm whose program tests run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NpmPackage {
    /// The variable in which tests find the program.
    pub(crate) variable: &'static str,
    name: &'static str,
    version: &'static str,
    program: &'static str,
}

/// All of them. A test that does not find its variable says how to run it.
pub(crate) const NPM_PACKAGES: [NpmPackage; 1] = [NpmPackage {
    variable: "RYE_TEST_MCP_EVERYTHING",
    name: "@modelcontextprotocol/server-everything",
    version: "2026.8.31",
    program: "mcp-server-everything",
}];

impl Tool {
    /// Makes sure that the tool is there.
    pub(crate) fn install(self) -> Result<()> {
        match self {
            Tool::Rustfmt => rust_component("rustfmt", "cargo-fmt"),
            Tool::Clippy => rust_component("clippy", "cargo-clippy"),
            Tool::Typos => typos().map(drop),
            Tool::CargoDeny => cargo_deny().map(drop),
            Tool::TestPrograms => system_packages(&TEST_PROGRAMS),
            Tool::Node22 => node22().map(drop),
            Tool::Tsx => tsx().map(drop),
            Tool::Conformance => conformance().map(drop),
            Tool::McpClients => mcp_clients(),
            Tool::NpmPackages => NPM_PACKAGES
                .iter()
                .try_for_each(|package| package.program().map(drop)),
            Tool::CppCompiler => system_packages(&[("c++", "g++")]),
        }
    }
}

/// The spelling checker's path, installed if it is not there yet.
pub(crate) fn typos() -> Result<PathBuf> {
    kept("typos", TYPOS, |folder| {
        let mut pip = pip_install(python_with_pip()?, folder);
        pip.args(["--no-deps", "--only-binary", ":all:"])
            .arg(format!("typos=={TYPOS}"));
        run::show(&mut pip)
    })
}

/// The licence checker's path, built if it is not there yet.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    kept("cargo-deny", CARGO_DENY, |folder| {
        say!("building cargo-deny {CARGO_DENY}, once; about a minute on two cores");
        let mut cargo = run::cargo(["install", "--quiet", "--locked", "--debug", "cargo-deny"]);
        cargo
            .args(["--no-track", "--version"])
            .arg(format!("={CARGO_DENY}"));
        cargo
            .arg("--root")
            .arg(folder)
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        run::show(&mut cargo)
    })
}

/// The path of a Node 22, installed if it is not there yet.
pub(crate) fn node22() -> Result<PathBuf> {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => bail!("npm has no Node 22 for {other}"),
    };
    kept("node", NODE_22, |folder| {
        npm_install(folder, &format!("node-linux-{machine}@{NODE_22}"))
    })
}

/// The path of tsx, installed if it is not there yet.
pub(crate) fn tsx() -> Result<PathBuf> {
    kept("tsx", TSX, |folder| {
        npm_install(folder, &format!("tsx@{TSX}"))
    })
}

/// The path of the suite, a program of Node 22, installed if it is not there yet.
pub(crate) fn conformance() -> Result<PathBuf> {
    kept("conformance", CONFORMANCE, |folder| {
        let package = format!("@modelcontextprotocol/conformance@{CONFORMANCE}");
        npm_install(folder, &package)
    })
}

/// The folder of another runtime of agents, installed if it is not there yet.
pub(crate) fn pi() -> Result<PathBuf> {
    let manifest = "node_modules/@mariozechner/pi-agent-core/package.json";
    kept_file("pi-agent-core", PI, manifest, |folder| {
        npm_install(folder, &format!("@mariozechner/pi-agent-core@{PI}"))
    })?;
    Ok(place::kept("tools").join(format!("pi-agent-core-{PI}")))
}

fn mcp_clients() -> Result<()> {
    kept("mcp-inspector", INSPECTOR, |folder| {
        let package = format!("@modelcontextprotocol/inspector@{INSPECTOR}");
        npm_install(folder, &package)
    })?;
    let sdk = "node_modules/@modelcontextprotocol/sdk/package.json";
    kept_file("typescript-sdk", TYPESCRIPT_SDK, sdk, |folder| {
        let package = format!("@modelcontextprotocol/sdk@{TYPESCRIPT_SDK}");
        npm_install(folder, &package)
    })?;
    kept_file("python-sdk", PYTHON_SDK, "bin/python", |folder| {
        python_packages(folder, &[format!("mcp=={PYTHON_SDK}")])
    })
    .map(drop)
}

/// The folder of FastMCP, with the Python that runs it in `bin`, installed if it is not
/// there yet.
pub(crate) fn fastmcp() -> Result<PathBuf> {
    kept_file("fastmcp", FASTMCP, "bin/python", |folder| {
        python_packages(folder, &[format!("fastmcp=={FASTMCP}")])
    })?;
    Ok(place::kept("tools").join(format!("fastmcp-{FASTMCP}")))
}

/// The folder of another walker of graphs, installed if it is not there yet.
pub(crate) fn langgraph() -> Result<PathBuf> {
    kept_file("langgraph", LANGGRAPH, "bin/python", |folder| {
        let sqlite = format!("langgraph-checkpoint-sqlite=={LANGGRAPH_SQLITE}");
        python_packages(folder, &[format!("langgraph=={LANGGRAPH}"), sqlite])
    })?;
    Ok(place::kept("tools").join(format!("langgraph-{LANGGRAPH}")))
}

/// Installs packages into a folder, beside a link to the Python that they are for.
fn python_packages(folder: &Path, packages: &[String]) -> Result<()> {
    let python = python_with_pip()?;
    run::show(pip_install(python, folder).args(packages))?;
    // Parts of them are compiled for this one Python.
    let own = ["-c", "import sys; print(sys.executable)"];
    let own = run::output(&mut run::program(python, own))?;
    let link = folder.join("bin/python");
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("cannot create {}", bin.display()))?;
    std::os::unix::fs::symlink(own.trim(), &link)
        .with_context(|| format!("cannot link {}", link.display()))
}

impl NpmPackage {
    /// The program's path, installed if it is not there yet.
    pub(crate) fn program(self) -> Result<PathBuf> {
        kept(self.program, self.version, |folder| {
            npm_install(folder, &format!("{}@{}", self.name, self.version))
        })
    }
}

/// pip, to install into a folder: that needs neither a virtual environment nor a home
/// folder, and is allowed where the distribution manages Python's own packages.
fn pip_install(python: &str, folder: &Path) -> Command {
    let mut pip = run::program(python, ["-m", "pip", "install", "--quiet", "--no-input"]);
    pip.args(["--no-cache-dir", "--target"])
        .arg(folder)
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .env("PIP_ROOT_USER_ACTION", "ignore");
    pip
}

/// Installs a package with what it depends on, and runs none of its scripts.
fn npm_install(folder: &Path, package: &str) -> Result<()> {
    // With `--prefix` npm would not read the machine's own settings, which may say which
    // certificates count; so the folder is a package of its own.
    let manifest = folder.join("package.json");
    fs::write(&manifest, "{}\n").with_context(|| format!("cannot write {}", manifest.display()))?;
    let mut npm = run::program("npm", ["install", "--loglevel=error", "--ignore-scripts"]);
    npm.args(["--no-save", "--no-package-lock", "--no-audit", "--no-fund"])
        .arg(package)
        .current_dir(folder);
    run::show(&mut npm)?;
    let bin = folder.join("bin");
    std::os::unix::fs::symlink("node_modules/.bin", &bin)
        .with_context(|| format!("cannot link {}", bin.display()))
}

/// A program kept as `tools/NAME-VERSION/bin/NAME`.
fn kept(name: &str, version: &str, install: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    kept_file(name, version, &format!("bin/{name}"), install)
}

/// A file kept in `tools/NAME-VERSION`. `install` fills a folder beside it
/// that is renamed when whole, so that an interrupted installation is not
/// mistaken for a finished one.
fn kept_file(
    name: &str,
    version: &str,
    file: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let tools = place::kept("tools");
    let folder = tools.join(format!("{name}-{version}"));
    let program = folder.join(file);
    if program.is_file() {
        return Ok(program);
    }
    let partial = tools.join(format!("{name}-{version}.partial"));
    for stale in [&partial, &folder] {
        if stale.exists() {
            fs::remove_dir_all(stale)
                .with_context(|| format!("cannot remove the unfinished {}", stale.display()))?;
        }
    }
    fs::create_dir_all(&partial)
        .with_context(|| format!("cannot create the folder {}", partial.display()))?;
    install(&partial).with_context(|| format!("cannot install {name} {version}"))?;
    fs::rename(&partial, &folder)
        .with_context(|| format!("cannot rename {} into place", partial.display()))?;
    if !program.is_file() {
        bail!(
            "installing {name} {version} did not give {}",
            program.display()
        );
    }
    Ok(program)
}

/// A Python that can run pip: the one on PATH, or else the system's.
fn python_with_pip() -> Result<&'static str> {
    let usable =
        |python: &&str| run::output(&mut run::program(python, ["-m", "pip", "--version"])).is_ok();
    let candidates = ["python3", "/usr/bin/python3"];
    if let Some(python) = candidates.iter().find(|python| usable(python)) {
        return Ok(python);
    }
    install_packages(&["python3", "python3-pip"])?;
    let python = candidates.iter().find(|python| usable(python));
    python.copied().context(
        "pip does not run, although python3-pip is installed: see `python3 -m pip --version`",
    )
}

fn rust_component(component: &str, program: &str) -> Result<()> {
    // The proxies of rustup are on PATH whether the component is there or not.
    if run::output(&mut run::program(program, ["--version"])).is_ok() {
        return Ok(());
    }
    run::show(&mut run::program("rustup", ["component", "add", component]))
        .with_context(|| format!("the Rust component `{component}` is missing"))
}

/// Installs the packages of those programs that are not on PATH.
fn system_packages(programs: &[(&str, &'static str)]) -> Result<()> {
    match lacking(programs, |program| place::on_path(program).is_some()) {
        missing if missing.is_empty() => Ok(()),
        missing => install_packages(&missing),
    }
}

fn lacking(programs: &[(&str, &'static str)], has: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let missing = programs.iter().filter(|(program, _)| !has(program));
    missing.map(|(_, package)| *package).collect()
}

fn install_packages(packages: &[&str]) -> Result<()> {
    let wanted = packages.join(" ");
    if place::on_path("apt-get").is_none() {
        bail!("please install what provides these Debian packages: {wanted}");
    }
    if !is_root()? {
        bail!("please run: sudo apt-get install --yes {wanted}");
    }
    let apt = |arguments: &[&str]| {
        let mut command = run::program("apt-get", arguments);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        run::show(&mut command)
    };
    apt(&["update", "--quiet"])?;
    apt(&[
        &["install", "--yes", "--quiet", "--no-install-recommends"],
        packages,
    ]
    .concat())
}

fn is_root() -> Result<bool> {
    Ok(run::output(&mut run::program("id", ["-u"]))?.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_packages_of_missing_programs_are_installed() {
        let packages = lacking(&TEST_PROGRAMS, |program| program != "ps");
        assert_eq!(packages, ["procps"]);
    }
}
