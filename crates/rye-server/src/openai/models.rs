//! `/v1/models`: roles and models.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rye_sandbox::VirtualSandbox;
use rye_store::Scope;
use serde_json::{Value, json};

use crate::auth::Principal;
use crate::extract::Segments;
use crate::problem::Problem;
use crate::server::App;

/// Name of the agent without a role and with the default model.
const DEFAULT: &str = "rye";

/// What answers a request.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub(super) model: Option<String>,
    pub(super) role: Option<String>,
}

/// The role or model with a name.
pub(super) async fn find(app: &App, name: &str) -> Result<Target, Problem> {
    if name == DEFAULT {
        crate::api::check_model(app, None)?;
        return Ok(Target::default());
    }
    let named = Some(name.to_owned());
    if app.engine().check_model(Some(name)).is_ok() {
        return Ok(Target {
            model: named,
            role: None,
        });
    }
    // Roles in the workspace are items of the project.
    let roles = app.engine().roles(&VirtualSandbox::new()).await;
    if roles.iter().any(|role| role.name == name) {
        return Ok(Target {
            model: None,
            role: named,
        });
    }
    let status = StatusCode::NOT_FOUND;
    let detail = format!("there is no role and no usable model `{name}`");
    let problem = Problem::new(status, "unknown_model", detail).with("param", "model");
    Err(problem.hint("GET /v1/models"))
}

/// `GET /v1/models`
pub(super) async fn list(State(app): State<App>, who: Principal) -> Result<Json<Value>, Problem> {
    let models = all(&app, &who).await?;
    Ok(Json(json!({ "object": "list", "data": models })))
}

/// `GET /v1/models/{name}`
pub(super) async fn show(
    State(app): State<App>,
    who: Principal,
    Segments(name): Segments<String>,
) -> Result<Json<Value>, Problem> {
    let mut models = all(&app, &who).await?.into_iter();
    let found = models.find(|model| model["id"] == name.as_str());
    found.map(Json).ok_or_else(|| {
        let detail = format!("there is no role and no usable model `{name}`");
        Problem::new(StatusCode::NOT_FOUND, "unknown_model", detail)
    })
}

/// The default agent, the roles, and the models that can be used.
async fn all(app: &App, who: &Principal) -> Result<Vec<Value>, Problem> {
    who.require(Scope::Read)?;
    let roles = app.engine().roles(&VirtualSandbox::new()).await;
    let models = crate::api::usable_models(app).await?;
    let names = std::iter::once(DEFAULT.to_owned())
        .chain(roles.into_iter().map(|role| role.name))
        .chain(models);
    Ok(names
        .map(|id| json!({ "id": id, "object": "model", "created": 0, "owned_by": "rye" }))
        .collect())
}
