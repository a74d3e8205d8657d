//! `cargo xtask test`: all checks that a change must pass.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::output::{self, print_line};
use crate::process::{cargo, program, run};
use crate::tools::{self, Tool};
use crate::{conformance, console, docs, fuzz, paths, tidy};

/// One check.
struct Step {
    name: &'static str,
    about: &'static str,
    needs: &'static [Tool],
    run: fn() -> Result<()>,
}

/// Fast checks that fail often come first.
const STEPS: [Step; 10] = [
    Step {
        name: "format",
        about: "the code is formatted",
        needs: &[Tool::Rustfmt],
        run: format,
    },
    Step {
        name: "typos",
        about: "spelling",
        needs: &[Tool::Typos],
        run: typos,
    },
    Step {
        name: "tidy",
        about: "links resolve, modules are described, no home directories",
        needs: &[],
        run: tidy::check,
    },
    Step {
        name: "deny",
        about: "dependencies: licences, bans, sources",
        needs: &[Tool::CargoDeny],
        run: deny,
    },
    Step {
        name: "clippy",
        about: "no warnings, with all features and without default features",
        needs: &[Tool::Clippy],
        run: clippy,
    },
    Step {
        name: "tests",
        about: "all tests, documentation examples included",
        needs: &[
            Tool::TestPrograms,
            Tool::Node22,
            Tool::Tsx,
            Tool::McpClients,
            Tool::HttpClients,
            Tool::AcpClients,
            Tool::NpmPackages,
        ],
        run: tests,
    },
    Step {
        name: "console",
        about: "the web console: types, vendored file, tests in a browser",
        needs: &[Tool::Console],
        run: console::check,
    },
    Step {
        name: "conformance",
        about: "official MCP conformance suite, in both revisions",
        needs: &[Tool::TestPrograms, Tool::Node22, Tool::Conformance],
        run: conformance::check,
    },
    Step {
        name: "rustdoc",
        about: "documentation builds without warnings",
        needs: &[],
        run: docs::rustdoc,
    },
    Step {
        name: "references",
        about: "generated references are up to date",
        needs: &[],
        run: docs::check,
    },
];

/// Runs all steps or the selected ones.
pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let Some(chosen) = select_steps(arguments)? else {
        for step in &STEPS {
            print_line!("  {:11}  {}", step.name, step.about);
        }
        return Ok(());
    };
    let mut times = vec![(
        "tools",
        timed("tools", "install what the steps need", || install(&chosen))?,
    )];
    for step in chosen {
        let time = timed(step.name, step.about, step.run)
            .map_err(|error| anyhow!("{error:#}\n  hint: cargo xtask test --only {}", step.name))?;
        times.push((step.name, time));
    }
    print_line!("\nAll checks passed.\n{}", output::format_times(&times));
    Ok(())
}

/// The steps to run, in order; `None` for `--list`.
fn select_steps(arguments: &[String]) -> Result<Option<Vec<&'static Step>>> {
    let mut wanted: Vec<&str> = Vec::new();
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        let names = match argument {
            "--list" => return Ok(None),
            "--only" => arguments
                .next()
                .context("--only needs a step; --list shows them")?,
            other => match other.strip_prefix("--only=") {
                Some(names) => names,
                None => bail!(
                    "unknown argument `{other}`; usage: cargo xtask test [--only STEP[,STEP]…] [--list]"
                ),
            },
        };
        wanted.extend(names.split(','));
    }
    if let Some(unknown) = wanted
        .iter()
        .find(|name| STEPS.iter().all(|step| step.name != **name))
    {
        let names = STEPS.map(|step| step.name).join(", ");
        bail!("unknown step `{unknown}`; available: {names}");
    }
    let is_selected = |step: &&Step| wanted.is_empty() || wanted.contains(&step.name);
    Ok(Some(STEPS.iter().filter(is_selected).collect()))
}

fn timed(name: &str, about: &str, run: impl FnOnce() -> Result<()>) -> Result<Duration> {
    print_line!("\n== {name}: {about}");
    let start = Instant::now();
    run()?;
    let time = start.elapsed();
    print_line!("-- {name}: {}", output::format_duration(time));
    Ok(time)
}

fn install(steps: &[&Step]) -> Result<()> {
    for tool in steps.iter().flat_map(|step| step.needs) {
        tool.install()?;
    }
    Ok(())
}

fn format() -> Result<()> {
    run(&mut cargo(["fmt", "--all", "--check"]))?;
    match fuzz::manifest() {
        Some(manifest) => run(cargo(["fmt", "--check", "--manifest-path"]).arg(manifest)),
        None => Ok(()),
    }
}

fn typos() -> Result<()> {
    run(&mut program(
        tools::typos()?,
        ["--hidden", "--force-exclude"],
    ))
}

/// Checks advisories only if the database was fetched before: it is a git repository, which
/// the package registries do not provide.
fn deny() -> Result<()> {
    let deny = tools::cargo_deny()?;
    let check = ["--locked", "check"];
    run(program(&deny, check).args(["licenses", "bans", "sources"]))?;
    let database = paths::cargo_home().map(|home| home.join("advisory-dbs"));
    if database.is_some_and(|directory| directory.is_dir()) {
        return run(program(&deny, check).args(["--disable-fetch", "advisories"]));
    }
    print_line!("advisories were not checked, because the database is missing;");
    print_line!("  hint: {} fetch db", deny.display());
    Ok(())
}

fn clippy() -> Result<()> {
    let deny_warnings = ["--", "-D", "warnings"];
    let all = [
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--all-features",
    ];
    run(cargo(all).args(deny_warnings))?;
    let embedded = [
        "clippy",
        "--locked",
        "--package",
        "lillux",
        "--lib",
        "--no-default-features",
    ];
    run(cargo(embedded).args(deny_warnings))
}

fn tests() -> Result<()> {
    let mut cargo = cargo(["test", "--locked", "--workspace", "--no-fail-fast"]);
    for package in tools::NPM_PACKAGES {
        cargo.env(package.variable, package.program()?);
    }
    run(&mut cargo)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str]) -> Result<Option<Vec<&'static str>>> {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        Ok(select_steps(&arguments)?.map(|steps| steps.iter().map(|step| step.name).collect()))
    }

    #[test]
    fn all_steps_run_by_default() {
        let all = names(&[]).unwrap().unwrap();
        assert_eq!(all, STEPS.map(|step| step.name));
    }

    #[test]
    fn selected_steps_run_in_the_defined_order() {
        let expected = Some(vec!["format", "clippy"]);
        assert_eq!(names(&["--only", "clippy,format"]).unwrap(), expected);
        assert_eq!(
            names(&["--only=clippy", "--only", "format"]).unwrap(),
            expected
        );
    }

    #[test]
    fn unknown_step_is_refused_with_the_available_ones() {
        let error = names(&["--only", "clipy"]).unwrap_err().to_string();
        assert!(
            error.contains("`clipy`") && error.contains("clippy"),
            "{error}"
        );
        assert!(names(&["--only"]).is_err());
        assert!(names(&["clippy"]).is_err());
        assert_eq!(names(&["--list"]).unwrap(), None);
    }
}
