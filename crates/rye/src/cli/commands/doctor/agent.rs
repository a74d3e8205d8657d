//! Checks the approval policy and the allowed commands of agents.

use rye_host::PolicyError;
use rye_host::accept_hint;
use rye_items::Library;
use rye_items::trust::IgnoredFile;

use super::DoctorReport;
use crate::cli::failure::Failure;

pub(super) fn check(library: &Library, report: &mut DoctorReport) {
    let spaces = library.spaces();
    let approvals = rye_host::load_policy(spaces).map(|(_, ignored)| ignored);
    let commands = rye_host::load_commands(spaces).map(|(_, ignored)| ignored);
    add("approvals", approvals, report);
    add("commands", commands, report);
}

fn add(
    name: &'static str,
    loaded: Result<Vec<IgnoredFile>, PolicyError>,
    report: &mut DoctorReport,
) {
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
