//! Credentials in the session database and in the vault, and the redactor for their values.

use std::path::Path;
use std::sync::Arc;

use lillux::redact::Redactor;
use rye_engine::credential::{
    Credential, CredentialError, CredentialFuture, CredentialStore, Owner,
};
use rye_executor::dotenv;
use rye_executor::redact::is_secret_variable;
use rye_items::vault::{SecretName, Vault, VaultError};
use rye_store::SealedCredentials;

use crate::log::redact_in_log;

/// Credentials of sessions, users and organisations. A secret in the vault with the name of a
/// service is also a credential of the user.
pub struct Credentials {
    sealed: SealedCredentials,
    vault: Option<Vault>,
}

impl Credentials {
    /// The credentials in a database, encrypted with the key of the vault. Without a vault there
    /// are none.
    pub fn new(database: &Path, vault: Option<Vault>) -> Self {
        let keys = vault.clone();
        let key = move |create| match &keys {
            Some(vault) => vault.key(create).map_err(|error| error.to_string()),
            None => Ok(None),
        };
        Self {
            sealed: SealedCredentials::new(database, Arc::new(key)),
            vault,
        }
    }

    fn load_from_vault(&self, service: &str) -> Result<Option<Credential>, CredentialError> {
        let (Some(vault), Ok(name)) = (&self.vault, service.parse::<SecretName>()) else {
            return Ok(None);
        };
        match vault.get(None, &name) {
            Ok(opened) => {
                let text = std::str::from_utf8(opened.secret.expose());
                let text = text
                    .map_err(|_| CredentialError(format!("the secret {name} is not UTF-8 text")))?;
                Ok(Some(Credential::new(text.trim_end_matches(['\r', '\n']))))
            }
            Err(VaultError::NoSecret { .. }) => Ok(None),
            Err(error) => Err(CredentialError(error.to_string())),
        }
    }
}

impl CredentialStore for Credentials {
    fn get<'a>(
        &'a self,
        owner: &'a Owner,
        service: &'a str,
    ) -> CredentialFuture<'a, Option<Credential>> {
        Box::pin(async move {
            match self.sealed.get(owner, service).await? {
                None if matches!(owner, Owner::User(_)) => self.load_from_vault(service),
                found => Ok(found),
            }
        })
    }

    fn put<'a>(
        &'a self,
        owner: &'a Owner,
        service: &'a str,
        credential: &'a Credential,
    ) -> CredentialFuture<'a, ()> {
        self.sealed.put(owner, service, credential)
    }

    fn remove<'a>(&'a self, owner: &'a Owner, service: &'a str) -> CredentialFuture<'a, bool> {
        self.sealed.remove(owner, service)
    }

    fn list(&self) -> CredentialFuture<'_, Vec<(Owner, String)>> {
        self.sealed.list()
    }
}

/// Secrets to redact from all output: environment variables and values of the project's `.env`
/// that look like secrets, and the content of the vault.
pub fn redactor(vault: Option<&Vault>, project: &Path) -> Redactor {
    let redactor = Redactor::default();
    for (name, value) in std::env::vars_os() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
            continue;
        };
        if is_secret_variable(name, value) {
            redactor.add(value);
        }
    }
    for secret in dotenv_secrets(project) {
        redactor.add(&secret);
    }
    // A secret that cannot be decrypted cannot leak.
    let all = vault.and_then(|vault| vault.list(None).ok());
    for sealed in all.into_iter().flatten().flatten() {
        let opened = vault.map(|vault| vault.get(Some(sealed.space), &sealed.name));
        if let Some(Ok(opened)) = opened
            && let Ok(text) = std::str::from_utf8(opened.secret.expose())
        {
            redactor.add(text);
        }
    }
    redact_in_log(&redactor);
    redactor
}

/// The values of a project's `.env` that look like secrets.
pub(crate) fn dotenv_secrets(project: &Path) -> Vec<String> {
    let file = dotenv::read(&project.join(".env")).unwrap_or_default();
    let variables = file.variables.into_iter();
    let secrets = variables.filter(|(name, value)| is_secret_variable(name, value));
    secrets.map(|(_, value)| value).collect()
}
