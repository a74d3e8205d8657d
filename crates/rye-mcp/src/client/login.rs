//! Servers that want to know who calls: a person logs in with OAuth, once, and the tokens
//! are sealed in the vault.
//!
//! Where to log in, the server says; the rest is the SDK's: discovery, registration, the
//! proof of possession of the code, and that tokens are made new before they end.

mod loopback;
mod tokens;

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::transport::DynamicTransportError;
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, OAuthClientConfig,
};
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::connect::{ServerSpec, words};
use super::error::{ClientError, ClientErrorKind};
use loopback::Loopback;
pub(super) use tokens::{Registered, Tokens};

/// How long a person has to log in.
const PATIENCE: Duration = Duration::from_mins(5);

/// Under which name we are registered.
const NAME: &str = "Rye";

/// What a person let us do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginGrant {
    /// Who gave the tokens.
    pub issuer: Option<String>,
    /// What they are for, in the words of the server.
    pub scopes: Vec<String>,
}

/// What is to be asked for.
#[derive(Debug, Clone, Default)]
pub struct LoginRequest {
    /// What the tokens are to be for, besides what they were for before; else what the
    /// server says.
    pub scopes: Vec<String>,
    /// What the server said when it refused a call.
    pub challenge: Option<String>,
}

impl LoginRequest {
    /// Lets a person log in at an address that `show` is given, and keeps the tokens.
    pub(super) async fn run(
        &self,
        server: &ServerSpec,
        url: &str,
        oauth: &BTreeMap<String, String>,
        tokens: &Tokens,
        show: impl FnOnce(&str) + Send,
    ) -> Result<LoginGrant, ClientError> {
        let work = async {
            let port = match oauth.get("redirect_port") {
                None => 0,
                Some(port) => port
                    .parse()
                    .map_err(|_| "`oauth.redirect_port` is no port".to_owned())?,
            };
            let loopback = Loopback::open(port).await?;
            let mut manager = AuthorizationManager::new(url).await.map_err(told)?;
            manager.set_credential_store(tokens.clone());
            let challenge = self.challenge.as_deref();
            let found = manager.resolve_metadata_from_challenge(challenge).await;
            let metadata = found.map_err(told)?.metadata;
            manager.set_metadata(metadata.clone());
            let scopes = self.scopes(&manager, oauth, tokens).await;
            let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
            let takes_urls = metadata
                .additional_fields
                .get("client_id_metadata_document_supported");
            let takes_urls = takes_urls.is_some_and(|value| value == true);
            let client = match (oauth.get("client_id"), oauth.get("client_metadata_url")) {
                (Some(id), _) => known(id, oauth.get("client_secret"), loopback.address()),
                (None, Some(url)) if takes_urls => known(url, None, loopback.address()),
                _ => manager
                    .register_client(NAME, loopback.address(), &scopes)
                    .await
                    .map_err(told)?,
            };
            manager.configure_client(client.clone()).map_err(told)?;
            tokens.register(Registered {
                metadata,
                client_secret: client.client_secret,
                redirect_uri: client.redirect_uri,
            });
            show(&manager.get_authorization_url(&scopes).await.map_err(told)?);
            let address = loopback.called().await?;
            let AuthorizationCallback {
                code,
                csrf_token,
                issuer,
                ..
            } = AuthorizationCallback::from_redirect_url(&address).map_err(told)?;
            let issuer = issuer.as_deref();
            manager
                .exchange_code_for_token_with_issuer(&code, &csrf_token, issuer)
                .await
                .map_err(told)?;
            Ok(tokens.granted())
        };
        let outcome = match tokio::time::timeout(PATIENCE, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err("nobody logged in within five minutes".to_owned()),
        };
        outcome.map_err(|why| {
            let why = tokens.redactor().redact(&why).into_owned();
            ClientError::new(&server.id, ClientErrorKind::LoginFailed(why))
        })
    }

    /// What to ask for: what was asked for here and granted before, what the configuration
    /// says, or what the server says.
    async fn scopes(
        &self,
        manager: &AuthorizationManager,
        oauth: &BTreeMap<String, String>,
        tokens: &Tokens,
    ) -> Vec<String> {
        if !self.scopes.is_empty() {
            let mut all = tokens.granted().scopes;
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

/// A client that the server knows already.
fn known(id: &str, secret: Option<&String>, redirect: &str) -> OAuthClientConfig {
    let client = OAuthClientConfig::new(id, redirect);
    match secret {
        Some(secret) => client.with_client_secret(secret),
        None => client,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over")]
fn told(error: AuthError) -> String {
    words(&error)
}

/// Whether a transport failed because somebody has to log in, and what the server said.
pub(super) fn wanted(error: &DynamicTransportError) -> Option<ClientErrorKind> {
    let error: &StreamableHttpError<reqwest::Error> = error.error.downcast_ref()?;
    match error {
        StreamableHttpError::AuthRequired(refused) => Some(ClientErrorKind::LoginNeeded {
            scope: None,
            challenge: refused.www_authenticate_header.clone(),
        }),
        StreamableHttpError::InsufficientScope(refused) => Some(ClientErrorKind::LoginNeeded {
            scope: refused.required_scope.clone(),
            challenge: refused.www_authenticate_header.clone(),
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
