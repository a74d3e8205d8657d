//! Encrypted credentials in the session database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::envelope::{Envelope, OpeningKey, Secret, seal};
use rusqlite::{OptionalExtension as _, params};
use rye_engine::clock::{Clock as _, SystemClock};
use rye_engine::credential::{
    Credential, CredentialError, CredentialFuture, CredentialStore, Owner,
};
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use crate::sqlite::Connection;

/// Returns the key that encrypts and decrypts credentials. With `true`, creates a missing key.
pub type KeyProvider = Arc<dyn Fn(bool) -> Result<Option<OpeningKey>, String> + Send + Sync>;

/// Credentials in a session database, each sealed to the user's key. The file is useless
/// without the key.
#[derive(Clone)]
pub struct SealedCredentials {
    path: Arc<Path>,
    key: KeyProvider,
}

impl SealedCredentials {
    /// The credentials in this database, sealed with the provided key.
    pub fn new(path: impl Into<PathBuf>, key: KeyProvider) -> Self {
        let path = path.into().into();
        Self { path, key }
    }

    /// Runs disk I/O on a blocking thread.
    fn blocking<'a, T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &KeyProvider) -> Result<T, CredentialError> + Send + 'static,
    ) -> CredentialFuture<'a, T> {
        let (path, key) = (Arc::clone(&self.path), Arc::clone(&self.key));
        Box::pin(async move {
            let result = spawn_blocking(move || {
                let db = Connection::open(&path).map_err(unusable)?;
                work(&db, &key)
            });
            result.await.map_err(unusable)?
        })
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "signature required by `map_err`"
)]
fn unusable(error: impl ToString) -> CredentialError {
    CredentialError(error.to_string())
}

/// The envelope's label, so that a swapped envelope is detected.
fn label(owner: &str, service: &str) -> String {
    format!("rye credential {owner} {service}")
}

fn get(
    db: &Connection,
    key: &KeyProvider,
    owner: &str,
    service: &str,
) -> Result<Option<Credential>, CredentialError> {
    let text = "SELECT envelope FROM engine_credentials WHERE owner = ?1 AND service = ?2";
    let sealed = db
        .db
        .query_row(text, [owner, service], |row| row.get::<_, String>(0));
    let Some(sealed) = sealed.optional().map_err(unusable)? else {
        return Ok(None);
    };
    open_sealed(key, owner, service, &sealed).map(Some)
}

/// Opens a stored envelope.
pub(crate) fn open_sealed(
    key: &KeyProvider,
    owner: &str,
    service: &str,
    sealed: &str,
) -> Result<Credential, CredentialError> {
    let envelope = Envelope::parse(sealed.as_bytes()).map_err(unusable)?;
    let key = key(false).map_err(CredentialError)?;
    let key = key.ok_or_else(|| unusable("the vault's private key is missing"))?;
    let opened = envelope.open(&key, Some(&label(owner, service)));
    let opened = opened.map_err(|error| unusable(format!("{service} of {owner}: {error}")))?;
    // The parser's error could contain the secret.
    let credential = serde_json::from_slice(opened.expose());
    credential.map_err(|_| unusable(format!("{service} of {owner} is not a valid credential")))
}

/// Seals a credential to the user's key.
pub(crate) fn seal_for_key(
    key: &KeyProvider,
    owner: &str,
    service: &str,
    secret: &Secret,
) -> Result<String, CredentialError> {
    let key = key(true).map_err(CredentialError)?;
    let key = key.ok_or_else(|| unusable("there is no key to encrypt with"))?;
    let recipient = key.public().clone();
    let envelope = seal(secret, &[recipient], &label(owner, service)).map_err(unusable)?;
    String::from_utf8(envelope.to_bytes()).map_err(unusable)
}

fn put(
    db: &Connection,
    key: &KeyProvider,
    owner: &str,
    service: &str,
    secret: &Secret,
) -> Result<(), CredentialError> {
    let sealed = seal_for_key(key, owner, service, secret)?;
    let now = SystemClock::default().now().0.cast_signed();
    let text = "INSERT INTO engine_credentials (owner, service, updated_at, envelope)
                VALUES (?1, ?2, ?3, ?4)
                ON CONFLICT (owner, service) DO UPDATE SET updated_at = ?3, envelope = ?4";
    let put = db.write(|db| db.execute(text, params![owner, service, now, sealed]));
    put.map(drop).map_err(unusable)
}

impl CredentialStore for SealedCredentials {
    fn get<'a>(
        &'a self,
        owner: &'a Owner,
        service: &'a str,
    ) -> CredentialFuture<'a, Option<Credential>> {
        let (owner, service) = (owner.to_string(), service.to_owned());
        self.blocking(move |db, key| get(db, key, &owner, &service))
    }

    fn put<'a>(
        &'a self,
        owner: &'a Owner,
        service: &'a str,
        credential: &'a Credential,
    ) -> CredentialFuture<'a, ()> {
        let (owner, service) = (owner.to_string(), service.to_owned());
        let text = serde_json::to_vec(credential).map(Zeroizing::new);
        self.blocking(move |db, key| {
            let secret = Secret::new(text.map_err(unusable)?.to_vec());
            put(db, key, &owner, &service, &secret)
        })
    }

    fn remove<'a>(&'a self, owner: &'a Owner, service: &'a str) -> CredentialFuture<'a, bool> {
        let (owner, service) = (owner.to_string(), service.to_owned());
        self.blocking(move |db, _| {
            let text = "DELETE FROM engine_credentials WHERE owner = ?1 AND service = ?2";
            let removed = db.write(|db| db.execute(text, [owner, service]));
            removed.map(|rows| rows > 0).map_err(unusable)
        })
    }

    fn list(&self) -> CredentialFuture<'_, Vec<(Owner, String)>> {
        self.blocking(|db, _| {
            let text = "SELECT owner, service FROM engine_credentials ORDER BY owner, service";
            let mut find = db.db.prepare(text).map_err(unusable)?;
            let rows = find.query_map([], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            });
            let rows: Result<Vec<_>, _> = rows.map_err(unusable)?.collect();
            let rows = rows.map_err(unusable)?.into_iter();
            let parsed = rows.filter_map(|(owner, service)| Some((Owner::parse(&owner)?, service)));
            Ok(parsed.collect())
        })
    }
}
