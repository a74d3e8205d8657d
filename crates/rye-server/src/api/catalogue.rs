//! The models and roles that a session can have.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rye_sandbox::VirtualSandbox;
use rye_store::Scope;
use serde::Serialize;
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

use crate::auth::Principal;
use crate::problem::Problem;
use crate::server::App;

/// The models that can be used.
#[derive(Serialize, ToSchema)]
pub(crate) struct ModelList {
    /// Names of the models.
    models: Vec<String>,
}

/// The roles of the project.
#[derive(Serialize, ToSchema)]
pub(crate) struct RoleList {
    roles: Vec<RoleView>,
}

/// A role.
#[derive(Serialize, ToSchema)]
pub(crate) struct RoleView {
    /// Name of the role.
    name: String,
    /// What it is for.
    description: String,
}

/// Lists the models that a session can have
#[utoipa::path(
    get,
    operation_id = "listModels",
    path = "/api/models",
    tag = "sessions",
    responses((status = 200, body = ModelList)),
)]
pub(crate) async fn models(
    State(app): State<App>,
    who: Principal,
) -> Result<Json<ModelList>, Problem> {
    who.require(Scope::Read)?;
    let models = usable_models(&app).await?;
    Ok(Json(ModelList { models }))
}

/// Lists the roles that a session can have
#[utoipa::path(
    get,
    operation_id = "listRoles",
    path = "/api/roles",
    tag = "sessions",
    responses((status = 200, body = RoleList)),
)]
pub(crate) async fn roles(
    State(app): State<App>,
    who: Principal,
) -> Result<Json<RoleList>, Problem> {
    who.require(Scope::Read)?;
    // Roles in the workspace are items of the project.
    let roles = app.engine().roles(&VirtualSandbox::new()).await;
    let roles = roles.into_iter().map(|role| RoleView {
        name: role.name,
        description: role.description,
    });
    let roles = roles.collect();
    Ok(Json(RoleList { roles }))
}

/// Names of the models that can be used.
pub(crate) async fn usable_models(app: &App) -> Result<Vec<String>, Problem> {
    let app = app.clone();
    let models = spawn_blocking(move || {
        rye_host::catalogue::catalogue(&app.context, &app.project).map(|it| it.list())
    });
    let models = models.await.map_err(|error| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "failed", error.to_string())
    })??;
    let models = models.into_iter().filter(|model| model.usable.is_ok());
    Ok(models.map(|model| model.name).collect())
}
