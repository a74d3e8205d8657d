//! Keys and passwords that tools need: of the session, else of the user, else of the
//! organisation.
//!
//! A tool names the service; who has a credential for it, where it is kept and whether it
//! must be [renewed](Refresher) is not its business. One that is not there is asked for at
//! a gate, and put where it belongs by a person: the secret itself is never part of the
//! record. Whatever a tool gets is [redacted](lillux::redact) in all that it gives back.

mod context;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rye_protocol::{Millis, SessionId};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::BoxFuture;
use lillux::redact::Redactor;

/// A token that ends so soon is renewed before it is used.
const SOON: Duration = Duration::from_mins(1);

/// Whose a credential is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Of one session alone, and gone with it.
    Session(SessionId),
    /// Of a user, in all their sessions.
    User(String),
    /// Of an organisation, for all its users.
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
    /// Reads what [`Display`](fmt::Display) writes.
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

/// A key or a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// What a program is given.
    #[serde(alias = "access_token")]
    pub secret: Zeroizing<String>,
    /// How it is renewed, where it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OAuth>,
}

impl Credential {
    /// One that does not end.
    pub fn new(secret: impl Into<String>) -> Self {
        let secret = Zeroizing::new(secret.into());
        Self {
            secret,
            oauth: None,
        }
    }

    fn ends_by(&self, time: Millis) -> bool {
        let end = self.oauth.as_ref().and_then(|oauth| oauth.expires_at);
        end.is_some_and(|end| end <= time)
    }

    /// Everything in it that nobody is to see.
    fn redact(&self, redactor: &Redactor) {
        redactor.add(&self.secret);
        if let Some(oauth) = &self.oauth {
            redactor.add(&oauth.refresh_token);
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

/// How a token is renewed: OAuth 2.0, with a refresh token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuth {
    /// Where.
    pub token_url: String,
    /// As whom.
    pub client_id: String,
    /// And how that is shown, where it must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Zeroizing<String>>,
    /// With what.
    pub refresh_token: Zeroizing<String>,
    /// For what; else for what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// When the token ends, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OAuth at {}", self.token_url)
    }
}

/// A token that was renewed.
#[derive(Clone)]
pub struct RefreshedToken {
    /// It.
    pub access_token: Zeroizing<String>,
    /// How long it holds.
    pub expires_in: Option<Duration>,
    /// What takes the place of the refresh token, where something does.
    pub refresh_token: Option<Zeroizing<String>>,
}

/// Why a token was not renewed, in words without secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefreshError {
    /// The refresh token is no good: a person must log in again.
    #[error("{0}")]
    Refused(String),
    /// Nobody answered: later it may work.
    #[error("{0}")]
    Unreachable(String),
}

/// Renews tokens.
pub trait Refresher: Send + Sync + 'static {
    /// Asks for a new token.
    fn refresh<'a>(
        &'a self,
        oauth: &'a OAuth,
    ) -> BoxFuture<'a, Result<RefreshedToken, RefreshError>>;
}

/// Why a credential is not to be had, in words without secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the credentials cannot be used: {0}")]
pub struct CredentialError(pub String);

/// What a store of credentials gives, some time.
pub type CredentialFuture<'a, T> = BoxFuture<'a, Result<T, CredentialError>>;

/// Where credentials are kept, sealed.
pub trait CredentialStore: Send + Sync + 'static {
    /// That of an owner for a service, opened.
    fn get<'a>(
        &'a self,
        owner: &'a Owner,
        service: &'a str,
    ) -> CredentialFuture<'a, Option<Credential>>;

    /// Keeps it, in place of the one there was.
    fn put<'a>(
        &'a self,
        owner: &'a Owner,
        service: &'a str,
        credential: &'a Credential,
    ) -> CredentialFuture<'a, ()>;

    /// Forgets it. Whether there was one.
    fn remove<'a>(&'a self, owner: &'a Owner, service: &'a str) -> CredentialFuture<'a, bool>;

    /// Whose there are, for which services; nothing is opened.
    fn list(&self) -> CredentialFuture<'_, Vec<(Owner, String)>>;
}

/// What an engine knows of credentials.
#[derive(Default)]
pub(crate) struct Credentials {
    store: Option<Arc<dyn CredentialStore>>,
    refresher: Option<Arc<dyn Refresher>>,
    /// One for each token that somebody renews.
    renewing: Mutex<Locks>,
    /// Whose are redacted already.
    learnt: tokio::sync::Mutex<HashSet<Owner>>,
}

type Locks = HashMap<(Owner, String), Weak<tokio::sync::Mutex<()>>>;

/// What came of looking for a credential.
#[derive(Debug)]
pub(crate) enum CredentialLookup {
    Found(Zeroizing<String>),
    /// There is none.
    Missing,
    /// There is one that is no good any more: why.
    Void(String),
}

impl Credentials {
    pub(crate) fn new(
        store: Option<Arc<dyn CredentialStore>>,
        refresher: Option<Arc<dyn Refresher>>,
    ) -> Self {
        Self {
            store,
            refresher,
            renewing: Mutex::default(),
            learnt: tokio::sync::Mutex::default(),
        }
    }

    /// Has all that these have redacted, whether or not anything asked for it yet: what a tool
    /// used before a restart is as secret after it.
    pub(crate) async fn learn(&self, owners: &[Owner], redactor: &Redactor) {
        let Some(store) = &self.store else {
            return;
        };
        let mut learnt = self.learnt.lock().await;
        if owners.iter().all(|owner| learnt.contains(owner)) {
            return;
        }
        // What cannot be read now is tried again with the next tool.
        let Ok(all) = store.list().await else {
            return;
        };
        let new = |owner: &Owner| owners.contains(owner) && !learnt.contains(owner);
        for (owner, service) in all.into_iter().filter(|(owner, _)| new(owner)) {
            if let Ok(Some(found)) = store.get(&owner, &service).await {
                found.redact(redactor);
            }
        }
        learnt.extend(owners.iter().cloned());
    }

    /// Forgets what only a session had.
    pub(crate) async fn forget(&self, session: &SessionId) -> Result<(), CredentialError> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        let own = Owner::Session(session.clone());
        for (owner, service) in store.list().await? {
            if owner == own {
                store.remove(&owner, &service).await?;
            }
        }
        Ok(())
    }

    /// The credential of the first owner that has one.
    pub(crate) async fn look(
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
                found.redact(redactor);
                if !found.ends_by(now.after(SOON)) {
                    return Ok(CredentialLookup::Found(found.secret));
                }
                return self.renew(&**store, owner, service, now, redactor).await;
            }
        }
        Ok(CredentialLookup::Missing)
    }

    /// Renews a token, unless somebody else does so at this moment: a refresh token holds once.
    async fn renew(
        &self,
        store: &dyn CredentialStore,
        owner: &Owner,
        service: &str,
        now: Millis,
        redactor: &Redactor,
    ) -> Result<CredentialLookup, CredentialError> {
        let lock = self.lock(owner, service);
        let _alone = lock.lock().await;
        let Some(current) = store.get(owner, service).await? else {
            return Ok(CredentialLookup::Missing);
        };
        current.redact(redactor);
        if !current.ends_by(now.after(SOON)) {
            return Ok(CredentialLookup::Found(current.secret));
        }
        let (Some(oauth), Some(refresher)) = (&current.oauth, &self.refresher) else {
            return Ok(CredentialLookup::Void("it has ended".to_owned()));
        };
        match refresher.refresh(oauth).await {
            Ok(renewed) => {
                let renewed = renewed.credential(oauth, now);
                renewed.redact(redactor);
                store.put(owner, service, &renewed).await?;
                Ok(CredentialLookup::Found(renewed.secret))
            }
            // It holds for some moments yet.
            Err(RefreshError::Unreachable(_)) if !current.ends_by(now) => {
                Ok(CredentialLookup::Found(current.secret))
            }
            Err(RefreshError::Unreachable(why)) => {
                let why = redactor.redact(&why);
                Err(CredentialError(format!(
                    "{service} cannot be renewed now: {why}"
                )))
            }
            Err(RefreshError::Refused(why)) => {
                // Another process may have been quicker.
                match store.get(owner, service).await? {
                    Some(other) if !other.ends_by(now) && other != current => {
                        other.redact(redactor);
                        Ok(CredentialLookup::Found(other.secret))
                    }
                    _ => Ok(CredentialLookup::Void(redactor.redact(&why).into_owned())),
                }
            }
        }
    }

    fn lock(&self, owner: &Owner, service: &str) -> Arc<tokio::sync::Mutex<()>> {
        let all = self.renewing.lock();
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
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
    fn credential(self, before: &OAuth, now: Millis) -> Credential {
        let refresh_token = self.refresh_token;
        Credential {
            secret: self.access_token,
            oauth: Some(OAuth {
                refresh_token: refresh_token.unwrap_or_else(|| before.refresh_token.clone()),
                expires_at: self.expires_in.map(|time| now.after(time)),
                ..before.clone()
            }),
        }
    }
}
