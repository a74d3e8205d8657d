//! Login links: each is valid once and for a minute, and gives the browser a cookie.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use rye_store::TokenKind;
use serde::Deserialize;

use crate::auth::Principal;
use crate::extract::Params;
use crate::problem::Problem;
use crate::server::App;
use crate::tokens::NewToken;

/// How long a login link is valid.
pub(crate) const LINK_LIFETIME: Duration = Duration::from_mins(1);

/// How long a browser stays logged in.
const COOKIE_LIFETIME: Duration = Duration::from_hours(7 * 24);

/// Name of the cookie. Cookies are shared by all ports of a host, so it contains the port.
fn cookie_name(port: u16) -> String {
    format!("rye_{port}")
}

/// The cookie of a request.
pub(crate) fn cookie(headers: &HeaderMap, port: u16) -> Option<&str> {
    let name = cookie_name(port);
    let values = headers.get_all(header::COOKIE).into_iter();
    let mut pairs = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn set_cookie(app: &App, value: &str, lifetime: Duration) -> HeaderValue {
    let name = cookie_name(app.address.port());
    let seconds = lifetime.as_secs();
    let secure = if app.is_https() { "; Secure" } else { "" };
    let cookie =
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&cookie).unwrap_or(HeaderValue::from_static(""))
}

/// Parameters of a login link.
#[derive(Deserialize)]
pub(crate) struct LinkParams {
    token: String,
}

/// Exchanges a login link for a cookie.
pub(crate) async fn log_in(
    State(app): State<App>,
    Params(params): Params<LinkParams>,
) -> Result<Response, Problem> {
    let link = app.tokens.take(&params.token).await?;
    let link = link.filter(|link| link.kind == TokenKind::Login);
    let link = link.ok_or_else(|| {
        let detail = "the login link has been used or has expired";
        Problem::new(StatusCode::GONE, "login_link_used", detail).hint("rye token login")
    })?;
    let browser = NewToken {
        name: link.name,
        scopes: link.scopes,
        user: link.user,
        org: link.org,
        project: link.project,
        lifetime: Some(COOKIE_LIFETIME),
        created_by: link.created_by,
    };
    let (_, secret) = app.tokens.create_as(TokenKind::Browser, browser).await?;
    let headers = [
        (
            header::SET_COOKIE,
            set_cookie(&app, &secret, COOKIE_LIFETIME),
        ),
        (header::LOCATION, HeaderValue::from_static("/")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // The address bar held a secret, even if it is used up.
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        ),
    ];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

/// Ends the login of the browser.
pub(crate) async fn log_out(
    State(app): State<App>,
    principal: Principal,
) -> Result<Response, Problem> {
    if principal.token().kind == TokenKind::Browser {
        app.tokens.revoke(&principal.token().id).await?;
    }
    let headers = [(header::SET_COOKIE, set_cookie(&app, "", Duration::ZERO))];
    Ok((StatusCode::NO_CONTENT, headers).into_response())
}
