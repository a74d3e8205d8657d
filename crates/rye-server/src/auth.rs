//! Authentication: who calls, and what they may do and see.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use rye_protocol::Session;
use rye_store::{AccessToken, Scope, TokenKind};

use crate::login;
use crate::problem::Problem;
use crate::server::App;
use crate::tokens::PREFIX;

/// The caller of a request.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    token: Arc<AccessToken>,
}

impl Principal {
    /// The token of the request.
    pub(crate) fn token(&self) -> &AccessToken {
        &self.token
    }

    /// Fails unless the caller has a scope.
    pub(crate) fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.token.permits(scope) {
            return Ok(());
        }
        let name = scope.as_str();
        let detail = format!("the token does not have the scope `{name}`");
        let problem = Problem::new(StatusCode::FORBIDDEN, "missing_scope", detail);
        Err(problem.with("scope", name))
    }

    /// Fails unless the caller's token gives access to all sessions.
    pub(crate) fn require_unbounded(&self) -> Result<(), Problem> {
        let token = &self.token;
        if token.user.is_none() && token.org.is_none() && token.project.is_none() {
            return Ok(());
        }
        let detail = "this needs a token that gives access to all sessions";
        Err(Problem::new(StatusCode::FORBIDDEN, "bounded_token", detail))
    }

    /// Whether the caller may know of a session: it belongs to their user or organisation, and to
    /// the project of the token.
    pub(crate) fn can_see(&self, session: &Session) -> bool {
        let (user, org) = (session.user_id.as_ref(), session.org_id.as_ref());
        self.can_see_owner(user, org, session.project.as_ref())
    }

    /// Whether the caller may know of what belongs to a user, an organisation and a project.
    pub(crate) fn can_see_owner(
        &self,
        user: Option<&String>,
        org: Option<&String>,
        project: Option<&String>,
    ) -> bool {
        let token = &*self.token;
        let is_own = |own: &Option<String>, other| own.is_some() && own.as_ref() == other;
        let is_owner = is_own(&token.user, user) || is_own(&token.org, org);
        let is_unbounded = token.user.is_none() && token.org.is_none();
        let has_project = token.project.is_none() || token.project.as_ref() == project;
        (is_unbounded || is_owner) && has_project
    }

    /// Name of the caller, for the record of prompts and decisions.
    pub(crate) fn name(&self) -> &str {
        self.token.user.as_deref().unwrap_or(&self.token.name)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get().cloned().ok_or_else(unauthorized)
    }
}

/// Middleware that identifies the caller, or refuses the request.
pub(crate) async fn authenticate(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    match identify(&app, request.headers()).await {
        Ok(principal) => {
            request.extensions_mut().insert(principal.clone());
            let mut response = next.run(request).await;
            response.extensions_mut().insert(principal);
            response
        }
        Err(problem) => problem.into_response(),
    }
}

/// The caller who sent these headers.
async fn identify(app: &App, headers: &HeaderMap) -> Result<Principal, Problem> {
    let found = match bearer_token(headers)? {
        Some(secret) => match &app.oidc {
            Some(oidc) if !secret.starts_with(PREFIX) => Some(oidc.verify(secret).await?),
            _ => {
                let token = app.tokens.find(secret).await?;
                token.filter(|token| token.kind == TokenKind::Api)
            }
        },
        None => match login::cookie(headers, app.address.port()) {
            Some(secret) => {
                let token = app.tokens.find(secret).await?;
                token.filter(|token| token.kind == TokenKind::Browser)
            }
            None => return Err(unauthorized()),
        },
    };
    let token = found.map(Arc::new).ok_or_else(|| {
        let detail = "the token is unknown, revoked or expired";
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "invalid_token", detail);
        let challenge = HeaderValue::from_static("Bearer error=\"invalid_token\"");
        problem.header(header::WWW_AUTHENTICATE, challenge)
    })?;
    let principal = Principal { token };
    app.rates.check(app, &principal).await?;
    Ok(principal)
}

/// The bearer token of a request.
fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let parts = value.to_str().ok().and_then(|value| value.split_once(' '));
    match parts {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(unauthorized()),
    }
}

fn unauthorized() -> Problem {
    let detail = "the request needs a bearer token";
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
        .hint("rye token create --name my-program")
}
