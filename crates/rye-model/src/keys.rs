//! API keys.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::config::ProviderConfig;
use crate::provider::Key;

/// A source of API keys.
pub trait Keys: Send + Sync + 'static {
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<Zeroizing<String>>;

    /// A secret from the vault. The error says why it cannot be decrypted.
    fn secret(&self, name: &str) -> Result<Option<Zeroizing<String>>, String>;
}

/// Keys from the environment only.
#[derive(Debug, Clone, Copy, Default)]
pub struct Environment;

impl Keys for Environment {
    fn variable(&self, name: &str) -> Option<Zeroizing<String>> {
        std::env::var(name).ok().map(Zeroizing::new)
    }

    fn secret(&self, _: &str) -> Result<Option<Zeroizing<String>>, String> {
        Ok(None)
    }
}

/// The key of a provider: from the environment, else from the vault.
pub(crate) fn find(name: &str, provider: &ProviderConfig, keys: &dyn Keys) -> Key {
    let variable = provider.api_key_env.as_deref();
    let secret = provider.vault.as_deref().or(variable);
    let Some(secret) = secret else {
        return Key::None;
    };
    let given = |text: Zeroizing<String>, source: String| Key::Given {
        secret: Arc::new(text),
        source,
    };
    let from_variable = variable.and_then(|name| Some((name, keys.variable(name)?)));
    if let Some((name, text)) = from_variable.filter(|(_, text)| !text.trim().is_empty()) {
        return given(text, format!("variable {name}"));
    }
    match keys.secret(secret) {
        Ok(Some(text)) => given(text, format!("vault secret {secret}")),
        Ok(None) => {
            let export = variable.map(|name| format!("`export {name}=…` or "));
            let export = export.unwrap_or_default();
            Key::Missing {
                secret: secret.to_owned(),
                hint: format!("no API key for {name}; run {export}`rye vault set {secret}`"),
            }
        }
        Err(why) => Key::Unreadable(format!(
            "cannot read vault secret {secret} for {name}: {why}"
        )),
    }
}
