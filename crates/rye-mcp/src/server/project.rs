//! Which project a call is about, and which projects it may be about.
//!
//! The server works in the project that the user chose for it, else in the client's roots, else
//! in the directory in which it was started. A call may name one of these directories or one
//! below them. A client that connects over a network may be anybody: its roots count only within
//! the directory in which the server was started.

use std::path::{Path, PathBuf};

use lillux::path_policy;
use rmcp::RoleServer;
use rmcp::service::RequestContext;

use super::{Server, is_stateless};
use crate::gateway::GatewayError;

/// The code of a refused project.
const OUT_OF_BOUNDS: &str = "project_out_of_bounds";

/// Directories that hold items or history: what is in them is part of the project above.
const PARTS_OF_PROJECTS: [&str; 2] = [".ai", ".git"];

/// The client's roots that are directories here, canonical; none until it was asked.
pub(super) type Roots = Option<Vec<PathBuf>>;

impl Server {
    /// The project of a call. All calls pass here, whatever they do.
    pub(super) async fn project_of(
        &self,
        named: Option<&Path>,
        context: &RequestContext<RoleServer>,
    ) -> Result<PathBuf, GatewayError> {
        let workplace = self.shared.gateway.project_bounds();
        let own = workplace.project;
        let own = own.canonicalize().unwrap_or(own);
        let mut bounds = Vec::new();
        if !workplace.is_fixed {
            let mut roots = self.session.roots.lock().await;
            if roots.is_none() {
                *roots = Some(Box::pin(ask(context)).await);
            }
            bounds.extend(roots.iter().flatten().cloned());
            if self.session.is_remote {
                bounds.retain(|root| root.starts_with(&own));
            }
        }
        if bounds.is_empty() {
            bounds.push(own);
        }
        choose(named, &bounds, &workplace.private_dirs)
    }
}

/// The named directory if it is within the bounds, else the first bound.
fn choose(
    named: Option<&Path>,
    bounds: &[PathBuf],
    private: &[PathBuf],
) -> Result<PathBuf, GatewayError> {
    let project = match (named, bounds.first()) {
        (Some(named), _) => directory(named)?,
        (None, Some(first)) => first.clone(),
        (None, None) => {
            return Err(GatewayError::new(
                OUT_OF_BOUNDS,
                "the server has no project",
            ));
        }
    };
    let shown = project.display();
    if !bounds.iter().any(|bound| project.starts_with(bound)) {
        let all: Vec<_> = bounds.iter().map(|it| it.display().to_string()).collect();
        let message = format!(
            "project {shown} is outside of the directories that this server works in: {}",
            all.join(", ")
        );
        return Err(GatewayError::new(OUT_OF_BOUNDS, message).hint(
            "start the server with `rye mcp serve --project DIR`, or add DIR to the client's roots",
        ));
    }
    let is_part = |it: &std::path::Component<'_>| {
        let name = it.as_os_str();
        PARTS_OF_PROJECTS.iter().any(|part| name == *part)
    };
    // Within a directory such as `.github` or `node_modules`, nothing would be sensitive.
    let inner = bounds.iter().filter_map(|it| project.strip_prefix(it).ok());
    let is_sensitive = |inner: &Path| inner.iter().any(path_policy::is_sensitive_name);
    if project.components().any(|it| is_part(&it)) || inner.into_iter().all(is_sensitive) {
        let message = format!("{shown} is part of a project and no project itself");
        return Err(GatewayError::new(OUT_OF_BOUNDS, message));
    }
    let private = private.iter().map(|it| real(it));
    if private.into_iter().any(|it| project.starts_with(it)) {
        let message = format!("{shown} holds keys, secrets or state of the user and is no project");
        return Err(GatewayError::new(OUT_OF_BOUNDS, message));
    }
    Ok(project)
}

/// A path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    for existing in path.ancestors() {
        if let Ok(real) = existing.canonicalize() {
            let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
            return real.join(rest);
        }
    }
    path.to_owned()
}

fn directory(named: &Path) -> Result<PathBuf, GatewayError> {
    let wrong = |why: &str| {
        let message = format!("`project_path` {} {why}", named.display());
        Err(GatewayError::new("bad_project", message).hint("give the absolute path of a directory"))
    };
    if !named.is_absolute() {
        return wrong("is not absolute");
    }
    match named.canonicalize() {
        Ok(directory) if directory.is_dir() => Ok(directory),
        Ok(_) => wrong("is not a directory"),
        Err(error) => wrong(&format!("cannot be used: {error}")),
    }
}

/// Asks a client for its roots. Clients of 2026-07-28 and later take no requests.
#[expect(deprecated, reason = "clients of earlier revisions have roots")]
async fn ask(context: &RequestContext<RoleServer>) -> Vec<PathBuf> {
    let capabilities = context.client_capabilities();
    let has_roots = capabilities.is_some_and(|capabilities| capabilities.roots.is_some());
    if is_stateless(context) || !has_roots {
        return Vec::new();
    }
    let Ok(answer) = context.peer.list_roots().await else {
        return Vec::new();
    };
    let paths = answer.roots.iter().filter_map(|root| path_of(&root.uri));
    let paths = paths.filter_map(|path| path.canonicalize().ok());
    paths.filter(|path| path.is_dir()).collect()
}

/// The path of a `file:` address on this machine.
fn path_of(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return None;
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    Some(PathBuf::from(String::from_utf8(bytes).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_folder_is_its_path() {
        let cases = [
            ("file:///srv/my%20project", Some("/srv/my project")),
            ("file://localhost/x", Some("/x")),
            ("file:///%C3%A9t%C3%A9", Some("/été")),
            ("file://elsewhere/x", None),
            ("https://example.org/x", None),
            ("file:///x%2", None),
            ("file:///x%zz", None),
        ];
        for (uri, path) in cases {
            assert_eq!(path_of(uri), path.map(PathBuf::from), "{uri}");
        }
    }

    fn code(outcome: Result<PathBuf, GatewayError>) -> String {
        outcome.map_or_else(|refusal| refusal.code, |path| path.display().to_string())
    }

    #[test]
    fn a_project_is_within_the_bounds_and_not_in_a_private_directory() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for part in [
            "one/sub/.ai/tools",
            "one/.github/.ai",
            "one/node_modules/x/.ai",
            "two",
            "three",
            "home/state/gates",
        ] {
            std::fs::create_dir_all(root.join(part)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("three"), root.join("one/out")).unwrap();
        std::os::unix::fs::symlink(root.join("home/state"), root.join("one/state")).unwrap();
        let private = [root.join("home/state"), root.join("home/none/keys")];
        let bounds = [root.join("one"), root.join("two"), root.join("home")];
        let choose = |named: &str| choose(Some(&root.join(named)), &bounds, &private);
        for good in ["one", "one/sub", "two", "home", "one/../two"] {
            assert!(choose(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "three",
            "one/out",
            "one/../three",
            "one/state",
            "home/state",
            "home/state/gates",
            "one/sub/.ai",
            "one/sub/.ai/tools",
            "one/.github",
            "one/node_modules/x",
        ] {
            assert_eq!(code(choose(bad)), OUT_OF_BOUNDS, "{bad}");
        }
        assert_eq!(code(choose("nothing")), "bad_project");
        let first = super::choose(None, &bounds, &private).unwrap();
        assert_eq!(first, bounds[0]);
    }
}
