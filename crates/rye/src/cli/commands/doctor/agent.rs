//! Whether what agents go by can be read: what they may do, and which programs they may call.

use rye_host::ApprovalsError;
use rye_items::Library;
use rye_items::trust::IgnoredFile;

use super::Health;
use crate::cli::context::hint_of;
use crate::cli::failure::Failure;

pub(super) fn check(library: &Library, health: &mut Health) {
    let spaces = library.spaces();
    let approvals = rye_host::approvals(spaces).map(|(_, ignored)| ignored);
    let commands = rye_host::commands(spaces).map(|(_, ignored)| ignored);
    tell("approvals", approvals, health);
    tell("commands", commands, health);
}

fn tell(name: &'static str, read: Result<Vec<IgnoredFile>, ApprovalsError>, health: &mut Health) {
    match read {
        Ok(all) => {
            for ignored in all {
                let about = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
                health.warn(name, about, hint_of(&ignored));
            }
        }
        Err(error) => health.broken(name, Failure::from(error)),
    }
}
