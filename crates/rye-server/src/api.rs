//! The routes of the API, one module per resource.

mod audit;
mod catalogue;
mod control;
mod documents;
mod files;
mod gates;
mod hosts;
mod items;
mod operations;
mod place;
mod prompts;
mod quotas;
mod replay;
mod schedules;
mod sessions;
mod socket;
mod streams;
mod threads;
mod tokens;
mod usage;
mod webhooks;

use std::sync::Arc;

use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{get, post};
use axum::{Extension, Router};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use catalogue::usable_models;
pub(crate) use gates::{NewDecision, decide_one};
pub(crate) use operations::Readiness;
pub(crate) use prompts::{IDEMPOTENCY_KEY, ITEM_SEPARATOR, prompt_id};
pub(crate) use quotas::check as check_quotas;
pub(crate) use sessions::{check_model, new_session};

use crate::acp;
use crate::agui;
use crate::auth;
use crate::browser_keys;
use crate::console;
use crate::extract::BodyLimit;
use crate::guard::{self, Guard};
use crate::login;
use crate::openai;
use crate::problem::Problem;
use crate::server::App;

pub(crate) use control::Command;

/// Maximum and default number of items of a page.
const PAGE: usize = 100;

/// Maximum number of items of a page that a client may ask for.
const MAX_PAGE: usize = 1000;

/// The routes that need authentication, with their descriptions.
pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(sessions::create, sessions::list))
        .routes(routes!(sessions::show, sessions::remove))
        .routes(routes!(prompts::send))
        .routes(routes!(prompts::withdraw))
        .routes(routes!(prompts::show))
        .routes(routes!(threads::list))
        .routes(routes!(threads::entries))
        .routes(routes!(control::control_session))
        .routes(routes!(control::control_thread))
        .routes(routes!(gates::list))
        .routes(routes!(gates::show))
        .routes(routes!(gates::decide))
        .routes(routes!(gates::decide_many))
        .routes(routes!(streams::events))
        .routes(routes!(streams::all_events))
        .routes(routes!(socket::socket))
        .routes(routes!(audit::fork))
        .routes(routes!(audit::export))
        .routes(routes!(audit::import))
        .routes(routes!(audit::verify))
        .routes(routes!(replay::replay))
        .routes(routes!(catalogue::models))
        .routes(routes!(catalogue::roles))
        .routes(routes!(usage::list))
        .routes(routes!(files::blob))
        .routes(routes!(files::artifacts))
        .routes(routes!(items::search))
        .routes(routes!(items::show))
        .routes(routes!(items::execute))
        .routes(routes!(items::start_graph))
        .routes(routes!(schedules::create, schedules::list))
        .routes(routes!(schedules::show, schedules::remove))
        .routes(routes!(schedules::control))
        .routes(routes!(webhooks::create, webhooks::list))
        .routes(routes!(webhooks::remove))
        .routes(routes!(webhooks::deliveries))
        .routes(routes!(webhooks::replay))
        .routes(routes!(webhooks::create_hook, webhooks::list_hooks))
        .routes(routes!(webhooks::remove_hook))
        .routes(routes!(hosts::list))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(tokens::whoami))
        .routes(routes!(quotas::list))
        .routes(routes!(quotas::set, quotas::remove))
        .routes(routes!(browser_keys::enrol, browser_keys::list))
        .routes(routes!(browser_keys::confirm))
}

/// The routes that need no token, with their descriptions.
pub(crate) fn open_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(webhooks::call_hook))
}

/// All routes.
pub(crate) fn router(app: App, guard: Arc<Guard>) -> Router {
    let (api, _) = routes().split_for_parts();
    let api = api
        .route("/api/logout", post(login::log_out))
        .route("/ag-ui", post(agui::run))
        .route("/acp", get(acp::socket))
        .route_layer(middleware::from_fn_with_state(
            app.clone(),
            auth::authenticate,
        ));
    let (open, _) = open_routes().split_for_parts();
    let max_body = app.options.max_body;
    Router::new()
        .merge(api)
        .merge(openai::routes(&app))
        .merge(open)
        .merge(console::routes())
        .route("/api/openapi.json", get(documents::openapi))
        .route("/login", get(login::log_in))
        .route("/healthz", get(operations::is_alive))
        .route("/readyz", get(operations::is_ready))
        .route("/metrics", get(operations::metrics))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "no_route", "there is no such path"))
        .method_not_allowed_fallback(async || {
            let detail = "the path does not support this method";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
        })
        .layer(Extension(BodyLimit(max_body)))
        .layer(middleware::from_fn_with_state(guard, guard::check))
        .layer(middleware::from_fn(operations::log_access))
        .with_state(app)
}

/// The number of items of a page.
fn page_size(limit: Option<usize>) -> Result<usize, Problem> {
    let limit = limit.unwrap_or(PAGE);
    if (1..=MAX_PAGE).contains(&limit) {
        return Ok(limit);
    }
    let detail = format!("limit must be from 1 to {MAX_PAGE}");
    Err(Problem::invalid("invalid_query", detail))
}

/// Parses a value in `snake_case` by its serialised name.
fn parse_name<T: serde::de::DeserializeOwned>(name: &str, what: &str) -> Result<T, Problem> {
    let value = serde_json::Value::String(name.to_owned());
    serde_json::from_value(value)
        .map_err(|error| Problem::invalid("invalid_query", format!("invalid {what}: {error}")))
}
