//! `cargo xtask test`: everything that must hold before a change goes in.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::run::{cargo, program, show};
use crate::say::{self, say};
use crate::tools::{self, Tool};
use crate::{conformance, docs, fuzz, place, tidy};

/// One thing that is checked.
struct Step {
    name: &'static str,
    about: &'static str,
    needs: &'static [Tool],
    run: fn() -> Result<()>,
}

/// What is quick and often wrong comes first.
const STEPS: [Step; 9] = [
    Step {
        name: "format",
        about: "the code is formatted",
        needs: &[Tool::Rustfmt],
        run: format,
    },
    Step {
        name: "typos",
        about: "words are spelt right",
        needs: &[Tool::Typos],
        run: typos,
    },
    Step {
        name: "tidy",
        about: "links lead somewhere, modules say what they are for, no path of one machine",
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
        about: "no warnings, with all features and as an embedder builds it",
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
            Tool::NpmPackages,
        ],
        run: tests,
    },
    Step {
        name: "conformance",
        about: "MCP as those who write the protocol test it, in both revisions",
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
        about: "generated references say what the binaries say",
        needs: &[],
        run: docs::check,
    },
];

/// Runs the steps, all or those chosen.
pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let Some(chosen) = choose(arguments)? else {
        for step in &STEPS {
            say!("  {:11}  {}", step.name, step.about);
        }
        return Ok(());
    };
    let mut times = vec![(
        "tools",
        timed("tools", "what the steps need", || install(&chosen))?,
    )];
    for step in chosen {
        let time = timed(step.name, step.about, step.run).map_err(|error| {
            anyhow!(
                "{error:#}\n  hint: to run this step alone: cargo xtask test --only {}",
                step.name
            )
        })?;
        times.push((step.name, time));
    }
    say!("\nAll of it holds.\n{}", say::times(&times));
    Ok(())
}

/// The steps to run, in their order; none when asked only to list them.
fn choose(arguments: &[String]) -> Result<Option<Vec<&'static Step>>> {
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
                    "cannot read `{other}`; usage: cargo xtask test [--only STEP[,STEP]…] [--list]"
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
        bail!("no step `{unknown}`; there are: {names}");
    }
    let is_wanted = |step: &&Step| wanted.is_empty() || wanted.contains(&step.name);
    Ok(Some(STEPS.iter().filter(is_wanted).collect()))
}

fn timed(name: &str, about: &str, run: impl FnOnce() -> Result<()>) -> Result<Duration> {
    say!("\n== {name}: {about}");
    let start = Instant::now();
    run()?;
    let time = start.elapsed();
    say!("-- {name}: {}", say::duration(time));
    Ok(time)
}

fn install(steps: &[&Step]) -> Result<()> {
    for tool in steps.iter().flat_map(|step| step.needs) {
        tool.install()?;
    }
    Ok(())
}

fn format() -> Result<()> {
    show(&mut cargo(["fmt", "--all", "--check"]))?;
    match fuzz::manifest() {
        Some(manifest) => show(cargo(["fmt", "--check", "--manifest-path"]).arg(manifest)),
        None => Ok(()),
    }
}

fn typos() -> Result<()> {
    show(&mut program(
        tools::typos()?,
        ["--hidden", "--force-exclude"],
    ))
}

/// Advisories only where somebody has fetched the database: it is a git
/// repository, which the package registries do not carry.
fn deny() -> Result<()> {
    let deny = tools::cargo_deny()?;
    let check = ["--locked", "check"];
    show(program(&deny, check).args(["licenses", "bans", "sources"]))?;
    let database = place::cargo_home().map(|home| home.join("advisory-dbs"));
    if database.is_some_and(|folder| folder.is_dir()) {
        return show(program(&deny, check).args(["--disable-fetch", "advisories"]));
    }
    say!("no advisory database here, so advisories were not checked;");
    say!("  to have them checked: {} fetch db", deny.display());
    Ok(())
}

fn clippy() -> Result<()> {
    let strict = ["--", "-D", "warnings"];
    let all = [
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--all-features",
    ];
    show(cargo(all).args(strict))?;
    let embedded = [
        "clippy",
        "--locked",
        "--package",
        "lillux",
        "--lib",
        "--no-default-features",
    ];
    show(cargo(embedded).args(strict))
}

fn tests() -> Result<()> {
    let mut cargo = cargo(["test", "--locked", "--workspace", "--no-fail-fast"]);
    for package in tools::NPM_PACKAGES {
        cargo.env(package.variable, package.program()?);
    }
    show(&mut cargo)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str]) -> Result<Option<Vec<&'static str>>> {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        Ok(choose(&arguments)?.map(|steps| steps.iter().map(|step| step.name).collect()))
    }

    #[test]
    fn without_a_choice_every_step_runs() {
        let all = names(&[]).unwrap().unwrap();
        assert_eq!(all, STEPS.map(|step| step.name));
    }

    #[test]
    fn chosen_steps_run_in_the_order_of_the_gate() {
        let expected = Some(vec!["format", "clippy"]);
        assert_eq!(names(&["--only", "clippy,format"]).unwrap(), expected);
        assert_eq!(
            names(&["--only=clippy", "--only", "format"]).unwrap(),
            expected
        );
    }

    #[test]
    fn a_wrong_choice_names_what_there_is() {
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
