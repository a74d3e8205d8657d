//! Checks the cache, the interpreters and the development mode.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::sandbox::{Availability, Tier};
use crate::settings;
use lillux::{PathContext as _, shell_word};
use rye_sandbox::DockerConfig;

use super::Checks;
use crate::context::Context;

/// Interpreters of the built-in runtimes.
const INTERPRETERS: [(&str, &str); 4] = [
    ("python3", "Python tools"),
    ("node", "JavaScript and TypeScript tools"),
    ("bash", "bash tools"),
    ("ruby", "Ruby tools"),
];

pub(super) fn check(context: &Context, report: &mut Checks) {
    cache(context, report);
    sandbox(report);
    targets(context, report);
    for (program, what) in INTERPRETERS {
        if let Some(path) = on_path(program) {
            report.ok(program, path.display().to_string());
        } else {
            let detail = format!("not on PATH; {what} do not run");
            report.warn(program, detail, None);
        }
    }
    if context.settings.dev_mode.value {
        let detail = "RYE_DEV_MODE is set: unverified items run with a warning";
        report.warn("dev mode", detail, "unset RYE_DEV_MODE".to_owned());
    }
}

/// How strongly commands of agents can be confined.
fn sandbox(report: &mut Checks) {
    let Some(launcher) = crate::sandbox::launcher() else {
        return;
    };
    let found = Availability::probe(launcher);
    let reason = found.full_error.unwrap_or_default();
    let landlock = match found.landlock_abi {
        0 => "no Landlock".to_owned(),
        version => format!("Landlock version {version}"),
    };
    let fix = || Some(found.fix.unwrap_or_else(|| "rye help sandbox".to_owned()));
    match found.tier {
        Some(Tier::Full) => {
            let detail = format!("commands can be confined (tier full, {landlock})");
            report.ok("sandbox", detail);
        }
        Some(Tier::Landlock) => {
            let detail = format!("commands can be confined (tier landlock, {landlock}): {reason}");
            report.warn("sandbox", detail, fix());
        }
        None => {
            let detail = format!("commands cannot be confined ({landlock}): {reason}");
            report.warn("sandbox", detail, fix());
        }
    }
}

/// Whether containers and the other machine can be used.
fn targets(context: &Context, report: &mut Checks) {
    // Another check reports a policy that cannot be read.
    let (Ok((policy, _)), Ok(runtime)) = (
        crate::sandbox::load_sandbox_policy(context.spaces()),
        crate::engine::runtime(),
    ) else {
        return;
    };
    // The check is useful only if the user configured a container or a remote machine.
    if policy.docker == DockerConfig::default() && policy.remote.is_none() {
        return;
    }
    let vault = context.vault();
    let found = runtime.block_on(crate::sandbox::check_targets(&policy, vault.as_ref()));
    runtime.shutdown_background();
    for check in found {
        if check.works {
            report.ok(check.kind, check.detail);
        } else {
            report.warn(check.kind, check.detail, check.fix);
        }
    }
}

fn cache(context: &Context, report: &mut Checks) {
    let Some(dir) = context.cache() else {
        let detail = "no cache directory: HOME is not set";
        let fix = "export RYE_CACHE_DIR=/path/to/cache".to_owned();
        return report.warn("cache", detail, fix);
    };
    if !rye_items::is_owner_only_dir(dir) {
        let detail = format!("{} is not used: other users can write to it", dir.display());
        let fix = format!("chmod go-w {}", shell_word(dir));
        return report.warn("cache", detail, fix);
    }
    match check_writable(dir) {
        Ok(()) => report.ok("cache", dir.display().to_string()),
        Err(error) => {
            let fix = format!("mkdir -p {0} && chmod u+rwx {0}", shell_word(dir));
            report.fail("cache", error.to_string(), fix);
        }
    }
}

fn check_writable(dir: &Path) -> Result<(), lillux::PathError> {
    let mut builder = std::fs::DirBuilder::new();
    let created = builder.recursive(true).mode(0o700).create(dir);
    created.at("create the directory", dir)?;
    let probe = dir.join(format!(".probe-{}", std::process::id()));
    std::fs::write(&probe, b"").at("write to", dir)?;
    std::fs::remove_file(&probe).at("remove", &probe)
}

/// The first executable file with this name on PATH.
fn on_path(program: &str) -> Option<PathBuf> {
    use rustix::fs::{Access, access};
    let path = settings::variable("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
}
