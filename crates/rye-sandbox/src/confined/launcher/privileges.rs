//! Capabilities, `no_new_privs` and resource limits.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
    set_no_new_privs,
};

use super::{Context, LaunchError};
use crate::confined::policy::Limits;

/// The lowest number of processes that the kernel accepts for a pid namespace.
const MIN_PIDS: u64 = 301;

/// Limits the processes of the pid namespace, root's included. Needs Linux 6.14; before that,
/// only the limit of the user applies.
pub(super) fn limit_processes(processes: u64) {
    let _ = fs::write(
        "/proc/sys/kernel/pid_max",
        processes.max(MIN_PIDS).to_string(),
    );
}

/// Sets the limits of each process.
pub(super) fn limit_resources(limits: &Limits) -> Result<(), LaunchError> {
    for (resource, value) in [
        (Resource::Core, 0),
        (Resource::Nproc, limits.processes),
        (Resource::Data, limits.memory),
        (Resource::Fsize, limits.file_size),
        (Resource::Nofile, limits.open_files),
    ] {
        let old = getrlimit(resource);
        let lower = |old: Option<u64>| Some(old.map_or(value, |old| old.min(value)));
        let new = Rlimit {
            current: lower(old.current),
            maximum: lower(old.maximum),
        };
        setrlimit(resource, new).context(format!("cannot limit {resource:?}"))?;
    }
    Ok(())
}

/// Gives up all capabilities for good: no program, not even one that root runs or that has the
/// setuid bit, gets any back.
pub(super) fn give_up() -> Result<(), LaunchError> {
    let step = "cannot give up privileges";
    set_no_new_privs(true).context(step)?;
    // Both need a capability, which an ordinary user in the tier `landlock` does not have.
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED;
    permitted(set_capabilities_secure_bits(bits)).context(step)?;
    for capability in CapabilitySet::all().iter() {
        permitted(remove_capability_from_bounding_set(capability)).context(step)?;
    }
    clear_ambient_capability_set().context(step)?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).context(step)
}

/// Accepts that a capability is missing, or unknown to this kernel.
fn permitted(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::PERM | Errno::INVAL) => Ok(()),
        other => other,
    }
}
