//! Installs the programs that tasks need.
//!
//! System packages come from apt. Everything else comes from the registries of pip, npm and
//! cargo in pinned versions, and is installed into `target/tools`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::output::print_line;
use crate::paths;
use crate::process;

/// Spelling checker, from a Python wheel.
const TYPOS: &str = "1.51.1";
/// Built from source, because the wheel (0.14.2) panics on the package ids of current cargo.
/// A debug build takes one minute instead of three, and the check still takes two seconds.
const CARGO_DENY: &str = "0.20.2";
/// A Node that runs TypeScript natively, independent of the system's Node.
const NODE_22: &str = "22.23.3";
/// Runs TypeScript on an older Node.
const TSX: &str = "4.23.15";
/// The official MCP conformance suite.
const CONFORMANCE: &str = "0.2.0-alpha.12";
/// Official MCP clients: the Python SDK, the TypeScript SDK and the inspector.
const PYTHON_SDK: &str = "2.3.0";
const TYPESCRIPT_SDK: &str = "1.32.2";
const INSPECTOR: &str = "2.12.0";
/// Clients of the OpenAI API. The version of the npm set changes with its packages.
const OPENAI_PYTHON: &str = "3.51.0";
const OPENAI_NODE: &str = "1";
const OPENAI_NODE_PACKAGES: [&str; 5] = [
    "openai@7.55.0",
    "@openai/agents@0.20.0",
    "ai@7.0.173",
    "@ai-sdk/openai@4.0.118",
    "zod@4.6.7",
];
/// A linter of OpenAPI documents, and what generates a client from ours. The version of the set
/// changes with its packages.
const OPENAPI_CLIENT: &str = "1";
const OPENAPI_CLIENT_PACKAGES: [&str; 5] = [
    "@redocly/cli@2.77.0",
    "openapi-typescript@7.13.0",
    "openapi-fetch@0.17.0",
    "typescript@5.9.3",
    "@types/node@22.20.5",
];
/// Client and types of the AG-UI protocol.
const AG_UI_NODE: &str = "1.0.0";
const AG_UI_PYTHON: &str = "1.0.0";
/// Official clients of the Agent Client Protocol, and a client for the command line.
const ACP_TYPESCRIPT_SDK: &str = "2.4.0";
const ACP_PYTHON_SDK: &str = "0.12.1";
const ACPX: &str = "0.19.1";
/// The clients that tests run, for [`client_version`].
#[cfg(test)]
pub(crate) const CLIENTS: [&str; 11] = [
    "acp-typescript",
    "acp-python",
    "acpx",
    "openai-python",
    "openai-npm",
    "openai-agents",
    "ai-sdk",
    "ag-ui-npm",
    "ag-ui-python",
    "mcp-python",
    "mcp-typescript",
];
/// The official library of Standard Webhooks for Python.
const STANDARD_WEBHOOKS: &str = "1.1.0";
/// MCP server framework that benchmarks compare with.
const FASTMCP: &str = "4.1.2";
/// Packages that build and check the web console. The version of the set changes with them.
const CONSOLE: &str = "1";
const CONSOLE_PACKAGES: [&str; 6] = [
    "preact@11.2.0",
    "htm@3.1.1",
    "esbuild@0.28.2",
    "typescript@7.0.2",
    "playwright-core@1.65.1",
    "axe-core@4.14.1",
];
/// Generates the types of the API for the web console. It needs the library of an older TypeScript.
const OPENAPI_TYPES: &str = "7.13.0";
const OPENAPI_TYPES_COMPILER: &str = "typescript@5.9.3";
/// Agent runtime that benchmarks compare with.
const PI: &str = "0.73.1";
/// Graph engine and its SQLite checkpointer that benchmarks compare with.
const LANGGRAPH: &str = "1.2.20";
const LANGGRAPH_SQLITE: &str = "3.1.2";

/// A dependency of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Rustfmt,
    Clippy,
    Typos,
    CargoDeny,
    /// System programs that tests run.
    TestPrograms,
    /// Node 22, in addition to the system's Node.
    Node22,
    /// TypeScript for the system's Node.
    Tsx,
    /// The MCP conformance suite.
    Conformance,
    /// Third-party clients that call our servers in tests.
    McpClients,
    /// Third-party clients that call our HTTP server in tests, and the linter of its document.
    HttpClients,
    /// Third-party clients that run our agent as an editor does in tests.
    AcpClients,
    /// Programs from npm that tests run.
    NpmPackages,
    /// Compiles libFuzzer.
    CppCompiler,
    /// A browser, and what checks the web console with it.
    Console,
}

/// Programs that tests run, with their Debian packages.
const TEST_PROGRAMS: [(&str, &str); 16] = [
    ("curl", "curl"),
    ("git", "git"),
    ("make", "make"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("openssl", "openssl"),
    ("podman", "podman"),
    ("initdb", "postgresql"),
    ("ps", "procps"),
    ("python3", "python3"),
    ("ruby", "ruby"),
    // Podman's default runtime needs version 2 of cgroups.
    ("runc", "runc"),
    ("ssh", "openssh-client"),
    // Often not on the PATH of an ordinary user.
    ("/usr/sbin/sshd", "openssh-server"),
    ("strace", "strace"),
    ("unshare", "util-linux"),
];

/// A package from npm whose program tests run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NpmPackage {
    /// Environment variable that tells tests the path of the program.
    pub(crate) variable: &'static str,
    name: &'static str,
    version: &'static str,
    program: &'static str,
}

/// All npm packages. A test whose variable is unset explains how to run it.
pub(crate) const NPM_PACKAGES: [NpmPackage; 1] = [NpmPackage {
    variable: "RYE_TEST_MCP_EVERYTHING",
    name: "@modelcontextprotocol/server-everything",
    version: "2026.8.31",
    program: "mcp-server-everything",
}];

impl Tool {
    /// Installs the tool unless it is installed.
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
            Tool::HttpClients => http_clients(),
            Tool::AcpClients => acp_clients(),
            Tool::NpmPackages => NPM_PACKAGES
                .iter()
                .try_for_each(|package| package.program().map(drop)),
            Tool::CppCompiler => system_packages(&[("c++", "g++")]),
            Tool::Console => {
                system_packages(&[("chromium", "chromium"), ("node", "nodejs"), ("npm", "npm")])?;
                openapi_types()?;
                console().map(drop)
            }
        }
    }
}

/// Name and version of a client that tests run, for people.
pub(crate) fn client_version(client: &str) -> Option<(&'static str, &'static str)> {
    let of_set = |name: &str| {
        let packages = OPENAI_NODE_PACKAGES.iter();
        let mut versions = packages.filter_map(|it| it.strip_prefix(name)?.strip_prefix('@'));
        versions.next()
    };
    Some(match client {
        "acp-typescript" => ("`@agentclientprotocol/sdk`", ACP_TYPESCRIPT_SDK),
        "acp-python" => ("`agent-client-protocol` (Python)", ACP_PYTHON_SDK),
        "acpx" => ("`acpx`", ACPX),
        "openai-python" => ("`openai` (Python)", OPENAI_PYTHON),
        "openai-npm" => ("`openai` (npm)", of_set("openai")?),
        "openai-agents" => ("`@openai/agents`", of_set("@openai/agents")?),
        "ai-sdk" => ("`ai`", of_set("ai")?),
        "ag-ui-npm" => ("`@ag-ui/client`", AG_UI_NODE),
        "ag-ui-python" => ("`ag-ui-protocol` (Python)", AG_UI_PYTHON),
        "mcp-python" => ("`mcp` (Python)", PYTHON_SDK),
        "mcp-typescript" => ("`@modelcontextprotocol/sdk`", TYPESCRIPT_SDK),
        "mcp-inspector" => ("`@modelcontextprotocol/inspector`", INSPECTOR),
        _ => return None,
    })
}

/// Path of typos; installs it if necessary.
pub(crate) fn typos() -> Result<PathBuf> {
    installed_program("typos", TYPOS, |directory| {
        let mut pip = pip_install(python_with_pip()?, directory);
        pip.args(["--no-deps", "--only-binary", ":all:"])
            .arg(format!("typos=={TYPOS}"));
        process::run(&mut pip)
    })
}

/// Path of cargo-deny; builds it if necessary.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    installed_program("cargo-deny", CARGO_DENY, |directory| {
        print_line!("building cargo-deny {CARGO_DENY}; takes about a minute on two cores");
        let mut cargo = process::cargo(["install", "--quiet", "--locked", "--debug", "cargo-deny"]);
        cargo
            .args(["--no-track", "--version"])
            .arg(format!("={CARGO_DENY}"));
        cargo
            .arg("--root")
            .arg(directory)
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        process::run(&mut cargo)
    })
}

/// Path of Node 22; installs it if necessary.
pub(crate) fn node22() -> Result<PathBuf> {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => bail!("npm has no Node 22 for {other}"),
    };
    installed_program("node", NODE_22, |directory| {
        npm_install(directory, &[&format!("node-linux-{machine}@{NODE_22}")])
    })
}

/// Path of tsx; installs it if necessary.
pub(crate) fn tsx() -> Result<PathBuf> {
    installed_program("tsx", TSX, |directory| {
        npm_install(directory, &[&format!("tsx@{TSX}")])
    })
}

/// Path of the conformance suite, which runs on Node 22; installs it if necessary.
pub(crate) fn conformance() -> Result<PathBuf> {
    installed_program("conformance", CONFORMANCE, |directory| {
        let package = format!("@modelcontextprotocol/conformance@{CONFORMANCE}");
        npm_install(directory, &[&package])
    })
}

/// Directory of pi-agent-core; installs it if necessary.
pub(crate) fn pi() -> Result<PathBuf> {
    let manifest = "node_modules/@mariozechner/pi-agent-core/package.json";
    installed_file("pi-agent-core", PI, manifest, |directory| {
        npm_install(directory, &[&format!("@mariozechner/pi-agent-core@{PI}")])
    })?;
    Ok(paths::cache_dir("tools").join(format!("pi-agent-core-{PI}")))
}

/// The `node_modules` of the web console; installs it if necessary.
pub(crate) fn console() -> Result<PathBuf> {
    let manifest = "node_modules/axe-core/package.json";
    let installed = installed_file("console", CONSOLE, manifest, |directory| {
        npm_install(directory, &CONSOLE_PACKAGES)
    });
    installed?;
    let directory = paths::cache_dir("tools").join(format!("console-{CONSOLE}"));
    Ok(directory.join("node_modules"))
}

/// Path of openapi-typescript; installs it if necessary.
pub(crate) fn openapi_types() -> Result<PathBuf> {
    installed_program("openapi-typescript", OPENAPI_TYPES, |directory| {
        let package = format!("openapi-typescript@{OPENAPI_TYPES}");
        npm_install(directory, &[&package, OPENAPI_TYPES_COMPILER])
    })
}

fn mcp_clients() -> Result<()> {
    installed_program("mcp-inspector", INSPECTOR, |directory| {
        let package = format!("@modelcontextprotocol/inspector@{INSPECTOR}");
        npm_install(directory, &[&package])
    })?;
    let sdk = "node_modules/@modelcontextprotocol/sdk/package.json";
    installed_file("typescript-sdk", TYPESCRIPT_SDK, sdk, |directory| {
        let package = format!("@modelcontextprotocol/sdk@{TYPESCRIPT_SDK}");
        npm_install(directory, &[&package])
    })?;
    installed_file("python-sdk", PYTHON_SDK, "bin/python", |directory| {
        python_packages(directory, &[format!("mcp=={PYTHON_SDK}")])
    })?;
    installed_file(
        "standardwebhooks",
        STANDARD_WEBHOOKS,
        "bin/python",
        |directory| {
            python_packages(
                directory,
                &[format!("standardwebhooks=={STANDARD_WEBHOOKS}")],
            )
        },
    )
    .map(drop)
}

fn http_clients() -> Result<()> {
    let package = "node_modules/openai/package.json";
    installed_file("openai-node", OPENAI_NODE, package, |directory| {
        npm_install(directory, &OPENAI_NODE_PACKAGES)
    })?;
    installed_file(
        "openapi-client",
        OPENAPI_CLIENT,
        "node_modules/openapi-fetch/package.json",
        |directory| npm_install(directory, &OPENAPI_CLIENT_PACKAGES),
    )?;
    installed_file("openai-python", OPENAI_PYTHON, "bin/python", |directory| {
        python_packages(directory, &[format!("openai=={OPENAI_PYTHON}")])
    })?;
    let package = "node_modules/@ag-ui/client/package.json";
    installed_file("ag-ui-node", AG_UI_NODE, package, |directory| {
        npm_install(directory, &[&format!("@ag-ui/client@{AG_UI_NODE}")])
    })?;
    installed_file("ag-ui-python", AG_UI_PYTHON, "bin/python", |directory| {
        python_packages(directory, &[format!("ag-ui-protocol=={AG_UI_PYTHON}")])
    })
    .map(drop)
}

fn acp_clients() -> Result<()> {
    let sdk = "node_modules/@agentclientprotocol/sdk/package.json";
    installed_file("acp-typescript-sdk", ACP_TYPESCRIPT_SDK, sdk, |directory| {
        let package = format!("@agentclientprotocol/sdk@{ACP_TYPESCRIPT_SDK}");
        npm_install(directory, &[&package])
    })?;
    installed_program("acpx", ACPX, |directory| {
        npm_install(directory, &[&format!("acpx@{ACPX}")])
    })?;
    installed_file(
        "acp-python-sdk",
        ACP_PYTHON_SDK,
        "bin/python",
        |directory| {
            let package = format!("agent-client-protocol=={ACP_PYTHON_SDK}");
            python_packages(directory, &[package])
        },
    )
    .map(drop)
}

/// Directory of FastMCP, with its Python in `bin`; installs it if necessary.
pub(crate) fn fastmcp() -> Result<PathBuf> {
    installed_file("fastmcp", FASTMCP, "bin/python", |directory| {
        python_packages(directory, &[format!("fastmcp=={FASTMCP}")])
    })?;
    Ok(paths::cache_dir("tools").join(format!("fastmcp-{FASTMCP}")))
}

/// Directory of `LangGraph`; installs it if necessary.
pub(crate) fn langgraph() -> Result<PathBuf> {
    installed_file("langgraph", LANGGRAPH, "bin/python", |directory| {
        let sqlite = format!("langgraph-checkpoint-sqlite=={LANGGRAPH_SQLITE}");
        python_packages(directory, &[format!("langgraph=={LANGGRAPH}"), sqlite])
    })?;
    Ok(paths::cache_dir("tools").join(format!("langgraph-{LANGGRAPH}")))
}

/// Installs Python packages and a link to the Python that they are built for.
fn python_packages(directory: &Path, packages: &[String]) -> Result<()> {
    let python = python_with_pip()?;
    process::run(pip_install(python, directory).args(packages))?;
    // Binary packages only work with this Python.
    let script = ["-c", "import sys; print(sys.executable)"];
    let executable = process::capture(&mut process::program(python, script))?;
    let link = directory.join("bin/python");
    let bin = directory.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("cannot create {}", bin.display()))?;
    std::os::unix::fs::symlink(executable.trim(), &link)
        .with_context(|| format!("cannot link {}", link.display()))
}

impl NpmPackage {
    /// Path of the program; installs it if necessary.
    pub(crate) fn program(self) -> Result<PathBuf> {
        installed_program(self.program, self.version, |directory| {
            npm_install(directory, &[&format!("{}@{}", self.name, self.version)])
        })
    }
}

/// `pip install` into a directory, which needs no virtual environment and works with Python
/// installations that the distribution manages.
fn pip_install(python: &str, directory: &Path) -> Command {
    let mut pip = process::program(python, ["-m", "pip", "install", "--quiet", "--no-input"]);
    pip.args(["--no-cache-dir", "--target"])
        .arg(directory)
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .env("PIP_ROOT_USER_ACTION", "ignore");
    pip
}

/// Installs packages from npm with their dependencies, without running install scripts.
fn npm_install(directory: &Path, packages: &[&str]) -> Result<()> {
    // A package of its own instead of `--prefix`, with which npm would ignore the system's
    // settings, such as certificates.
    let manifest = directory.join("package.json");
    fs::write(&manifest, "{}\n").with_context(|| format!("cannot write {}", manifest.display()))?;
    let mut npm = process::program("npm", ["install", "--loglevel=error", "--ignore-scripts"]);
    npm.args(["--no-save", "--no-package-lock", "--no-audit", "--no-fund"])
        .args(packages)
        .current_dir(directory);
    process::run(&mut npm)?;
    let bin = directory.join("bin");
    std::os::unix::fs::symlink("node_modules/.bin", &bin)
        .with_context(|| format!("cannot link {}", bin.display()))
}

/// A program installed as `tools/NAME-VERSION/bin/NAME`.
fn installed_program(
    name: &str,
    version: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    installed_file(name, version, &format!("bin/{name}"), install)
}

/// A file in `tools/NAME-VERSION`. `install` fills a temporary directory that is renamed when
/// it is complete, so that an interrupted installation is not mistaken for a finished one.
fn installed_file(
    name: &str,
    version: &str,
    file: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let tools = paths::cache_dir("tools");
    let directory = tools.join(format!("{name}-{version}"));
    let program = directory.join(file);
    if program.is_file() {
        return Ok(program);
    }
    let partial = tools.join(format!("{name}-{version}.partial"));
    for stale in [&partial, &directory] {
        if stale.exists() {
            fs::remove_dir_all(stale)
                .with_context(|| format!("cannot remove the incomplete {}", stale.display()))?;
        }
    }
    fs::create_dir_all(&partial)
        .with_context(|| format!("cannot create the directory {}", partial.display()))?;
    install(&partial).with_context(|| format!("cannot install {name} {version}"))?;
    fs::rename(&partial, &directory)
        .with_context(|| format!("cannot rename {} into place", partial.display()))?;
    if !program.is_file() {
        bail!(
            "installing {name} {version} did not create {}",
            program.display()
        );
    }
    Ok(program)
}

/// A Python that has pip: from PATH, otherwise the system's.
fn python_with_pip() -> Result<&'static str> {
    let usable = |python: &&str| {
        process::capture(&mut process::program(python, ["-m", "pip", "--version"])).is_ok()
    };
    let candidates = ["python3", "/usr/bin/python3"];
    if let Some(python) = candidates.iter().find(|python| usable(python)) {
        return Ok(python);
    }
    install_packages(&["python3", "python3-pip"])?;
    let python = candidates.iter().find(|python| usable(python));
    python.copied().context(
        "pip does not run although python3-pip is installed\n  hint: python3 -m pip --version",
    )
}

fn rust_component(component: &str, program: &str) -> Result<()> {
    // rustup's proxies are on PATH even if the component is not installed.
    if process::capture(&mut process::program(program, ["--version"])).is_ok() {
        return Ok(());
    }
    process::run(&mut process::program(
        "rustup",
        ["component", "add", component],
    ))
    .with_context(|| format!("the Rust component `{component}` is missing"))
}

/// Installs the packages of programs that are not on PATH.
fn system_packages(programs: &[(&str, &'static str)]) -> Result<()> {
    match missing_packages(programs, has_program) {
        missing if missing.is_empty() => Ok(()),
        missing => install_packages(&missing),
    }
}

/// Whether a program is on the PATH. Debian has those of PostgreSQL elsewhere.
fn has_program(program: &str) -> bool {
    let of_postgres = || {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let mut versions = versions.flatten();
        versions.any(|version| version.path().join("bin").join(program).exists())
    };
    paths::find_program(program).is_some() || of_postgres()
}

fn missing_packages(
    programs: &[(&str, &'static str)],
    has: impl Fn(&str) -> bool,
) -> Vec<&'static str> {
    let missing = programs.iter().filter(|(program, _)| !has(program));
    missing.map(|(_, package)| *package).collect()
}

fn install_packages(packages: &[&str]) -> Result<()> {
    let wanted = packages.join(" ");
    if paths::find_program("apt-get").is_none() {
        bail!("programs are missing; install the equivalents of these Debian packages: {wanted}");
    }
    if !is_root()? {
        bail!("programs are missing\n  hint: sudo apt-get install --yes {wanted}");
    }
    let apt = |arguments: &[&str]| {
        let mut command = process::program("apt-get", arguments);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        process::run(&mut command)
    };
    apt(&["update", "--quiet"])?;
    apt(&[
        &["install", "--yes", "--quiet", "--no-install-recommends"],
        packages,
    ]
    .concat())
}

fn is_root() -> Result<bool> {
    Ok(process::capture(&mut process::program("id", ["-u"]))?.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_of_missing_programs_are_installed() {
        let packages = missing_packages(&TEST_PROGRAMS, |program| program != "ps");
        assert_eq!(packages, ["procps"]);
    }
}
