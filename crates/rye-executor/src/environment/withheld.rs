//! What is the program's own, and given to no tool.

use crate::redact::is_secret_name;

/// What belongs to the program and never to a tool: keys of model vendors, the vault's.
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

/// What else is never given to a tool, in words.
pub const WITHHELD_PATTERNS: &str = "variables that begin with RYE_ and hold a token, key, secret, \
    password, passphrase or credential; and those that models.yaml names as `api_key_env`";

/// Whether a variable belongs to the program and never to a tool.
pub(super) fn is_withheld(name: &str) -> bool {
    // A limit, and no token.
    let own = name.strip_prefix("RYE_").filter(|own| *own != "MAX_TOKENS");
    WITHHELD_VARIABLES.contains(&name) || own.is_some_and(is_secret_name)
}
