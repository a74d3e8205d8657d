//! Authentication: which API keys are missing, and how to set them.

use std::collections::BTreeMap;

use agent_client_protocol::v1::schema::{
    AuthMethod, AuthMethodAgent, AuthMethodTerminal, ClientCapabilities,
};
use agent_client_protocol::{Error, ErrorCode};
use rye_engine::model::Models as _;
use rye_host::Catalogue;
use serde_json::json;

/// Option of `rye acp` that asks for a secret and stores it.
const SET_KEY: &str = "--set-key";

/// Prefix of the method with which the editor opens a terminal.
const TERMINAL: &str = "terminal:";

/// A secret that providers need, and what to do about it.
struct MissingKey {
    secret: String,
    hint: String,
}

/// The missing keys, by provider.
fn missing_keys(models: &Catalogue) -> BTreeMap<String, MissingKey> {
    let summaries = models.list().into_iter();
    let missing = summaries.filter_map(|model| {
        let provider = model.name.split('/').next()?.to_owned();
        let secret = model.missing_key?;
        let hint = model.usable.err()?;
        Some((provider, MissingKey { secret, hint }))
    });
    missing.collect()
}

/// How a user can set the missing keys, if the default model needs one: a text for each provider,
/// and a terminal if the editor can open one.
pub(crate) fn methods(models: &Catalogue, client: &ClientCapabilities) -> Vec<AuthMethod> {
    let mut methods = Vec::new();
    if models.usable(&models.default_name()).is_ok() {
        return methods;
    }
    for (provider, MissingKey { secret, hint }) in missing_keys(models) {
        let name = format!("API key of {provider}");
        if client.auth.terminal {
            let id = format!("{TERMINAL}{provider}");
            let method = AuthMethodTerminal::new(id, format!("{name}, in a terminal"))
                .description(format!("Asks for {secret} and stores it in the vault"))
                .args(vec![SET_KEY.to_owned(), secret]);
            methods.push(AuthMethod::Terminal(method));
        }
        let method = AuthMethodAgent::new(provider, name).description(hint);
        methods.push(AuthMethod::Agent(method));
    }
    methods
}

/// Checks that the key of a provider was set; the error says how to set it.
pub(crate) fn check(models: &Catalogue, method: &str) -> Result<(), Error> {
    let provider = method.strip_prefix(TERMINAL).unwrap_or(method);
    let mut summaries = models.list().into_iter();
    let prefix = format!("{provider}/");
    if !summaries.any(|model| model.name.starts_with(&prefix)) {
        let message = format!("there is no authentication method `{method}`");
        return Err(Error::new(ErrorCode::INVALID_PARAMS, message));
    }
    match missing_keys(models).remove(provider) {
        None => Ok(()),
        Some(missing) => Err(required(&missing.hint)),
    }
}

/// Checks that a model can be used; the error says what is missing.
pub(crate) fn check_model(models: &Catalogue, model: &str) -> Result<(), Error> {
    models.usable(model).map_err(|reason| required(&reason))
}

fn required(reason: &str) -> Error {
    Error::new(ErrorCode::AUTH_REQUIRED, reason).data(json!({ "reason": reason }))
}
