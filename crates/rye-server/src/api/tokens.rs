//! Access tokens.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rye_store::{AccessToken, Scope, TokenKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::parse_name;
use crate::auth::Principal;
use crate::extract::{Body, Segments};
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;
use crate::tokens::{NewToken, TokenError};

/// A token to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateToken {
    /// Name for people.
    name: String,
    /// What the token permits: read, prompt, decide, admin.
    scopes: Vec<String>,
    /// The user whose sessions it gives access to; by default that of the caller's token.
    user: Option<String>,
    /// The organisation whose sessions it gives access to; by default that of the caller's token.
    org: Option<String>,
    /// The only project that it gives access to.
    project: Option<String>,
    /// How long it is valid, in seconds; without it, until it is revoked.
    expires_in: Option<u64>,
}

/// An access token.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenView {
    /// Id of the token.
    id: String,
    /// `api` or `browser`.
    kind: &'static str,
    /// Name for people.
    name: String,
    /// What it permits.
    scopes: Vec<&'static str>,
    /// The user whose sessions it gives access to.
    user: Option<String>,
    /// The organisation whose sessions it gives access to.
    org: Option<String>,
    /// The only project that it gives access to.
    project: Option<String>,
    /// Creation time, in milliseconds since 1970.
    created_at: u64,
    /// End of its validity, in milliseconds since 1970.
    expires_at: Option<u64>,
    /// The secret. Only in the response to its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

impl From<AccessToken> for TokenView {
    fn from(token: AccessToken) -> Self {
        Self {
            id: token.id,
            kind: match token.kind {
                TokenKind::Api => "api",
                TokenKind::Login => "login",
                TokenKind::Browser => "browser",
            },
            name: token.name,
            scopes: token.scopes.into_iter().map(Scope::as_str).collect(),
            user: token.user,
            org: token.org,
            project: token.project,
            created_at: token.created_at.0,
            expires_at: token.expires_at.map(|until| until.0),
            secret: None,
        }
    }
}

impl From<TokenError> for Problem {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Store(error) => error.into(),
            error @ TokenError::Randomness(_) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self::new(status, "no_randomness", error.to_string())
            }
        }
    }
}

/// Creates a token, whose bounds are at most those of the caller's token
#[utoipa::path(
    post,
    operation_id = "createToken",
    path = "/api/tokens",
    tag = "tokens",
    request_body = CreateToken,
    responses(
        (status = 201, description = "Created", body = TokenView),
        (status = 403, description = "The bounds exceed those of the caller", body = ProblemDocument),
    ),
)]
pub(crate) async fn create(
    State(app): State<App>,
    who: Principal,
    Body(new): Body<CreateToken>,
) -> Result<(StatusCode, Json<TokenView>), Problem> {
    who.require(Scope::Admin)?;
    let scopes = new.scopes.iter().map(|name| parse_name(name, "scope"));
    let scopes: BTreeSet<Scope> = scopes.collect::<Result<_, _>>()?;
    if scopes.is_empty() {
        return Err(Problem::invalid("invalid_body", "a token needs a scope"));
    }
    let own = who.token();
    let new = NewToken {
        name: new.name,
        scopes,
        user: bounded("user", own.user.as_ref(), new.user)?,
        org: bounded("org", own.org.as_ref(), new.org)?,
        project: bounded("project", own.project.as_ref(), new.project)?,
        lifetime: new.expires_in.map(Duration::from_secs),
        created_by: Some(own.id.clone()),
    };
    let (token, secret) = app.tokens.create(new).await?;
    let view = TokenView {
        secret: Some(secret),
        ..token.into()
    };
    Ok((StatusCode::CREATED, Json(view)))
}

/// A bound of a new token: the caller's, or a requested one if the caller has none.
fn bounded(
    what: &str,
    own: Option<&String>,
    requested: Option<String>,
) -> Result<Option<String>, Problem> {
    match (own, requested) {
        (Some(own), Some(requested)) if *own != requested => {
            let detail = format!("your token is bound to another {what}");
            Err(Problem::new(StatusCode::FORBIDDEN, "foreign_bound", detail))
        }
        (Some(own), _) => Ok(Some(own.clone())),
        (None, requested) => Ok(requested),
    }
}

/// Tokens.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenList {
    tokens: Vec<TokenView>,
}

/// Whether a token is within the bounds of the caller's.
fn is_visible(who: &AccessToken, token: &AccessToken) -> bool {
    let within = |own: &Option<String>, other: &Option<String>| own.is_none() || own == other;
    within(&who.user, &token.user)
        && within(&who.org, &token.org)
        && within(&who.project, &token.project)
}

/// Lists tokens, oldest first, without their secrets
#[utoipa::path(
    get,
    operation_id = "listTokens",
    path = "/api/tokens",
    tag = "tokens",
    responses((status = 200, body = TokenList)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    who: Principal,
) -> Result<Json<TokenList>, Problem> {
    who.require(Scope::Admin)?;
    let tokens = app.tokens.list().await?.into_iter();
    let tokens = tokens.filter(|token| is_visible(who.token(), token));
    let tokens = tokens.map(TokenView::from).collect();
    Ok(Json(TokenList { tokens }))
}

/// Revokes a token
#[utoipa::path(
    delete,
    operation_id = "revokeToken",
    path = "/api/tokens/{token}",
    tag = "tokens",
    params(("token" = String, Path, description = "Id of the token")),
    responses(
        (status = 204, description = "Revoked"),
        (status = 404, description = "Unknown token", body = ProblemDocument),
    ),
)]
pub(crate) async fn revoke(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<StatusCode, Problem> {
    who.require(Scope::Admin)?;
    let tokens = app.tokens.list().await?;
    let token = tokens.iter().find(|token| token.id == id);
    if token.is_some_and(|token| is_visible(who.token(), token)) && app.tokens.revoke(&id).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::not_found("token", &id))
}

/// Returns the token of the request
#[utoipa::path(
    get,
    operation_id = "getOwnToken",
    path = "/api/tokens/self",
    tag = "tokens",
    responses((status = 200, body = TokenView)),
)]
pub(crate) async fn whoami(who: Principal) -> Json<TokenView> {
    Json(who.token().clone().into())
}
