//! Widens the policy for one command or file operation, with approval.

use std::fs;
use std::path::{Path, PathBuf};

use rye_engine::sandbox::{Grants, SandboxError};

use super::{ConfinedSandbox, Tier};
use crate::egress::HostRule;
use crate::files::unusable;

/// Directories that lead out of the sandbox if commands see those of the host.
const NEVER: [&str; 3] = ["/dev", "/proc", "/sys"];

impl ConfinedSandbox {
    /// A copy whose policy also allows the grants.
    pub(super) fn with_grants(&self, grants: &Grants) -> Result<Self, SandboxError> {
        let mut wide = self.clone();
        let hosts = grants.network.iter().map(|host| {
            let rule = host.parse::<HostRule>();
            rule.map_err(|error| unusable(host, &error.to_string()))
        });
        let hosts: Vec<_> = hosts.collect::<Result<_, _>>()?;
        if !hosts.is_empty() {
            if self.tier != Tier::Full {
                let reason = format!("the tier `{}` has none", self.tier);
                return Err(unusable("the network", &reason));
            }
            wide.policy.network.grant(hosts);
        }
        let mut unprotected = self.resolved.unprotected.clone();
        for path in &grants.read {
            let real = self.grantable(path)?;
            wide.policy.read.push(real.to_string_lossy().into_owned());
        }
        for path in &grants.write {
            let real = self.grantable(path)?;
            match real.strip_prefix(&self.resolved.workspace) {
                Ok(inside) => unprotected.push(self.protected_path(path, inside)?),
                Err(_) => wide.policy.write.push(real.to_string_lossy().into_owned()),
            }
        }
        let (workspace, home) = (&self.resolved.workspace, self.resolved.home.as_deref());
        wide.resolved = wide.policy.resolve(workspace, home);
        wide.resolved.unprotected = unprotected;
        Ok(wide)
    }

    /// The real path of a file or directory that exists and can be made visible.
    fn grantable(&self, path: &str) -> Result<PathBuf, SandboxError> {
        let home = self.resolved.home.as_deref();
        let expanded = match (path.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest).to_string_lossy().into_owned(),
            _ => path.to_owned(),
        };
        // Private paths are refused here.
        let real = self.local.files.real_path(&expanded)?;
        let leads_out = real == Path::new("/") || NEVER.iter().any(|dir| real.starts_with(dir));
        if leads_out {
            return Err(unusable(path, "it leads out of the sandbox"));
        }
        if fs::symlink_metadata(&real).is_err() {
            return Err(SandboxError::NotFound(path.to_owned()));
        }
        Ok(real)
    }

    /// A path of the workspace, relative to it, whose protection can end.
    fn protected_path(&self, given: &str, inside: &Path) -> Result<PathBuf, SandboxError> {
        let mut parents = inside.ancestors().skip(1);
        let is_protected = |path: &&Path| {
            path.file_name()
                .is_some_and(|name| self.policy.protects(name))
        };
        if let Some(protected) = parents.find(is_protected) {
            let reason = format!("it is inside of {0}: name {0}", protected.display());
            return Err(unusable(given, &reason));
        }
        Ok(inside.to_owned())
    }
}
