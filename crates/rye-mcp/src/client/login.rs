//! OAuth login to servers. The tokens are sealed in the user's vault.
//!
//! The SDK implements the protocol: metadata discovery, client registration, PKCE, and token
//! refresh.

mod loopback;
mod token_store;

use std::collections::BTreeMap;
use std::time::Duration;

use lillux::error_chain;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, OAuthClientConfig,
};
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::connect::ServerSpec;
use super::error::{ClientError, ClientErrorKind};
pub use loopback::Loopback;
pub(super) use token_store::{ClientRegistration, TokenStore};

/// How long the user has to log in.
const LOGIN_TIMEOUT: Duration = Duration::from_mins(5);

/// Client name for dynamic registration.
const CLIENT_NAME: &str = "Rye";

/// Result of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginGrant {
    /// Issuer of the tokens.
    pub issuer: Option<String>,
    /// Granted scopes.
    pub scopes: Vec<String>,
}

/// Parameters of a login.
#[derive(Debug, Clone, Default)]
pub struct LoginRequest {
    /// Scopes to request in addition to those granted before. If empty, the scopes of the
    /// configuration or of the server.
    pub scopes: Vec<String>,
    /// `WWW-Authenticate` challenge of an earlier response of the server.
    pub challenge: Option<String>,
}

impl LoginRequest {
    /// Passes the login URL to `show`, waits for the redirect, and stores the tokens.
    pub(super) async fn run(
        &self,
        server: &ServerSpec,
        url: &str,
        oauth: &BTreeMap<String, String>,
        tokens: &TokenStore,
        show: impl FnOnce(&str) + Send,
    ) -> Result<LoginGrant, ClientError> {
        let work = async {
            let port = match oauth.get("redirect_port") {
                None => 0,
                Some(port) => port
                    .parse()
                    .map_err(|_| "`oauth.redirect_port` is not a port number".to_owned())?,
            };
            let loopback = Loopback::open(port).await?;
            let mut manager = AuthorizationManager::new(url).await.map_err(describe)?;
            manager.set_credential_store(tokens.clone());
            let challenge = self.challenge.as_deref();
            let found = manager.resolve_metadata_from_challenge(challenge).await;
            let metadata = found.map_err(describe)?.metadata;
            manager.set_metadata(metadata.clone());
            let scopes = self.requested_scopes(&manager, oauth, tokens).await;
            let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
            let supports_client_urls = metadata
                .additional_fields
                .get("client_id_metadata_document_supported");
            let supports_client_urls = supports_client_urls.is_some_and(|value| value == true);
            let client = match (oauth.get("client_id"), oauth.get("client_metadata_url")) {
                (Some(id), _) => {
                    registered_client(id, oauth.get("client_secret"), loopback.redirect_uri())
                }
                (None, Some(url)) if supports_client_urls => {
                    registered_client(url, None, loopback.redirect_uri())
                }
                _ => manager
                    .register_client(CLIENT_NAME, loopback.redirect_uri(), &scopes)
                    .await
                    .map_err(describe)?,
            };
            manager.configure_client(client.clone()).map_err(describe)?;
            tokens.set_registration(ClientRegistration {
                metadata,
                client_secret: client.client_secret,
                redirect_uri: client.redirect_uri,
            });
            show(
                &manager
                    .get_authorization_url(&scopes)
                    .await
                    .map_err(describe)?,
            );
            let address = loopback.wait_for_redirect().await?;
            let AuthorizationCallback {
                code,
                csrf_token,
                issuer,
                ..
            } = AuthorizationCallback::from_redirect_url(&address).map_err(describe)?;
            let issuer = issuer.as_deref();
            manager
                .exchange_code_for_token_with_issuer(&code, &csrf_token, issuer)
                .await
                .map_err(describe)?;
            Ok(tokens.grant())
        };
        let outcome = match tokio::time::timeout(LOGIN_TIMEOUT, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err("no login within five minutes".to_owned()),
        };
        outcome.map_err(|why| {
            let why = tokens.redactor().redact(&why).into_owned();
            ClientError::new(&server.id, ClientErrorKind::LoginFailed(why))
        })
    }

    /// The scopes to request: those of this request and of earlier logins, those of the
    /// configuration, or those of the server.
    async fn requested_scopes(
        &self,
        manager: &AuthorizationManager,
        oauth: &BTreeMap<String, String>,
        tokens: &TokenStore,
    ) -> Vec<String> {
        if !self.scopes.is_empty() {
            let mut all = tokens.grant().scopes;
            for scope in &self.scopes {
                if !all.contains(scope) {
                    all.push(scope.clone());
                }
            }
            return all;
        }
        match oauth.get("scope") {
            Some(scopes) => scopes.split_whitespace().map(str::to_owned).collect(),
            None => manager.select_initial_scopes(&[]).await,
        }
    }
}

/// Configuration of a client that is already registered.
fn registered_client(id: &str, secret: Option<&String>, redirect: &str) -> OAuthClientConfig {
    let client = OAuthClientConfig::new(id, redirect);
    match secret {
        Some(secret) => client.with_client_secret(secret),
        None => client,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to `map_err`")]
fn describe(error: AuthError) -> String {
    error_chain(&error)
}

/// The login error in a transport error, if the server requires a login.
pub(super) fn login_needed(error: &DynamicTransportError) -> Option<ClientErrorKind> {
    let error: &StreamableHttpError<reqwest::Error> = error.error.downcast_ref()?;
    match error {
        StreamableHttpError::AuthRequired(error) => Some(ClientErrorKind::LoginNeeded {
            scope: None,
            challenge: error.www_authenticate_header.clone(),
        }),
        StreamableHttpError::InsufficientScope(error) => Some(ClientErrorKind::LoginNeeded {
            scope: error.required_scope.clone(),
            challenge: error.www_authenticate_header.clone(),
        }),
        StreamableHttpError::Auth(AuthError::AuthorizationRequired) => {
            Some(ClientErrorKind::LoginNeeded {
                scope: None,
                challenge: String::new(),
            })
        }
        _ => None,
    }
}
