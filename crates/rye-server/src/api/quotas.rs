//! Quotas of users and organisations.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rye_engine::protocol::{PromptId, Session, Usage};
use rye_engine::quotas::{Period, Quota, QuotaState, Quotas, Subject, SubjectKind};
use rye_store::Scope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::parse_name;
use crate::auth::Principal;
use crate::extract::{Body, Segments};
use crate::openapi::schemas;
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// Fails if no further turn may run in a session. A prompt that is already stored is not refused.
pub(crate) async fn check(
    app: &App,
    session: &Session,
    prompt: Option<&PromptId>,
) -> Result<(), Problem> {
    let Some(quotas) = app.engine().quotas() else {
        return Ok(());
    };
    if session.user_id.is_none() && session.org_id.is_none() {
        return Ok(());
    }
    if let Some(prompt) = prompt
        && app.engine().prompt(&session.id, prompt).await?.is_some()
    {
        return Ok(());
    }
    quotas.check_budget(session).await?;
    Ok(quotas.check_turns(session).await?)
}

/// What a user or organisation may use.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaLimits {
    /// Input and output tokens in a period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    /// Money in a period, in millionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    micro_dollars: Option<u64>,
    /// When both renew, in UTC: `day` or `month`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    period: Period,
    /// Turns that run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turns: Option<u32>,
    /// Requests to a server in a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requests_per_minute: Option<u32>,
}

/// A quota, with what is used of it.
#[derive(Serialize, ToSchema)]
pub(crate) struct QuotaView {
    /// `user` or `org`.
    #[schema(value_type = String)]
    kind: SubjectKind,
    /// The name; `*` for everyone without a quota of their own.
    name: String,
    quota: QuotaLimits,
    /// What was used in the current period.
    #[schema(schema_with = schemas::usage)]
    used: Usage,
    /// End of the current period, in milliseconds since 1970.
    renews_at: u64,
    /// Turns that run now.
    running_turns: usize,
}

impl From<QuotaState> for QuotaView {
    fn from(state: QuotaState) -> Self {
        Self {
            kind: state.subject.kind,
            name: state.subject.name,
            quota: QuotaLimits {
                tokens: state.quota.tokens,
                micro_dollars: state.quota.micro_dollars,
                period: state.quota.period,
                turns: state.quota.turns,
                requests_per_minute: state.quota.requests_per_minute,
            },
            used: state.used,
            renews_at: state.renews_at.0,
            running_turns: state.running_turns,
        }
    }
}

/// All quotas.
#[derive(Serialize, ToSchema)]
pub(crate) struct QuotaList {
    quotas: Vec<QuotaView>,
}

/// Lists the quotas of users and organisations, with what is used of them
#[utoipa::path(
    get,
    operation_id = "listQuotas",
    path = "/api/quotas",
    tag = "quotas",
    responses((status = 200, body = QuotaList)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    who: Principal,
) -> Result<Json<QuotaList>, Problem> {
    let quotas = admin(&app, &who)?.list().await?;
    Ok(Json(QuotaList {
        quotas: quotas.into_iter().map(QuotaView::from).collect(),
    }))
}

/// Sets what a user or organisation may use
#[utoipa::path(
    put,
    operation_id = "setQuota",
    path = "/api/quotas/{kind}/{name}",
    tag = "quotas",
    params(
        ("kind" = String, Path, description = "`user` or `org`"),
        ("name" = String, Path, description = "Its name, or `*` for everyone without a quota of their own"),
    ),
    request_body = QuotaLimits,
    responses((status = 204, description = "Set")),
)]
pub(crate) async fn set(
    State(app): State<App>,
    who: Principal,
    Segments((kind, name)): Segments<(String, String)>,
    Body(limits): Body<QuotaLimits>,
) -> Result<StatusCode, Problem> {
    let quotas = admin(&app, &who)?;
    let quota = Quota {
        tokens: limits.tokens,
        micro_dollars: limits.micro_dollars,
        period: limits.period,
        turns: limits.turns,
        requests_per_minute: limits.requests_per_minute,
    };
    quotas.set(&subject(&kind, name)?, &quota).await?;
    app.rates.forget_quotas();
    Ok(StatusCode::NO_CONTENT)
}

/// Removes the quota of a user or organisation
#[utoipa::path(
    delete,
    operation_id = "removeQuota",
    path = "/api/quotas/{kind}/{name}",
    tag = "quotas",
    params(
        ("kind" = String, Path, description = "`user` or `org`"),
        ("name" = String, Path, description = "Its name, or `*`"),
    ),
    responses(
        (status = 204, description = "Removed"),
        (status = 404, description = "It has no quota", body = ProblemDocument),
    ),
)]
pub(crate) async fn remove(
    State(app): State<App>,
    who: Principal,
    Segments((kind, name)): Segments<(String, String)>,
) -> Result<StatusCode, Problem> {
    let quotas = admin(&app, &who)?;
    let subject = subject(&kind, name)?;
    let existed = quotas.remove(&subject).await?;
    app.rates.forget_quotas();
    if existed {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found("quota of the", &subject.to_string()))
    }
}

fn subject(kind: &str, name: String) -> Result<Subject, Problem> {
    let kind = parse_name(kind, "kind of quota")?;
    if name.trim().is_empty() {
        return Err(Problem::invalid("invalid_id", "the name is empty"));
    }
    Ok(Subject { kind, name })
}

/// The quotas, for a caller who may see and set all of them.
fn admin<'a>(app: &'a App, who: &Principal) -> Result<&'a Quotas, Problem> {
    who.require(Scope::Admin)?;
    who.require_unbounded()?;
    app.engine()
        .quotas()
        .ok_or_else(|| Problem::not_found("quota of this", "engine"))
}
