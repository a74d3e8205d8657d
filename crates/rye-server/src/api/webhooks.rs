//! Webhooks, to which events are sent, and hooks, at which requests start work.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use rye_automation::{
    Action, Delivery, Hook, HookError, HookRequest, NewHook, NewWebhook, StartedWork, Webhook,
};
use rye_store::Scope;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::page_size;
use super::schedules::{check_action, new_owner};
use crate::auth::Principal;
use crate::extract::{Body, Params, Segments, body_bytes};
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// A webhook to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateWebhook {
    /// Name for people.
    name: Option<String>,
    /// Where events are sent.
    url: String,
    /// Types of the events, such as `turn_end`; by default all.
    #[serde(default)]
    events: Vec<String>,
    /// Whether the URL may lead to an address that is not public. Needs a token that gives access
    /// to all sessions.
    #[serde(default)]
    allow_private: bool,
    /// Whose events are sent, if the token is not bound to a user.
    user: Option<String>,
    /// The organisation whose events are sent, if the token is not bound to one.
    org: Option<String>,
}

/// A webhook, with its secret if it was just created.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedWebhook {
    webhook: Webhook,
    /// The secret that signs what is sent. It is shown only once.
    secret: String,
}

/// Creates a webhook, to which the events of the caller's sessions are sent
#[utoipa::path(
    post,
    operation_id = "createWebhook",
    path = "/api/webhooks",
    tag = "webhooks",
    request_body = CreateWebhook,
    responses(
        (status = 201, description = "Created", body = CreatedWebhook),
        (status = 422, description = "Invalid URL", body = ProblemDocument),
    ),
)]
pub(crate) async fn create(
    State(app): State<App>,
    who: Principal,
    Body(new): Body<CreateWebhook>,
) -> Result<(StatusCode, Json<CreatedWebhook>), Problem> {
    // It outlives the token.
    who.require(Scope::Admin)?;
    if new.allow_private {
        who.require_unbounded()?;
    }
    let new = NewWebhook {
        owner: new_owner(&app, &who, new.user, new.org)?,
        name: new.name,
        url: new.url,
        events: new.events,
        allow_private: new.allow_private,
    };
    let (webhook, secret) = app.automation.webhooks.add(new).await?;
    let secret = secret.to_string();
    Ok((
        StatusCode::CREATED,
        Json(CreatedWebhook { webhook, secret }),
    ))
}

/// Webhooks.
#[derive(Serialize, ToSchema)]
pub(crate) struct WebhookList {
    webhooks: Vec<Webhook>,
}

/// Lists webhooks, oldest first, without their secrets
#[utoipa::path(
    get,
    operation_id = "listWebhooks",
    path = "/api/webhooks",
    tag = "webhooks",
    responses((status = 200, body = WebhookList)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    who: Principal,
) -> Result<Json<WebhookList>, Problem> {
    who.require(Scope::Admin)?;
    let mut webhooks = app.automation.webhooks.list().await?;
    webhooks.retain(|webhook| who.can_see_owned(&webhook.owner));
    Ok(Json(WebhookList { webhooks }))
}

/// A webhook that the caller can see.
async fn find(app: &App, who: &Principal, id: &str) -> Result<Webhook, Problem> {
    who.require(Scope::Admin)?;
    let found = app.automation.webhooks.get(id).await?;
    let found = found.filter(|webhook| who.can_see_owned(&webhook.owner));
    found.ok_or_else(|| Problem::not_found("webhook", id))
}

/// Deletes a webhook; what was not delivered is not sent any more
#[utoipa::path(
    delete,
    operation_id = "deleteWebhook",
    path = "/api/webhooks/{webhook}",
    tag = "webhooks",
    params(("webhook" = String, Path, description = "Id of the webhook")),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "Unknown webhook", body = ProblemDocument),
    ),
)]
pub(crate) async fn remove(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<StatusCode, Problem> {
    find(&app, &who, &id).await?;
    app.automation.webhooks.remove(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Selects deliveries.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeliveryParams {
    /// Only deliveries before this one.
    before: Option<String>,
    /// Number of deliveries, up to 1000; 100 by default.
    limit: Option<usize>,
}

/// Deliveries.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeliveryList {
    deliveries: Vec<Delivery>,
}

/// Lists the deliveries of a webhook, newest first
#[utoipa::path(
    get,
    operation_id = "listDeliveries",
    path = "/api/webhooks/{webhook}/deliveries",
    tag = "webhooks",
    params(("webhook" = String, Path, description = "Id of the webhook"), DeliveryParams),
    responses(
        (status = 200, body = DeliveryList),
        (status = 404, description = "Unknown webhook", body = ProblemDocument),
    ),
)]
pub(crate) async fn deliveries(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
    Params(params): Params<DeliveryParams>,
) -> Result<Json<DeliveryList>, Problem> {
    let webhook = find(&app, &who, &id).await?;
    let limit = page_size(params.limit)?;
    let webhooks = &app.automation.webhooks;
    let found = webhooks.deliveries(&webhook.id, params.before, limit);
    let deliveries = found.await?;
    Ok(Json(DeliveryList { deliveries }))
}

/// Sends an event again, with the same id
#[utoipa::path(
    post,
    operation_id = "replayDelivery",
    path = "/api/webhooks/{webhook}/deliveries/{delivery}/replay",
    tag = "webhooks",
    params(
        ("webhook" = String, Path, description = "Id of the webhook"),
        ("delivery" = String, Path, description = "Id of the delivery"),
    ),
    responses(
        (status = 202, description = "Queued", body = Delivery),
        (status = 404, description = "Unknown webhook or delivery", body = ProblemDocument),
    ),
)]
pub(crate) async fn replay(
    State(app): State<App>,
    who: Principal,
    Segments((id, delivery)): Segments<(String, String)>,
) -> Result<(StatusCode, Json<Delivery>), Problem> {
    let webhook = find(&app, &who, &id).await?;
    let webhooks = &app.automation.webhooks;
    let queued = webhooks.replay(&webhook.id, &delivery).await?;
    Ok((StatusCode::ACCEPTED, Json(queued)))
}

/// A hook to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateHook {
    /// Name for people.
    name: Option<String>,
    /// What a request starts. Its body is added to a prompt, and is the input `payload` of a graph.
    action: Action,
    /// The owner of the sessions that it starts, if the token is not bound to a user.
    user: Option<String>,
    /// Organisation of the owner, if the token is not bound to one.
    org: Option<String>,
}

/// A hook, with its secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedHook {
    hook: Hook,
    /// The secret with which senders sign requests. It is shown only once.
    secret: String,
}

/// Creates a hook, at which signed requests start a prompt or a graph
///
/// A hook of a graph needs a token that gives access to all sessions.
#[utoipa::path(
    post,
    operation_id = "createHook",
    path = "/api/hooks",
    tag = "webhooks",
    request_body = CreateHook,
    responses(
        (status = 201, description = "Created", body = CreatedHook),
        (status = 404, description = "Unknown session", body = ProblemDocument),
        (status = 422, description = "Invalid action", body = ProblemDocument),
    ),
)]
pub(crate) async fn create_hook(
    State(app): State<App>,
    who: Principal,
    Body(new): Body<CreateHook>,
) -> Result<(StatusCode, Json<CreatedHook>), Problem> {
    who.require(Scope::Admin)?;
    match &new.action {
        // Its inputs are complete only with a request.
        Action::Graph { .. } => who.require_unbounded()?,
        action @ Action::Prompt { .. } => check_action(&app, &who, action).await?,
    }
    let new = NewHook {
        owner: new_owner(&app, &who, new.user, new.org)?,
        name: new.name,
        action: new.action,
    };
    let (hook, secret) = app.automation.hooks.add(new).await?;
    let secret = secret.to_string();
    Ok((StatusCode::CREATED, Json(CreatedHook { hook, secret })))
}

/// Hooks.
#[derive(Serialize, ToSchema)]
pub(crate) struct HookList {
    hooks: Vec<Hook>,
}

/// Lists hooks, oldest first, without their secrets
#[utoipa::path(
    get,
    operation_id = "listHooks",
    path = "/api/hooks",
    tag = "webhooks",
    responses((status = 200, body = HookList)),
)]
pub(crate) async fn list_hooks(
    State(app): State<App>,
    who: Principal,
) -> Result<Json<HookList>, Problem> {
    who.require(Scope::Admin)?;
    let mut hooks = app.automation.hooks.list().await?;
    hooks.retain(|hook| who.can_see_owned(&hook.owner));
    Ok(Json(HookList { hooks }))
}

/// Deletes a hook
#[utoipa::path(
    delete,
    operation_id = "deleteHook",
    path = "/api/hooks/{hook}",
    tag = "webhooks",
    params(("hook" = String, Path, description = "Id of the hook")),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "Unknown hook", body = ProblemDocument),
    ),
)]
pub(crate) async fn remove_hook(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<StatusCode, Problem> {
    who.require(Scope::Admin)?;
    let found = app.automation.hooks.get(&id).await?;
    if !found.is_some_and(|hook| who.can_see_owned(&hook.owner)) {
        return Err(Problem::not_found("hook", &id));
    }
    app.automation.hooks.remove(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl From<HookError> for Problem {
    fn from(error: HookError) -> Self {
        let detail = error.to_string();
        let new = |status, code| Self::new(status, code, detail.clone());
        match error {
            HookError::Header(_) | HookError::NotText => {
                new(StatusCode::BAD_REQUEST, "invalid_request")
            }
            HookError::Stale => new(StatusCode::UNAUTHORIZED, "stale_timestamp"),
            HookError::Signature => new(StatusCode::UNAUTHORIZED, "invalid_signature"),
            HookError::Replayed => new(StatusCode::CONFLICT, "replayed"),
            HookError::TooLarge => new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            HookError::Start(error) if error.is_transient => {
                new(StatusCode::SERVICE_UNAVAILABLE, "try_again").retry_after(5)
            }
            HookError::Start(error) => error.into(),
            HookError::Automation(error) => error.into(),
            _ => new(StatusCode::INTERNAL_SERVER_ERROR, "hook"),
        }
    }
}

/// Starts the prompt or graph of a hook
///
/// The request is signed as Standard Webhooks defines it, and needs no token.
#[utoipa::path(
    post,
    operation_id = "callHook",
    path = "/api/hooks/{hook}",
    tag = "webhooks",
    security(()),
    params(
        ("hook" = String, Path, description = "Id of the hook"),
        ("webhook-id" = String, Header, description = "Identifies the request"),
        ("webhook-timestamp" = String, Header, description = "Seconds since 1970"),
        ("webhook-signature" = String, Header, description = "`v1,` and the HMAC-SHA256 of id, timestamp and body"),
    ),
    responses(
        (status = 202, description = "Started", body = StartedWork),
        (status = 401, description = "Wrong signature or old timestamp", body = ProblemDocument),
        (status = 404, description = "Unknown hook", body = ProblemDocument),
        (status = 409, description = "The request was accepted before", body = ProblemDocument),
    ),
)]
pub(crate) async fn call_hook(
    State(app): State<App>,
    Segments(id): Segments<String>,
    headers: HeaderMap,
    request: Request,
) -> Result<(StatusCode, Json<StartedWork>), Problem> {
    let body = body_bytes(request).await?;
    let text = |name: &'static str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.ok_or(HookError::Header(name))
    };
    let request = HookRequest {
        id: text("webhook-id")?,
        timestamp: text("webhook-timestamp")?,
        signature: text("webhook-signature")?,
        body: &body,
    };
    let automation = &app.automation;
    let started = automation.hooks.receive(&id, request, &automation.launcher);
    Ok((StatusCode::ACCEPTED, Json(started.await?)))
}
