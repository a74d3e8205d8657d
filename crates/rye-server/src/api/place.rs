//! Where a new session works: its project and workspace, as far as the server permits them.

use std::path::{Path, PathBuf};

use axum::http::StatusCode;

use crate::auth::Principal;
use crate::problem::Problem;
use crate::server::App;

/// The directories of a new session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) project: String,
    pub(super) workspace: String,
}

impl Place {
    /// Checks the requested directories. By default, the project is that of the token or else the
    /// server's, and the workspace is the project.
    pub(super) fn choose(
        app: &App,
        who: &Principal,
        project: Option<&str>,
        workspace: Option<&str>,
    ) -> Result<Self, Problem> {
        let bound = who.token().project.as_deref();
        let own = app.project.as_path();
        let requested = project.or(bound).map_or(own, Path::new);
        let project = if requested == own {
            own.to_owned()
        } else {
            permitted(app, requested, "foreign_project")?
        };
        let project_name = project.display().to_string();
        if bound.is_some_and(|bound| bound != project_name) {
            let detail = format!("the token gives no access to the project {project_name}");
            return Err(forbidden("foreign_project", detail));
        }
        let workspace = match workspace {
            None => project_name.clone(),
            Some(relative) => {
                let requested = project.join(relative);
                let found = permitted(app, &requested, "foreign_workspace")?;
                if bound.is_some() && !found.starts_with(&project) {
                    let detail = "the token gives access to its project only";
                    return Err(forbidden("foreign_workspace", detail));
                }
                found.display().to_string()
            }
        };
        Ok(Self {
            project: project_name,
            workspace,
        })
    }
}

/// The real path of a directory that is in the server's project or in one that it permits.
fn permitted(app: &App, requested: &Path, code: &'static str) -> Result<PathBuf, Problem> {
    let shown = requested.display();
    let refused = || {
        let detail = format!("the server does not permit sessions in {shown}");
        forbidden(code, detail).hint("rye serve --allow-project DIR")
    };
    if !requested.is_absolute() {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let detail = format!("the directory {shown} is not an absolute path");
        return Err(Problem::new(status, "invalid_project", detail));
    }
    // A directory that does not exist looks like one that is not permitted.
    app.projects.permitted(requested).ok_or_else(refused)
}

fn forbidden(code: &'static str, detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, code, detail.into())
}
