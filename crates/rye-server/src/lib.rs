//! The HTTP server: the engine's API, event streams and access tokens.
//!
//! [`run`] is what `rye serve` calls. [`openapi`] describes the API; the document is generated from
//! the handlers and checked in as `docs/reference/openapi.json`.
//!
//! A request passes the checks of `Host` and `Origin` in `guard`, the authentication in `auth` and then
//! a handler in `api`. Handlers reach sessions through `access`, which does not care which process
//! holds a session. Every error is a problem document (`problem`).

mod access;
mod acp;
mod agui;
mod all_events;
mod api;
mod auth;
mod automation;
mod browser_keys;
mod console;
mod cursor;
mod events;
mod extract;
mod guard;
mod login;
mod metrics;
mod oidc;
mod openai;
mod openapi;
mod problem;
mod rates;
mod server;
mod tokens;
mod usage;

pub use oidc::OidcOptions;
pub use openapi::openapi;
pub use rye_store::{AccessToken, Scope, TokenKind};
pub use server::{Options, Ready, login_link, run, with_tokens};
pub use tokens::{NewToken, TokenError, Tokens};
