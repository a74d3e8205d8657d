//! Credentials for tools, looked up for the session, then the user, then the organisation.
//!
//! A tool names a service; the engine finds the credential and [refreshes](Refresher) it if
//! needed. A missing credential is requested at a gate, and a person stores it in the vault: the
//! secret is never part of the record. Secrets that a tool gets are
//! [redacted](lillux::redact) in its output.

mod context;
mod login;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rye_protocol::{Millis, SessionId};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::BoxFuture;
use lillux::redact::Redactor;

pub use login::{LoginProvider, PendingLogin, TakeAddress};

/// Tokens that expire within this time are refreshed before use.
const REFRESH_MARGIN: Duration = Duration::from_mins(1);

/// Owner of a credential.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    /// One session; removed with it.
    Session(SessionId),
    /// A user, for all their sessions.
    User(String),
    /// An organisation, for all its users.
    Org(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) => write!(f, "session:{id}"),
            Self::User(id) => write!(f, "user:{id}"),
            Self::Org(id) => write!(f, "org:{id}"),
        }
    }
}

impl Owner {
    /// Parses the [`Display`](fmt::Display) form.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, id) = text.split_once(':')?;
        match kind {
            "session" => id.parse().ok().map(Self::Session),
            "user" => Some(Self::User(id.to_owned())),
            "org" => Some(Self::Org(id.to_owned())),
            _ => None,
        }
    }
}

/// A secret, with OAuth data if it can be refreshed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The secret to pass to a program.
    #[serde(alias = "access_token")]
    pub secret: Zeroizing<String>,
    /// OAuth data for refreshing, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OAuth>,
}

impl Credential {
    /// Creates a credential that does not expire.
    pub fn new(secret: impl Into<String>) -> Self {
        let secret = Zeroizing::new(secret.into());
        Self {
            secret,
            oauth: None,
        }
    }

    fn expires_by(&self, time: Millis) -> bool {
        let end = self.oauth.as_ref().and_then(|oauth| oauth.expires_at);
        end.is_some_and(|end| end <= time)
    }

    /// Adds all secrets of the credential to the redactor.
    fn add_to(&self, redactor: &Redactor) {
        redactor.add(&self.secret);
        if let Some(oauth) = &self.oauth {
            if let Some(token) = &oauth.refresh_token {
                redactor.add(token);
            }
            if let Some(secret) = &oauth.client_secret {
                redactor.add(secret);
            }
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

/// Data for refreshing a token with OAuth 2.0.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuth {
    /// Token endpoint.
    pub token_url: String,
    /// Client id.
    pub client_id: String,
    /// Client secret, if required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Zeroizing<String>>,
    /// Whether id and secret of the client are sent in the header `Authorization`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub basic_auth: bool,
    /// Refresh token; without it, a person must log in again when the access token expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<Zeroizing<String>>,
    /// Scope to request. Default: the original scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Expiry of the access token, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OAuth at {}", self.token_url)
    }
}

/// A refreshed token.
#[derive(Clone)]
pub struct RefreshedToken {
    /// New access token.
    pub access_token: Zeroizing<String>,
    /// Lifetime of the access token.
    pub expires_in: Option<Duration>,
    /// New refresh token, if the server issued one.
    pub refresh_token: Option<Zeroizing<String>>,
}

/// Why a token was not refreshed. Messages contain no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefreshError {
    /// The refresh token is invalid: a person must log in again.
    #[error("{0}")]
    Refused(String),
    /// The server did not answer; a retry may succeed.
    #[error("{0}")]
    Unreachable(String),
}

/// Refreshes OAuth tokens.
pub trait Refresher: Send + Sync + 'static {
    /// Requests a new token.
    fn refresh<'a>(
        &'a self,
        oauth: &'a OAuth,
    ) -> BoxFuture<'a, Result<RefreshedToken, RefreshError>>;
}

/// Error of the credential store. The message contains no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot access credentials: {0}")]
pub struct CredentialError(pub String);

/// Future of a credential store operation.
pub type CredentialFuture<'a, T> = BoxFuture<'a, Result<T, CredentialError>>;

/// Store of sealed credentials.
pub trait CredentialStore: Send + Sync + 'static {
    /// Opens the credential of an owner for a service.
    fn get<'a>(
        &'a self,
        owner: &'a Owner,
        service: &'a str,
    ) -> CredentialFuture<'a, Option<Credential>>;

    /// Stores a credential and replaces an existing one.
    fn put<'a>(
        &'a self,
        owner: &'a Owner,
        service: &'a str,
        credential: &'a Credential,
    ) -> CredentialFuture<'a, ()>;

    /// Removes a credential; false if there was none.
    fn remove<'a>(&'a self, owner: &'a Owner, service: &'a str) -> CredentialFuture<'a, bool>;

    /// Lists owners and services without opening the credentials.
    fn list(&self) -> CredentialFuture<'_, Vec<(Owner, String)>>;
}

/// Credential access of the engine.
#[derive(Default)]
pub(crate) struct Credentials {
    store: Option<Arc<dyn CredentialStore>>,
    refresher: Option<Arc<dyn Refresher>>,
    logins: Option<Arc<dyn LoginProvider>>,
    /// One lock per token that is being refreshed.
    refresh_locks: Mutex<Locks>,
    /// Owners whose secrets are already redacted.
    redacted_owners: tokio::sync::Mutex<HashSet<Owner>>,
}

type Locks = HashMap<(Owner, String), Weak<tokio::sync::Mutex<()>>>;

/// Result of looking up a credential.
#[derive(Debug)]
pub(crate) enum CredentialLookup {
    Found(Zeroizing<String>),
    /// No credential exists.
    Missing,
    /// The credential is no longer valid, for this reason.
    Invalid(String),
}

impl Credentials {
    pub(crate) fn new(
        store: Option<Arc<dyn CredentialStore>>,
        refresher: Option<Arc<dyn Refresher>>,
        logins: Option<Arc<dyn LoginProvider>>,
    ) -> Self {
        Self {
            store,
            refresher,
            logins,
            refresh_locks: Mutex::default(),
            redacted_owners: tokio::sync::Mutex::default(),
        }
    }

    /// Adds all secrets of these owners to the redactor, even unused ones: a tool may have used them
    /// before a restart.
    pub(crate) async fn redact_all(&self, owners: &[Owner], redactor: &Redactor) {
        let Some(store) = &self.store else {
            return;
        };
        let mut redacted_owners = self.redacted_owners.lock().await;
        if owners.iter().all(|owner| redacted_owners.contains(owner)) {
            return;
        }
        // If the store fails, the next tool call tries again.
        let Ok(all) = store.list().await else {
            return;
        };
        let is_new = |owner: &Owner| owners.contains(owner) && !redacted_owners.contains(owner);
        for (owner, service) in all.into_iter().filter(|(owner, _)| is_new(owner)) {
            if let Ok(Some(found)) = store.get(&owner, &service).await {
                found.add_to(redactor);
            }
        }
        redacted_owners.extend(owners.iter().cloned());
    }

    /// Removes the credentials of a session.
    pub(crate) async fn remove_session(&self, session: &SessionId) -> Result<(), CredentialError> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        let session_owner = Owner::Session(session.clone());
        for (owner, service) in store.list().await? {
            if owner == session_owner {
                store.remove(&owner, &service).await?;
            }
        }
        Ok(())
    }

    /// Finds the credential of the first owner that has one, refreshed if needed.
    pub(crate) async fn look_up(
        &self,
        owners: &[Owner],
        service: &str,
        now: Millis,
        redactor: &Redactor,
    ) -> Result<CredentialLookup, CredentialError> {
        let Some(store) = &self.store else {
            return Ok(CredentialLookup::Missing);
        };
        for owner in owners {
            if let Some(found) = store.get(owner, service).await? {
                found.add_to(redactor);
                if !found.expires_by(now.after(REFRESH_MARGIN)) {
                    return Ok(CredentialLookup::Found(found.secret));
                }
                return self.refresh(&**store, owner, service, now, redactor).await;
            }
        }
        Ok(CredentialLookup::Missing)
    }

    /// Refreshes a token. One task at a time, because a refresh token can be used once.
    async fn refresh(
        &self,
        store: &dyn CredentialStore,
        owner: &Owner,
        service: &str,
        now: Millis,
        redactor: &Redactor,
    ) -> Result<CredentialLookup, CredentialError> {
        let lock = self.lock(owner, service);
        let _guard = lock.lock().await;
        let Some(current) = store.get(owner, service).await? else {
            return Ok(CredentialLookup::Missing);
        };
        current.add_to(redactor);
        if !current.expires_by(now.after(REFRESH_MARGIN)) {
            return Ok(CredentialLookup::Found(current.secret));
        }
        let (Some(oauth), Some(refresher)) = (&current.oauth, &self.refresher) else {
            return Ok(CredentialLookup::Invalid("it has expired".to_owned()));
        };
        if oauth.refresh_token.is_none() && current.expires_by(now) {
            return Ok(CredentialLookup::Invalid("it has expired".to_owned()));
        }
        if oauth.refresh_token.is_none() {
            return Ok(CredentialLookup::Found(current.secret));
        }
        match refresher.refresh(oauth).await {
            Ok(refreshed) => {
                let refreshed = refreshed.into_credential(oauth, now);
                refreshed.add_to(redactor);
                store.put(owner, service, &refreshed).await?;
                Ok(CredentialLookup::Found(refreshed.secret))
            }
            // The current token is still valid.
            Err(RefreshError::Unreachable(_)) if !current.expires_by(now) => {
                Ok(CredentialLookup::Found(current.secret))
            }
            Err(RefreshError::Unreachable(why)) => {
                let why = redactor.redact(&why);
                Err(CredentialError(format!(
                    "cannot refresh the credential for {service}: {why}"
                )))
            }
            Err(RefreshError::Refused(why)) => {
                // Another process may have refreshed the token.
                match store.get(owner, service).await? {
                    Some(other) if !other.expires_by(now) && other != current => {
                        other.add_to(redactor);
                        Ok(CredentialLookup::Found(other.secret))
                    }
                    _ => Ok(CredentialLookup::Invalid(
                        redactor.redact(&why).into_owned(),
                    )),
                }
            }
        }
    }

    fn lock(&self, owner: &Owner, service: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.refresh_locks.lock();
        all.retain(|_, lock| lock.strong_count() > 0);
        let key = (owner.clone(), service.to_owned());
        if let Some(lock) = all.get(&key).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        all.insert(key, Arc::downgrade(&lock));
        lock
    }
}

impl RefreshedToken {
    fn into_credential(self, previous: &OAuth, now: Millis) -> Credential {
        let refresh_token = self.refresh_token;
        Credential {
            secret: self.access_token,
            oauth: Some(OAuth {
                refresh_token: refresh_token.or_else(|| previous.refresh_token.clone()),
                expires_at: self.expires_in.map(|time| now.after(time)),
                ..previous.clone()
            }),
        }
    }
}
