//! Which project a call is about: the one it names, the one that a person chose for the
//! server, the client's first root, or the one in which the server was started.

use std::path::{Path, PathBuf};

use rmcp::RoleServer;
use rmcp::service::RequestContext;

use super::{Server, is_stateless};
use crate::gateway::Refusal;

/// The client's first root that is a folder here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Root {
    /// It has not been asked.
    #[default]
    Unknown,
    /// It has none.
    None,
    At(PathBuf),
}

impl Server {
    pub(super) async fn project_of(
        &self,
        named: Option<&Path>,
        context: &RequestContext<RoleServer>,
    ) -> Result<PathBuf, Refusal> {
        if let Some(named) = named {
            return folder(named);
        }
        let (project, chosen) = self.shared.gateway.project();
        if chosen {
            return Ok(project);
        }
        let mut root = self.session.root.lock().await;
        if *root == Root::Unknown {
            *root = Box::pin(ask(context)).await;
        }
        match &*root {
            Root::At(folder) => Ok(folder.clone()),
            Root::Unknown | Root::None => Ok(project),
        }
    }
}

fn folder(named: &Path) -> Result<PathBuf, Refusal> {
    let wrong = |why: &str| {
        let message = format!("`project_path` {} {why}", named.display());
        Err(Refusal::new("bad_project", message).hint("give the absolute path of a folder"))
    };
    if !named.is_absolute() {
        return wrong("is not absolute");
    }
    match named.canonicalize() {
        Ok(folder) if folder.is_dir() => Ok(folder),
        Ok(_) => wrong("is not a folder"),
        Err(error) => wrong(&format!("cannot be used: {error}")),
    }
}

/// Clients of 2026-07-28 and later take no requests; they name the project.
#[expect(deprecated, reason = "clients of earlier revisions have roots")]
async fn ask(context: &RequestContext<RoleServer>) -> Root {
    let capabilities = context.client_capabilities();
    let has_roots = capabilities.is_some_and(|capabilities| capabilities.roots.is_some());
    if is_stateless(context) || !has_roots {
        return Root::None;
    }
    let Ok(answer) = context.peer.list_roots().await else {
        return Root::None;
    };
    let folders = answer.roots.iter().filter_map(|root| path_of(&root.uri));
    match folders.into_iter().find(|folder| folder.is_dir()) {
        Some(folder) => Root::At(folder),
        None => Root::None,
    }
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
}
