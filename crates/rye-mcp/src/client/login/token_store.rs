//! OAuth tokens of a server, sealed in the user's vault.
//!
//! The name of the secret contains the server's name and a hash of its URL, so a project that
//! changes the URL of a server does not get the tokens.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use lillux::Hash;
use lillux::envelope::Secret;
use parking_lot::Mutex;
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

/// Stored tokens and client registration of one server. Clones share them.
#[derive(Clone)]
pub(in crate::client) struct TokenStore(Arc<Inner>);

struct Inner {
    vault: Vault,
    name: SecretName,
    url: String,
    redactor: Redactor,
    registration: Mutex<Option<ClientRegistration>>,
}

/// Registration of this client at the authorization server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::client) struct ClientRegistration {
    pub(in crate::client) metadata: AuthorizationMetadata,
    pub(in crate::client) client_secret: Option<String>,
    pub(in crate::client) redirect_uri: String,
}

/// Contents of the sealed secret.
#[derive(Serialize, Deserialize)]
struct TokenRecord {
    url: String,
    registration: ClientRegistration,
    credentials: StoredCredentials,
}

impl TokenStore {
    /// The tokens of a server at a URL; `None` without a vault.
    pub(in crate::client) fn for_server(
        server: &ServerSpec,
        url: &str,
        redactor: &Redactor,
    ) -> Option<Self> {
        let name = server.id.rsplit('/').next().unwrap_or(&server.id);
        let hash = Hash::digest(url).to_hex();
        Some(Self(Arc::new(Inner {
            vault: server.vault.clone()?,
            name: secret_name(name, &format!("OAUTH_{}", &hash[..8]))?,
            url: url.to_owned(),
            redactor: redactor.clone(),
            registration: Mutex::default(),
        })))
    }

    pub(in crate::client) fn redactor(&self) -> &Redactor {
        &self.0.redactor
    }

    /// Sets the registration to store with the next tokens.
    pub(in crate::client) fn set_registration(&self, registration: ClientRegistration) {
        if let Some(secret) = &registration.client_secret {
            self.0.redactor.add(secret);
        }
        *self.0.registration.lock() = Some(registration);
    }

    /// An authorization manager with the stored tokens; `None` if there are none.
    pub(in crate::client) async fn manager(&self) -> Result<Option<AuthorizationManager>, String> {
        let record = self.load_record().map_err(|error| error.to_string())?;
        let Some(TokenRecord {
            registration,
            credentials,
            ..
        }) = record
        else {
            return Ok(None);
        };
        let manage = async {
            let mut manager = AuthorizationManager::new(self.0.url.as_str()).await?;
            manager.set_credential_store(self.clone());
            manager.set_metadata(registration.metadata.clone());
            let id = credentials.client_id.as_str();
            let client = OAuthClientConfig::new(id, registration.redirect_uri.as_str());
            manager.configure_client(match &registration.client_secret {
                Some(secret) => client.with_client_secret(secret),
                None => client,
            })?;
            self.set_registration(registration);
            Ok::<_, AuthError>(manager)
        };
        let manager = manage.await.map_err(|error| error.to_string())?;
        Ok(Some(manager))
    }

    /// Issuer and scopes of the stored tokens.
    pub(in crate::client) fn grant(&self) -> LoginGrant {
        let record = self.load_record().ok().flatten();
        let credentials = record.map(|record| record.credentials);
        LoginGrant {
            issuer: credentials.as_ref().and_then(|it| it.issuer.clone()),
            scopes: credentials.map_or_else(Vec::new, |it| it.granted_scopes),
        }
    }

    /// Deletes the tokens; false if there were none.
    pub(in crate::client) fn delete(&self) -> Result<bool, VaultError> {
        match self.0.vault.remove(Some(Space::User), &self.0.name) {
            Ok(_) => Ok(true),
            Err(VaultError::NoSecret { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn load_record(&self) -> Result<Option<TokenRecord>, VaultError> {
        let opened = match self.0.vault.get(Some(Space::User), &self.0.name) {
            Ok(opened) => opened,
            Err(VaultError::NoSecret { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        // An unreadable record counts as missing: the user logs in again.
        let record: Option<TokenRecord> = serde_json::from_slice(opened.secret.expose()).ok();
        let record = record.filter(|record| record.url == self.0.url);
        if let Some(tokens) = record
            .as_ref()
            .and_then(|it| it.credentials.token_response.as_ref())
        {
            self.redact(tokens);
        }
        Ok(record)
    }

    /// Adds the tokens to the secrets to redact.
    fn redact(&self, tokens: &OAuthTokenResponse) {
        let tokens = serde_json::to_value(tokens).unwrap_or_default();
        for key in ["access_token", "refresh_token", "id_token"] {
            if let Some(token) = tokens.get(key).and_then(serde_json::Value::as_str) {
                self.0.redactor.add(token);
            }
        }
    }

    fn save_record(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        if let Some(tokens) = &credentials.token_response {
            self.redact(tokens);
        }
        let registration = self.0.registration.lock().clone();
        let record = TokenRecord {
            url: self.0.url.clone(),
            registration: registration.ok_or(AuthError::AuthorizationRequired)?,
            credentials,
        };
        let text = serde_json::to_vec(&record).map_err(|error| store_error(&error))?;
        let sealed = self
            .0
            .vault
            .set(Space::User, &self.0.name, &Secret::new(text));
        sealed.map(drop).map_err(|error| store_error(&error))
    }
}

/// Locks the file at a path. Tries again if the file was replaced while waiting for the lock.
fn lock_file(path: &Path) -> io::Result<File> {
    loop {
        let file = File::open(path)?;
        file.lock()?;
        let (locked, current) = (file.metadata()?, std::fs::metadata(path)?);
        if (locked.dev(), locked.ino()) == (current.dev(), current.ino()) {
            return Ok(file);
        }
    }
}

fn store_error(error: &impl ToString) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

#[async_trait::async_trait]
impl CredentialStore for TokenStore {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let record = self.load_record().map_err(|error| store_error(&error))?;
        Ok(record.map(|record| record.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.save_record(credentials)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.delete().map(drop).map_err(|error| store_error(&error))
    }

    /// Locks the secret, so that one process at a time refreshes the tokens: an authorization
    /// server may accept each refresh token once. A process that waited finds the new tokens.
    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let opened = self.0.vault.get(Some(Space::User), &self.0.name);
        let Ok(opened) = opened else {
            return Ok(None);
        };
        let path = opened.info.path;
        let locking = tokio::task::spawn_blocking(move || lock_file(&path));
        let file = locking.await.map_err(|error| store_error(&error))?;
        let file = file.map_err(|error| store_error(&error))?;
        Ok(Some(CredentialRefreshGuard::new(file)))
    }
}
