//! Logins to the services of `oauth.yaml`: in a browser on this machine (RFC 8252 with PKCE), or
//! with a device code (RFC 8628).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64ct::{Base64UrlUnpadded, Encoding as _};
use lillux::Hash;
use reqwest::Url;
use rye_engine::BoxFuture;
use rye_engine::credential::{Credential, LoginProvider, OAuth, PendingLogin};
use rye_engine::protocol::Millis;
use rye_items::vault::{Vault, VaultError};
use rye_mcp::client::Loopback;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::sleep;
use zeroize::Zeroizing;

use super::config::{ClientAuth, OAUTH_FILE, OAuthService, OAuthServices, check_url};
use super::token::{ClientCredentials, TokenError, TokenResponse, post};

/// Time between two requests for a token if the server states none, and how much it grows if the
/// server asks to slow down.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How long a device code is valid if the server does not say.
const DEVICE_CODE_LIFETIME: Duration = Duration::from_mins(10);
/// Name of the grant for device codes.
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// How a person logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginMethod {
    /// A browser on this machine.
    Browser,
    /// A browser on any machine, in which the person types a code.
    Device,
}

/// Why a login cannot start or fails. Messages contain no secrets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// No file describes the service.
    #[error("no login is configured for {0} in {OAUTH_FILE}")]
    UnknownService(String, Vec<String>),
    /// The service does not offer the method.
    #[error("{service} has no `{key}` in {OAUTH_FILE}")]
    NoSuchMethod {
        /// The service.
        service: String,
        /// The missing key.
        key: &'static str,
    },
    /// The secret of the client cannot be read.
    #[error(transparent)]
    ClientSecret(#[from] VaultError),
    /// The service cannot be reached or refused the login.
    #[error("cannot log in to {service}: {reason}")]
    Failed {
        /// The service.
        service: String,
        /// The cause.
        reason: String,
    },
}

/// Starts logins to the configured services.
#[derive(Debug, Clone)]
pub struct ServiceLogins {
    services: OAuthServices,
    vault: Option<Vault>,
}

impl ServiceLogins {
    /// The logins of these services. The vault has the secrets of clients.
    pub fn new(services: OAuthServices, vault: Option<Vault>) -> Self {
        Self { services, vault }
    }

    /// Starts a login. Without a method, a browser on this machine if the service supports it.
    /// Scopes replace those of the configuration.
    pub async fn start(
        &self,
        name: &str,
        method: Option<LoginMethod>,
        scopes: &[String],
    ) -> Result<PendingLogin, LoginError> {
        let unknown = || {
            let known = self.services.keys().cloned().collect();
            LoginError::UnknownService(name.to_owned(), known)
        };
        let mut service = self.services.get(name).ok_or_else(unknown)?.clone();
        if !scopes.is_empty() {
            scopes.clone_into(&mut service.scopes);
        }
        let login = Login {
            secret: self.client_secret(&service)?,
            service,
        };
        let missing = |key| LoginError::NoSuchMethod {
            service: name.to_owned(),
            key,
        };
        let urls = (
            login.service.authorize_url.clone(),
            login.service.device_url.clone(),
        );
        let started = match (method, urls) {
            (None | Some(LoginMethod::Browser), (Some(url), _)) => login.in_browser(&url).await,
            (None | Some(LoginMethod::Device), (_, Some(url))) => login.on_device(url).await,
            (Some(LoginMethod::Device), _) => return Err(missing("device_url")),
            _ => return Err(missing("authorize_url")),
        };
        started.map_err(|reason| LoginError::Failed {
            service: name.to_owned(),
            reason,
        })
    }

    fn client_secret(
        &self,
        service: &OAuthService,
    ) -> Result<Option<Zeroizing<String>>, LoginError> {
        // The configuration was checked.
        let name = service
            .client_secret
            .as_ref()
            .and_then(|it| it.parse().ok());
        let (Some(name), Some(vault)) = (name, &self.vault) else {
            return Ok(None);
        };
        let opened = vault.get(None, &name)?;
        let text = String::from_utf8_lossy(opened.secret.expose());
        Ok(Some(Zeroizing::new(text.trim_end().to_owned())))
    }
}

impl LoginProvider for ServiceLogins {
    fn start<'a>(
        &'a self,
        service: &'a str,
    ) -> BoxFuture<'a, Option<Result<PendingLogin, String>>> {
        Box::pin(async move {
            // Whoever answers the gate may be at another machine, where only a code works.
            let device_url = self.services.get(service).map(|it| &it.device_url);
            let method = device_url
                .is_some_and(Option::is_some)
                .then_some(LoginMethod::Device);
            match ServiceLogins::start(self, service, method, &[]).await {
                Err(LoginError::UnknownService(..)) => None,
                Err(error) => Some(Err(error.to_string())),
                Ok(pending) => Some(Ok(pending)),
            }
        })
    }
}

/// A login to one service.
struct Login {
    service: OAuthService,
    /// The secret of the client.
    secret: Option<Zeroizing<String>>,
}

impl Login {
    /// Listens for the redirect of a browser on this machine.
    async fn in_browser(self, authorize_url: &str) -> Result<PendingLogin, String> {
        let port = self.service.redirect_port.unwrap_or(0);
        let loopback = Loopback::open(port).await?;
        let redirect_uri = loopback.redirect_uri().to_owned();
        let (verifier, state) = (random_word()?, random_word()?);
        let challenge = Hash::digest(verifier.as_bytes());
        let challenge = Base64UrlUnpadded::encode_string(challenge.as_bytes());
        let mut url = check_url(authorize_url)?;
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", &self.service.client_id)
                .append_pair("redirect_uri", &redirect_uri)
                .append_pair("state", &state)
                .append_pair("code_challenge", &challenge)
                .append_pair("code_challenge_method", "S256");
            if !self.service.scopes.is_empty() {
                query.append_pair("scope", &self.service.scopes.join(" "));
            }
            query.extend_pairs(&self.service.parameters);
        }
        let (pasted_tx, mut pasted) = mpsc::unbounded_channel();
        let expected = state.clone();
        let take_address = move |address: &str| {
            let address = address.trim();
            code_of(address, &expected)?;
            // If the login has ended meanwhile, nothing needs the address.
            let _ = pasted_tx.send(Zeroizing::new(address.to_owned()));
            Ok(())
        };
        let credential = async move {
            let redirect = tokio::select! {
                redirect = loopback.wait_for_redirect() => Zeroizing::new(redirect?),
                Some(address) = pasted.recv() => address,
            };
            let code = code_of(&redirect, &state)?;
            let form = vec![
                ("grant_type", "authorization_code"),
                ("code", code.as_str()),
                ("redirect_uri", redirect_uri.as_str()),
                ("code_verifier", verifier.as_str()),
            ];
            let token = self.request_token(form).await;
            Ok(self.credential(token.map_err(TokenError::message)?))
        };
        Ok(PendingLogin {
            url: url.to_string(),
            code: None,
            redirect: Some(Box::new(take_address)),
            credential: Box::pin(credential),
        })
    }

    /// Requests a code that the person types in a browser on any machine.
    async fn on_device(self, device_url: String) -> Result<PendingLogin, String> {
        #[derive(Deserialize)]
        struct DeviceResponse {
            device_code: Zeroizing<String>,
            user_code: String,
            #[serde(alias = "verification_url")]
            verification_uri: String,
            #[serde(default)]
            verification_uri_complete: Option<String>,
            #[serde(default)]
            expires_in: Option<u64>,
            #[serde(default)]
            interval: Option<u64>,
        }
        let scope = self.service.scopes.join(" ");
        let mut form: Vec<_> = self
            .service
            .parameters
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        if !scope.is_empty() {
            form.push(("scope", scope.as_str()));
        }
        let issued = post(&device_url, self.client(), form, "device code").await;
        let issued: DeviceResponse = issued.map_err(TokenError::message)?;
        let page = issued.verification_uri_complete;
        let page = page.unwrap_or(issued.verification_uri);
        check_url(&page).map_err(|why| format!("page for the login: {why}"))?;
        let lifetime = issued.expires_in.map(Duration::from_secs);
        let lifetime = lifetime.unwrap_or(DEVICE_CODE_LIFETIME);
        let interval = issued.interval.map(Duration::from_secs);
        let poll = async move {
            let mut interval = interval.unwrap_or(POLL_INTERVAL);
            loop {
                sleep(interval).await;
                let form = vec![
                    ("grant_type", DEVICE_GRANT),
                    ("device_code", issued.device_code.as_str()),
                ];
                match self.request_token(form).await {
                    Ok(token) => return Ok(self.credential(token)),
                    Err(TokenError::Refused { code, .. }) if code == "authorization_pending" => {}
                    Err(TokenError::Refused { code, .. }) if code == "slow_down" => {
                        interval += POLL_INTERVAL;
                    }
                    // The connection may be lost for a moment.
                    Err(TokenError::Unreachable(_)) => interval += POLL_INTERVAL,
                    Err(TokenError::Refused { message, .. }) => return Err(message),
                }
            }
        };
        let credential = async move {
            let outcome = tokio::time::timeout(lifetime, poll).await;
            outcome.unwrap_or_else(|_| Err("the code has expired".to_owned()))
        };
        Ok(PendingLogin {
            url: page,
            code: Some(issued.user_code),
            redirect: None,
            credential: Box::pin(credential),
        })
    }

    fn client(&self) -> ClientCredentials<'_> {
        ClientCredentials {
            id: &self.service.client_id,
            secret: self.secret.as_ref().map(|secret| secret.as_str()),
            is_basic: self.service.client_auth == ClientAuth::Basic,
        }
    }

    async fn request_token(&self, form: Vec<(&str, &str)>) -> Result<TokenResponse, TokenError> {
        let url = &self.service.token_url;
        post(url, self.client(), form, "access token").await
    }

    /// The credential to store, with what is needed to refresh it.
    fn credential(&self, token: TokenResponse) -> Credential {
        let service = &self.service;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_millis();
        let now = Millis(u64::try_from(now).unwrap_or(u64::MAX));
        let lifetime = token.expires_in.map(Duration::from_secs);
        Credential {
            secret: token.access_token,
            oauth: Some(OAuth {
                token_url: service.token_url.clone(),
                client_id: service.client_id.clone(),
                client_secret: self.secret.clone(),
                basic_auth: service.client_auth == ClientAuth::Basic,
                refresh_token: token.refresh_token,
                scope: None,
                expires_at: lifetime.map(|time| now.after(time)),
            }),
        }
    }
}

/// The code in the redirect of the browser, if the redirect belongs to this login.
fn code_of(redirect: &str, state: &str) -> Result<Zeroizing<String>, String> {
    let url = Url::parse(redirect).map_err(|error| format!("not an address: {error}"))?;
    let value = |name: &str| {
        let mut pairs = url.query_pairs();
        let pair = pairs.find(|(key, _)| key == name);
        pair.map(|(_, value)| Zeroizing::new(value.into_owned()))
    };
    if value("state").is_none_or(|it| it.as_str() != state) {
        return Err("the redirect belongs to another login".to_owned());
    }
    value("code").ok_or_else(|| "the redirect contains no code".to_owned())
}

/// 32 random bytes as text.
fn random_word() -> Result<Zeroizing<String>, String> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(bytes.as_mut_slice())
        .map_err(|error| format!("cannot get random bytes: {error}"))?;
    Ok(Zeroizing::new(Base64UrlUnpadded::encode_string(&*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_of_another_login_is_refused() {
        let code = |query: &str| code_of(&format!("http://127.0.0.1:1/callback?{query}"), "s");
        assert_eq!(code("code=a%2Bb&state=s").unwrap().as_str(), "a+b");
        assert!(code("code=a&state=t").is_err());
        assert!(code("code=a").is_err());
        assert!(code("state=s").is_err());
    }
}
