//! What is the program's own, and given to no tool.

use crate::mask::looks_secret;

/// What belongs to the program and never to a tool: keys of model vendors, the vault's.
pub const OWN_SECRETS: [&str; 9] = [
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
pub const WITHHELD_TOO: &str = "variables that begin with RYE_ and hold a token, key, secret, \
    password, passphrase or credential; and those that models.yaml names as `api_key_env`";

/// Whether a variable belongs to the program and never to a tool.
pub(super) fn is_own_secret(name: &str) -> bool {
    // A limit, and no token.
    let own = name.strip_prefix("RYE_").filter(|own| *own != "MAX_TOKENS");
    OWN_SECRETS.contains(&name) || own.is_some_and(looks_secret)
}
