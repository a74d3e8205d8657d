//! Keys, from wherever they are kept.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::config::ProviderConfig;
use crate::provider::Key;

/// Where keys are kept.
pub trait Keys: Send + Sync + 'static {
    /// The value of a variable of the environment.
    fn variable(&self, name: &str) -> Option<Zeroizing<String>>;

    /// A secret of the vault, if it is there, or in words why it cannot be opened.
    fn secret(&self, name: &str) -> Result<Option<Zeroizing<String>>, String>;
}

/// The environment alone.
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

/// The key of a provider: the variable's value, else the vault's secret.
pub(crate) fn find(name: &str, provider: &ProviderConfig, keys: &dyn Keys) -> Key {
    let variable = provider.api_key_env.as_deref();
    let secret = provider.vault.as_deref().or(variable);
    let Some(secret) = secret else {
        return Key::None;
    };
    let given = |text: Zeroizing<String>, found: String| Key::Given {
        secret: Arc::new(text),
        found,
    };
    let from_variable = variable.and_then(|name| Some((name, keys.variable(name)?)));
    if let Some((name, text)) = from_variable.filter(|(_, text)| !text.trim().is_empty()) {
        return given(text, format!("the variable {name}"));
    }
    match keys.secret(secret) {
        Ok(Some(text)) => given(text, format!("the vault's {secret}")),
        Ok(None) => {
            let export = variable.map(|name| format!("export {name}=…, or: "));
            let export = export.unwrap_or_default();
            Key::Missing(format!(
                "there is no key for {name}; {export}rye vault set {secret}"
            ))
        }
        Err(why) => Key::Missing(format!(
            "the key {secret} of {name} cannot be opened: {why}"
        )),
    }
}
