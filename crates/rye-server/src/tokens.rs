//! Creates and checks access tokens.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use lillux::Hash;
use rye_engine::store::StoreError;
use rye_host::Failure;
use rye_protocol::Millis;
use rye_store::{AccessToken, AccessTokens, Scope, TokenKind};

/// Prefix of every secret, by which scanners of repositories recognise it.
pub(crate) const PREFIX: &str = "rye_";

/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;

/// Random bytes of an id.
const ID_BYTES: usize = 6;

/// Why a token cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The store refused it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system has no random numbers.
    #[error("no random numbers: {0}")]
    Randomness(getrandom::Error),
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Store(error) => error.into(),
            error @ TokenError::Randomness(_) => Self::failed("no_randomness", error),
        }
    }
}

/// Parameters of a new token.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Name for people.
    pub name: String,
    /// What it permits.
    pub scopes: BTreeSet<Scope>,
    /// The user whose sessions it gives access to.
    pub user: Option<String>,
    /// The organisation whose sessions it gives access to.
    pub org: Option<String>,
    /// The only project that it gives access to.
    pub project: Option<String>,
    /// How long it is valid.
    pub lifetime: Option<Duration>,
    /// Id of the token that creates it.
    pub created_by: Option<String>,
}

/// The access tokens of a session database.
#[derive(Clone)]
pub struct Tokens {
    store: AccessTokens,
}

impl Tokens {
    /// Opens the tokens of a session database.
    pub fn open(database: &Path) -> Result<Self, StoreError> {
        let store = AccessTokens::open(database)?;
        Ok(Self { store })
    }

    /// Creates a token and returns its secret, which is stored nowhere.
    pub async fn create(&self, new: NewToken) -> Result<(AccessToken, String), TokenError> {
        self.create_as(TokenKind::Api, new).await
    }

    pub(crate) async fn create_as(
        &self,
        kind: TokenKind,
        new: NewToken,
    ) -> Result<(AccessToken, String), TokenError> {
        let now = now();
        let secret = format!("{PREFIX}{}", random(SECRET_BYTES)?);
        let token = AccessToken {
            id: random(ID_BYTES)?,
            kind,
            name: new.name,
            scopes: new.scopes,
            user: new.user,
            org: new.org,
            project: new.project,
            created_at: now,
            expires_at: new.lifetime.map(|lifetime| after(now, lifetime)),
            created_by: new.created_by,
        };
        self.store
            .insert(Hash::digest(&secret), token.clone())
            .await?;
        Ok((token, secret))
    }

    /// The token with a secret; `None` if it is unknown or has expired.
    pub(crate) async fn find(&self, secret: &str) -> Result<Option<AccessToken>, StoreError> {
        self.store.find(Hash::digest(secret), now()).await
    }

    /// The token with a secret, which is valid only once.
    pub(crate) async fn take(&self, secret: &str) -> Result<Option<AccessToken>, StoreError> {
        self.store.take(Hash::digest(secret), now()).await
    }

    /// The valid tokens, oldest first.
    pub async fn list(&self) -> Result<Vec<AccessToken>, StoreError> {
        self.store.list(now()).await
    }

    /// Revokes a token. Returns whether it existed.
    pub async fn revoke(&self, id: &str) -> Result<bool, StoreError> {
        self.store.remove(id).await
    }
}

/// The current time.
pub(crate) fn now() -> Millis {
    Millis(u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default())
}

fn after(now: Millis, lifetime: Duration) -> Millis {
    let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
    Millis(now.0.saturating_add(lifetime))
}

/// Random bytes as text.
fn random(bytes: usize) -> Result<String, TokenError> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(TokenError::Randomness)?;
    Ok(Base64UrlUnpadded::encode_string(&random))
}
