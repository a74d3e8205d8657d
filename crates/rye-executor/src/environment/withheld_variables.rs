//! Variables that are never passed to tools.

use crate::redact::is_secret_name;

/// Variables that are never passed to tools: API keys of model providers and Rye's own keys.
pub const WITHHELD_VARIABLES: [&str; 9] = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OPENROUTER_API_KEY",
    "VLLM_API_KEY",
    "RYE_RELEASE_KEY",
    "RYE_VAULT_KEY",
    "RYE_TOKEN",
];

/// Describes further variables that are never passed to tools.
pub const WITHHELD_PATTERNS: &str = "variables that begin with RYE_ and hold a token, key, secret, \
    password, passphrase or credential; and those that models.yaml names as `api_key_env`";

/// Whether a variable is never passed to tools.
pub(super) fn is_withheld(name: &str) -> bool {
    // RYE_MAX_TOKENS is a limit, not a secret.
    let setting = name.strip_prefix("RYE_").filter(|it| *it != "MAX_TOKENS");
    WITHHELD_VARIABLES.contains(&name) || setting.is_some_and(is_secret_name)
}
