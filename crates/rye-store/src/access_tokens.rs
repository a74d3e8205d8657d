//! Access tokens of the HTTP server, in the session database. Secrets are stored as hashes only.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use lillux::Hash;
use parking_lot::Mutex;
use rusqlite::{OptionalExtension as _, Row, params};
use rye_engine::store::StoreError;
use rye_protocol::Millis;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::sqlite::Connection;

/// What the holder of a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Read sessions, gates and items.
    Read,
    /// Create sessions, send prompts, control threads and run items.
    Prompt,
    /// Decide gates.
    Decide,
    /// Everything, and manage tokens.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Read, Self::Prompt, Self::Decide, Self::Admin];

    /// The serialised name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Prompt => "prompt",
            Self::Decide => "decide",
            Self::Admin => "admin",
        }
    }
}

/// How a token is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenKind {
    /// A bearer token of a program.
    Api,
    /// A login link, which is valid once.
    Login,
    /// The cookie of a browser.
    Browser,
}

/// An access token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessToken {
    /// Unique id. It is not secret.
    pub id: String,
    /// How the token is used.
    pub kind: TokenKind,
    /// Name for people.
    pub name: String,
    /// What it permits.
    pub scopes: BTreeSet<Scope>,
    /// The user whose sessions it gives access to.
    pub user: Option<String>,
    /// The organisation whose sessions it gives access to. Without user and organisation, the
    /// token gives access to all sessions.
    pub org: Option<String>,
    /// The only project that it gives access to.
    pub project: Option<String>,
    /// Creation time.
    pub created_at: Millis,
    /// End of its validity.
    pub expires_at: Option<Millis>,
    /// Id of the token that created it.
    pub created_by: Option<String>,
}

impl AccessToken {
    /// Whether it permits something.
    pub fn permits(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }
}

/// The access tokens in a session database.
#[derive(Clone)]
pub struct AccessTokens {
    db: Arc<Mutex<Connection>>,
}

impl AccessTokens {
    /// Opens the tokens in a session database.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let db = Connection::open(path)?;
        let db = Arc::new(Mutex::new(db));
        Ok(Self { db })
    }

    /// Runs disk I/O on a blocking thread.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let db = Arc::clone(&self.db);
        let work = spawn_blocking(move || work(&db.lock()));
        let failed = |error: tokio::task::JoinError| StoreError::Unavailable(error.to_string());
        work.await.map_err(failed)?
    }

    /// Stores a token under the hash of its secret, and removes expired tokens.
    pub async fn insert(&self, secret: Hash, token: AccessToken) -> Result<(), StoreError> {
        let doc = encode(&token)?;
        self.run(move |db| {
            db.write(|db| {
                db.execute(
                    "DELETE FROM engine_access_tokens WHERE expires_at <= ?1",
                    [token.created_at.0.cast_signed()],
                )?;
                let insert = "INSERT INTO engine_access_tokens (id, secret_hash, expires_at, doc)
                    VALUES (?1, ?2, ?3, ?4)";
                let until = token.expires_at.map(|until| until.0.cast_signed());
                db.execute(insert, params![token.id, secret.to_hex(), until, doc])
            })
            .map(drop)
        })
        .await
    }

    /// The token with a secret, unless it has expired.
    pub async fn find(&self, secret: Hash, now: Millis) -> Result<Option<AccessToken>, StoreError> {
        self.run(move |db| {
            let text = "SELECT doc FROM engine_access_tokens WHERE secret_hash = ?1
                AND (expires_at IS NULL OR expires_at > ?2)";
            let doc = db.read(|db| {
                let mut find = db.prepare_cached(text)?;
                find.query_row(params![secret.to_hex(), now.0.cast_signed()], document)
                    .optional()
            })?;
            doc.map(|doc| decode(&doc)).transpose()
        })
        .await
    }

    /// Removes the token with a secret and returns it, unless it has expired. Of several callers
    /// with the same secret, one gets the token.
    pub async fn take(&self, secret: Hash, now: Millis) -> Result<Option<AccessToken>, StoreError> {
        self.run(move |db| {
            let text = "DELETE FROM engine_access_tokens WHERE secret_hash = ?1 RETURNING doc";
            let doc = db.write(|db| db.query_row(text, [secret.to_hex()], document).optional())?;
            let token: Option<AccessToken> = doc.map(|doc| decode(&doc)).transpose()?;
            Ok(token.filter(|token| token.expires_at.is_none_or(|until| now < until)))
        })
        .await
    }

    /// All tokens that have not expired, oldest first.
    pub async fn list(&self, now: Millis) -> Result<Vec<AccessToken>, StoreError> {
        self.run(move |db| {
            let text = "SELECT doc FROM engine_access_tokens
                WHERE expires_at IS NULL OR expires_at > ?1 ORDER BY number";
            let docs: Vec<String> = db.read(|db| {
                let mut find = db.prepare_cached(text)?;
                let rows = find.query_map([now.0.cast_signed()], document)?;
                rows.collect()
            })?;
            docs.iter().map(|doc| decode(doc)).collect()
        })
        .await
    }

    /// Removes a token. Returns whether it existed.
    pub async fn remove(&self, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.run(move |db| {
            let text = "DELETE FROM engine_access_tokens WHERE id = ?1";
            Ok(db.write(|db| db.execute(text, [&id]))? > 0)
        })
        .await
    }
}

fn document(row: &Row<'_>) -> rusqlite::Result<String> {
    row.get(0)
}

fn encode(token: &AccessToken) -> Result<String, StoreError> {
    serde_json::to_string(token).map_err(|error| StoreError::Unreadable(error.to_string()))
}

fn decode(doc: &str) -> Result<AccessToken, StoreError> {
    let token = serde_json::from_str(doc);
    token.map_err(|error| StoreError::Unreadable(format!("an access token: {error}")))
}
