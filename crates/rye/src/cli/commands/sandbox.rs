//! `rye sandbox`: checks what this machine can confine, and runs commands in the sandbox.

mod serve;

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use lillux::process::Exit;
use rye_host::engine::{confinement, runtime, start_supervisor};
use rye_host::sandbox::{
    Availability, ConfinementError, TargetCheck, Tier, check_targets, confined_in, launcher,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::args::{SandboxCommand, SandboxRunArgs};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, DIM, GOOD, HELP, Page, WARN, paint, sanitize};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(command: SandboxCommand, context: &Context) -> Outcome {
    match command {
        SandboxCommand::Check => check(context),
        SandboxCommand::Run(args) => run_command(args, context),
        SandboxCommand::Serve(args) => serve::run(&args, context),
    }
}

fn check(context: &Context) -> Outcome {
    let launcher = launcher().ok_or(ConfinementError::NoLauncher)?;
    let availability = Availability::probe(launcher);
    let review_error = match &context.settings.state_dir {
        Some(state) => Availability::probe_review(launcher, &state.value).err(),
        None => Some("there is no state directory".to_owned()),
    };
    let (policy, vault) = (confinement(context)?, context.vault());
    let runtime = runtime()?;
    let targets = runtime.block_on(check_targets(&policy, vault.as_ref()));
    runtime.shutdown_background();
    Ok(Box::new(CheckReport {
        availability,
        review_error,
        targets,
    }))
}

#[derive(Serialize)]
struct CheckReport {
    #[serde(flatten)]
    availability: Availability,
    /// Why review mode does not work.
    review_error: Option<String>,
    /// Containers and other machines.
    targets: Vec<TargetCheck>,
}

impl Report for CheckReport {
    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn show(&self, page: &mut Page) {
        let Availability {
            tier,
            full_error,
            landlock_error,
            landlock_abi,
            fix,
            cgroup_controllers,
        } = &self.availability;
        match tier {
            Some(Tier::Full) => page.line(format_args!(
                "{}: commands are confined by namespaces, Landlock and seccomp",
                paint(GOOD, "full")
            )),
            Some(Tier::Landlock) => page.line(format_args!(
                "{}: commands are confined by Landlock and seccomp, without sockets",
                paint(WARN, "landlock")
            )),
            None => page.line(format_args!(
                "{}: commands cannot be confined",
                paint(BAD, "none")
            )),
        }
        for (name, error) in [
            ("tier full", full_error),
            ("tier landlock", landlock_error),
            ("review mode", &self.review_error),
        ] {
            let state = match error {
                None => "works".to_owned(),
                Some(reason) => format!("does not work: {}", sanitize(reason)),
            };
            page.line(format_args!("  {name:<13}  {state}"));
        }
        let version = match landlock_abi {
            0 => "not in this kernel".to_owned(),
            version => format!("version {version}"),
        };
        page.line(paint(DIM, format!("  Landlock       {version}")));
        let limits = match cgroup_controllers.join(", ") {
            none if none.is_empty() => "of each process; no cgroup is delegated".to_owned(),
            names => format!("of each process, and of each command by a cgroup ({names})"),
        };
        page.line(paint(DIM, format!("  limits         {limits}")));
        if let Some(fix) = fix {
            page.line(format_args!("  {}: {}", paint(HELP, "fix"), sanitize(fix)));
        }
        for target in &self.targets {
            let state = if target.works { GOOD } else { BAD };
            let detail = sanitize(&target.detail);
            page.line(format_args!("{}: {detail}", paint(state, target.kind)));
            if let Some(fix) = &target.fix {
                page.line(format_args!("  {}: {}", paint(HELP, "fix"), sanitize(fix)));
            }
        }
    }

    fn failure(&self) -> Option<Failure> {
        let message = "this machine cannot confine commands";
        self.availability
            .tier
            .is_none()
            .then(|| Failure::failed("sandbox", message).hint("rye help sandbox"))
    }
}

fn run_command(args: SandboxRunArgs, context: &Context) -> Outcome {
    // It forks, so it must start before any threads.
    let supervisor = Arc::new(start_supervisor()?);
    let workspace = args.workspace;
    let workspace = workspace.unwrap_or_else(|| context.settings.project().to_owned());
    let sandbox = confined_in(
        args.tier.map(Into::into),
        &workspace,
        supervisor,
        confinement(context)?,
        context.protected(),
        context.settings.project().to_owned(),
        context.vault(),
    )?;
    let duplicate = |fd: io::Result<OwnedFd>| fd.map_err(|error| Failure::failed("sandbox", error));
    let stdin = duplicate(io::stdin().as_fd().try_clone_to_owned())?;
    let stdout = duplicate(io::stdout().as_fd().try_clone_to_owned())?;
    let on_stderr = |bytes: &[u8]| {
        let _ = io::stderr().write_all(bytes);
    };
    let runtime = runtime()?;
    let ran = sandbox.run_attached(args.command, stdin, stdout, on_stderr);
    let ran = runtime.block_on(ran);
    let ran = ran.map_err(|error| Failure::failed("sandbox", error))?;
    for refused in ran.refused_connections {
        let text = format!("connection refused: {refused}");
        context.reporter().warn(&text, Some("rye help sandbox"));
    }
    for path in ran.quarantined {
        let text = format!("{path} decides what programs do later: moved to .rye-quarantine");
        context.reporter().warn(&text, None);
    }
    Ok(Box::new(RunReport(ran.exit)))
}

/// The command printed its own output.
struct RunReport(Exit);

impl Report for RunReport {
    fn json(&self) -> Value {
        json!({ "exit_code": self.0.return_code() })
    }

    fn show(&self, _: &mut Page) {}

    fn program_exit_code(&self) -> Option<u8> {
        let code = match self.0 {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
            Exit::Unknown => 1,
        };
        Some(u8::try_from(code).unwrap_or(1))
    }
}
