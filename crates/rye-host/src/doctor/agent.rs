//! Checks the approval policy and the allowed commands of agents.

use crate::PolicyError;
use crate::accept_hint;
use rye_items::Library;
use rye_items::trust::IgnoredFile;

use super::Checks;
use crate::failure::Failure;

pub(super) fn check(library: &Library, report: &mut Checks) {
    let spaces = library.spaces();
    let approvals = crate::load_policy(spaces).map(|(_, ignored)| ignored);
    let commands = crate::load_commands(spaces).map(|(_, ignored)| ignored);
    add("approvals", approvals, report);
    add("commands", commands, report);
    let confinement = crate::sandbox::load_sandbox_policy(spaces).map(|(_, ignored)| ignored);
    add("sandbox", confinement, report);
}

fn add(name: &'static str, loaded: Result<Vec<IgnoredFile>, PolicyError>, report: &mut Checks) {
    match loaded {
        Ok(all) => {
            for ignored in all {
                let detail = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
                report.warn(name, detail, accept_hint(&ignored));
            }
        }
        Err(error) => report.fail_with(name, Failure::from(error)),
    }
}
