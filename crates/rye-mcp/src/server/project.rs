//! Selects and restricts the project of a call.
//!
//! The server works in the project that the user chose; otherwise in the client's roots;
//! otherwise in the directory where it was started. A call may name one of these directories or
//! one inside them. The roots of a client over HTTP count only inside the directory where the
//! server was started.

use std::path::{Path, PathBuf};

use lillux::path_policy;
use rmcp::RoleServer;
use rmcp::service::RequestContext;

use super::{Server, is_stateless};
use crate::gateway::GatewayError;

/// Error code for a project outside of the bounds.
const OUT_OF_BOUNDS: &str = "project_out_of_bounds";

/// Directories that belong to the project above them and cannot be projects.
const RESERVED_DIRS: [&str; 2] = [".ai", ".git"];

/// Canonical paths of the client's roots; `None` until they were requested.
pub(super) type Roots = Option<Vec<PathBuf>>;

impl Server {
    /// The project of a call, checked against the bounds. All calls use it.
    pub(super) async fn resolve_project(
        &self,
        named: Option<&Path>,
        context: &RequestContext<RoleServer>,
    ) -> Result<PathBuf, GatewayError> {
        let configured = self.shared.gateway.project_bounds();
        let default_project = configured.default_project;
        let default_project = default_project.canonicalize().unwrap_or(default_project);
        let mut bounds = Vec::new();
        if !configured.is_fixed {
            let mut roots = self.session.roots.lock().await;
            if roots.is_none() {
                *roots = Some(Box::pin(request_roots(context)).await);
            }
            bounds.extend(roots.iter().flatten().cloned());
            if self.session.is_remote {
                bounds.retain(|root| root.starts_with(&default_project));
            }
        }
        if bounds.is_empty() {
            bounds.push(default_project);
        }
        choose_project(named, &bounds, &configured.private_dirs)
    }
}

/// The named directory if it is inside the bounds; without a name, the first bound.
fn choose_project(
    named: Option<&Path>,
    bounds: &[PathBuf],
    private: &[PathBuf],
) -> Result<PathBuf, GatewayError> {
    let project = match (named, bounds.first()) {
        (Some(named), _) => project_dir(named)?,
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
        let all: Vec<_> = bounds
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let message = format!(
            "project {shown} is outside of the directories of this server: {}",
            all.join(", ")
        );
        return Err(GatewayError::new(OUT_OF_BOUNDS, message).with_hint(
            "start the server with `rye mcp serve --project DIR`, or add DIR to the client's roots",
        ));
    }
    let is_reserved = |path: &std::path::Component<'_>| {
        let name = path.as_os_str();
        RESERVED_DIRS.iter().any(|part| name == *part)
    };
    // The protection of sensitive names is relative to the project, so a project inside a
    // directory such as `.github` would escape it.
    let inner = bounds
        .iter()
        .filter_map(|path| project.strip_prefix(path).ok());
    let is_sensitive = |inner: &Path| inner.iter().any(path_policy::is_sensitive_name);
    if project.components().any(|path| is_reserved(&path)) || inner.into_iter().all(is_sensitive) {
        let message = format!("{shown} is inside a project and cannot be a project");
        return Err(GatewayError::new(OUT_OF_BOUNDS, message));
    }
    let private = private.iter().map(|path| canonicalize_existing(path));
    if private.into_iter().any(|path| project.starts_with(path)) {
        let message = format!("{shown} contains keys, secrets or state and cannot be a project");
        return Err(GatewayError::new(OUT_OF_BOUNDS, message));
    }
    Ok(project)
}

/// Resolves the symbolic links of the part of a path that exists.
fn canonicalize_existing(path: &Path) -> PathBuf {
    for existing in path.ancestors() {
        if let Ok(real) = existing.canonicalize() {
            let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
            return real.join(rest);
        }
    }
    path.to_owned()
}

fn project_dir(named: &Path) -> Result<PathBuf, GatewayError> {
    let invalid = |why: &str| {
        let message = format!("`project_path` {} {why}", named.display());
        Err(GatewayError::new("bad_project", message)
            .with_hint("give the absolute path of a directory"))
    };
    if !named.is_absolute() {
        return invalid("is not absolute");
    }
    match named.canonicalize() {
        Ok(directory) if directory.is_dir() => Ok(directory),
        Ok(_) => invalid("is not a directory"),
        Err(error) => invalid(&format!("cannot be opened: {error}")),
    }
}

/// Requests the client's roots. Clients of revision 2026-07-28 and later accept no requests.
async fn request_roots(context: &RequestContext<RoleServer>) -> Vec<PathBuf> {
    let capabilities = context.client_capabilities();
    let has_roots = capabilities.is_some_and(|capabilities| capabilities.roots.is_some());
    if is_stateless(context) || !has_roots {
        return Vec::new();
    }
    let Ok(answer) = context.peer.list_roots().await else {
        return Vec::new();
    };
    let paths = answer
        .roots
        .iter()
        .filter_map(|root| file_uri_path(&root.uri));
    let paths = paths.filter_map(|path| path.canonicalize().ok());
    paths.filter(|path| path.is_dir()).collect()
}

/// The path of a `file:` URI on this machine.
fn file_uri_path(uri: &str) -> Option<PathBuf> {
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
    fn file_uri_is_converted_to_a_path() {
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
            assert_eq!(file_uri_path(uri), path.map(PathBuf::from), "{uri}");
        }
    }

    fn code(outcome: Result<PathBuf, GatewayError>) -> String {
        outcome.map_or_else(|refusal| refusal.code, |path| path.display().to_string())
    }

    #[test]
    fn project_must_be_inside_the_bounds_and_outside_private_dirs() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
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
        let choose = |named: &str| choose_project(Some(&root.join(named)), &bounds, &private);
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
        let first = choose_project(None, &bounds, &private).unwrap();
        assert_eq!(first, bounds[0]);
    }
}
