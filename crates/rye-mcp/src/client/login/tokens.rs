//! A server's tokens, sealed in the vault of whoever logged in.
//!
//! They are kept under the server's name and the hash of its address: a project that gives
//! a server another address does not get them.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lillux::Hash;
use lillux::envelope::Secret;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, CredentialRefreshGuard,
    CredentialStore, OAuthClientConfig, OAuthTokenResponse, StoredCredentials,
};
use rye_executor::redact::Redactor;
use rye_items::Space;
use rye_items::vault::{SecretName, Vault, VaultError};
use serde::{Deserialize, Serialize};

use super::super::connect::ServerSpec;
use super::super::import::secret_name;
use super::LoginGrant;

/// The tokens of one server.
#[derive(Clone)]
pub(in crate::client) struct Tokens(Arc<Kept>);

struct Kept {
    vault: Vault,
    name: SecretName,
    url: String,
    redactor: Redactor,
    registered: Mutex<Option<Registered>>,
}

/// As what we are known to who gives the tokens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::client) struct Registered {
    pub(in crate::client) metadata: AuthorizationMetadata,
    pub(in crate::client) client_secret: Option<String>,
    pub(in crate::client) redirect_uri: String,
}

/// What is sealed.
#[derive(Serialize, Deserialize)]
struct Record {
    url: String,
    registered: Registered,
    credentials: StoredCredentials,
}

type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

impl Tokens {
    /// Those of a server at an address; none where there is no vault.
    pub(in crate::client) fn of(
        server: &ServerSpec,
        url: &str,
        redactor: &Redactor,
    ) -> Option<Self> {
        let word = server.id.rsplit('/').next().unwrap_or(&server.id);
        let hash = Hash::digest(url).to_hex();
        Some(Self(Arc::new(Kept {
            vault: server.vault.clone()?,
            name: secret_name(word, &format!("OAUTH_{}", &hash[..8]))?,
            url: url.to_owned(),
            redactor: redactor.clone(),
            registered: Mutex::default(),
        })))
    }

    pub(in crate::client) fn redactor(&self) -> &Redactor {
        &self.0.redactor
    }

    /// As what we are known from now on.
    pub(in crate::client) fn register(&self, registered: Registered) {
        if let Some(secret) = &registered.client_secret {
            self.0.redactor.add(secret);
        }
        *self.registered() = Some(registered);
    }

    /// Who gives the tokens that there are, ready to make them new; none if there are none.
    pub(in crate::client) async fn manager(&self) -> Result<Option<AuthorizationManager>, String> {
        let record = self.read().map_err(|error| error.to_string())?;
        let Some(Record {
            registered,
            credentials,
            ..
        }) = record
        else {
            return Ok(None);
        };
        let manage = async {
            let mut manager = AuthorizationManager::new(self.0.url.as_str()).await?;
            manager.set_credential_store(self.clone());
            manager.set_metadata(registered.metadata.clone());
            let id = credentials.client_id.as_str();
            let client = OAuthClientConfig::new(id, registered.redirect_uri.as_str());
            manager.configure_client(match &registered.client_secret {
                Some(secret) => client.with_client_secret(secret),
                None => client,
            })?;
            self.register(registered);
            Ok::<_, AuthError>(manager)
        };
        let manager = manage.await.map_err(|error| error.to_string())?;
        Ok(Some(manager))
    }

    /// What the tokens that there are are for.
    pub(in crate::client) fn granted(&self) -> LoginGrant {
        let record = self.read().ok().flatten();
        let credentials = record.map(|record| record.credentials);
        LoginGrant {
            issuer: credentials.as_ref().and_then(|it| it.issuer.clone()),
            scopes: credentials.map_or_else(Vec::new, |it| it.granted_scopes),
        }
    }

    /// Forgets them, and says whether there were any.
    pub(in crate::client) fn forget(&self) -> Result<bool, VaultError> {
        match self.0.vault.remove(Some(Space::User), &self.0.name) {
            Ok(_) => Ok(true),
            Err(VaultError::NoSecret { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn read(&self) -> Result<Option<Record>, VaultError> {
        let opened = match self.0.vault.get(Some(Space::User), &self.0.name) {
            Ok(opened) => opened,
            Err(VaultError::NoSecret { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        // What another version wrote is as good as nothing: somebody logs in again.
        let record: Option<Record> = serde_json::from_slice(opened.secret.expose()).ok();
        let record = record.filter(|record| record.url == self.0.url);
        if let Some(tokens) = record
            .as_ref()
            .and_then(|it| it.credentials.token_response.as_ref())
        {
            self.redact(tokens);
        }
        Ok(record)
    }

    /// Nobody is to see them, whatever the server says.
    fn redact(&self, tokens: &OAuthTokenResponse) {
        let tokens = serde_json::to_value(tokens).unwrap_or_default();
        for key in ["access_token", "refresh_token", "id_token"] {
            if let Some(token) = tokens.get(key).and_then(serde_json::Value::as_str) {
                self.0.redactor.add(token);
            }
        }
    }

    fn registered(&self) -> MutexGuard<'_, Option<Registered>> {
        let registered = self.0.registered.lock();
        registered.unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        if let Some(tokens) = &credentials.token_response {
            self.redact(tokens);
        }
        let registered = self.registered().clone();
        let record = Record {
            url: self.0.url.clone(),
            registered: registered.ok_or(AuthError::AuthorizationRequired)?,
            credentials,
        };
        let text = serde_json::to_vec(&record).map_err(|error| unkept(&error))?;
        let sealed = self
            .0
            .vault
            .set(Space::User, &self.0.name, &Secret::new(text));
        sealed.map(drop).map_err(|error| unkept(&error))
    }
}

/// Locks the file of a path. One that was replaced while it was waited for is another.
fn locked(path: &Path) -> io::Result<File> {
    loop {
        let file = File::open(path)?;
        file.lock()?;
        let (held, there) = (file.metadata()?, std::fs::metadata(path)?);
        if (held.dev(), held.ino()) == (there.dev(), there.ino()) {
            return Ok(file);
        }
    }
}

fn unkept(error: &impl ToString) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

impl CredentialStore for Tokens {
    fn load<'s, 'f>(&'s self) -> Later<'f, Option<StoredCredentials>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let record = self.read().map_err(|error| unkept(&error))?;
            Ok(record.map(|record| record.credentials))
        })
    }

    fn save<'s, 'f>(&'s self, credentials: StoredCredentials) -> Later<'f, ()>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move { self.write(credentials) })
    }

    fn clear<'s, 'f>(&'s self) -> Later<'f, ()>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move { self.forget().map(drop).map_err(|error| unkept(&error)) })
    }

    /// One process at a time makes tokens new: who gives them may take each old one once.
    /// Who waited finds what the other has kept.
    fn acquire_refresh_guard<'s, 'f>(&'s self) -> Later<'f, Option<CredentialRefreshGuard>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let opened = self.0.vault.get(Some(Space::User), &self.0.name);
            let Ok(opened) = opened else {
                return Ok(None);
            };
            let path = opened.sealed.path;
            let locked = tokio::task::spawn_blocking(move || locked(&path));
            let file = locked.await.map_err(|error| unkept(&error))?;
            let file = file.map_err(|error| unkept(&error))?;
            Ok(Some(CredentialRefreshGuard::new(file)))
        })
    }
}
