//! OAuth 2.0: logins to services, and the refresh of their tokens.

mod config;
mod login;
mod token;

use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::credential::{OAuth, RefreshError, RefreshedToken, Refresher};

pub use config::{ClientAuth, OAUTH_FILE, OAuthService, OAuthServices, load_oauth};
pub use login::{LoginError, LoginMethod, ServiceLogins};
use token::{ClientCredentials, TokenError, TokenResponse, post};

/// Refreshes tokens at the token endpoint of the credential.
#[derive(Debug, Clone, Default)]
pub struct HttpRefresher;

impl Refresher for HttpRefresher {
    fn refresh<'a>(
        &'a self,
        oauth: &'a OAuth,
    ) -> BoxFuture<'a, Result<RefreshedToken, RefreshError>> {
        Box::pin(refresh(oauth))
    }
}

async fn refresh(oauth: &OAuth) -> Result<RefreshedToken, RefreshError> {
    let Some(refresh_token) = &oauth.refresh_token else {
        return Err(RefreshError::Refused("it has expired".to_owned()));
    };
    let mut form = vec![
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh_token.as_str()),
    ];
    if let Some(scope) = &oauth.scope {
        form.push(("scope", scope));
    }
    let client = ClientCredentials {
        id: &oauth.client_id,
        secret: oauth.client_secret.as_ref().map(|secret| secret.as_str()),
        is_basic: oauth.basic_auth,
    };
    let response = post(&oauth.token_url, client, form, "access token").await;
    let token: TokenResponse = response.map_err(|error| match error {
        TokenError::Refused { message, .. } => RefreshError::Refused(message),
        TokenError::Unreachable(message) => RefreshError::Unreachable(message),
    })?;
    Ok(RefreshedToken {
        access_token: token.access_token,
        expires_in: token.expires_in.map(Duration::from_secs),
        refresh_token: token.refresh_token,
    })
}
