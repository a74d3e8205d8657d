//! The connection data of a provider, and the secrets in it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use rye_engine::redact::Redactor;
use zeroize::Zeroizing;

use crate::api::Api;

/// Headers whose values are not secret; all others are redacted.
const PUBLIC_HEADERS: [&str; 11] = [
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "http-referer",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "referer",
    "user-agent",
    "x-title",
];

/// An API key.
#[derive(Clone)]
pub enum Key {
    /// The provider needs no key.
    None,
    /// A key is available.
    Given {
        /// Value of the key.
        secret: Arc<Zeroizing<String>>,
        /// Where it comes from, for error messages.
        source: String,
    },
    /// A key is needed but not set.
    Missing {
        /// Name of the secret that would contain it.
        secret: String,
        /// What to do.
        hint: String,
    },
    /// The vault secret with the key cannot be read; says why.
    Unreadable(String),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Given { source, .. } => write!(f, "Given({source})"),
            Self::Missing { secret, .. } => write!(f, "Missing({secret})"),
            Self::Unreadable(message) => write!(f, "Unreadable({message})"),
        }
    }
}

/// The connection data of a provider.
#[derive(Clone)]
pub struct Provider {
    /// Protocol of the provider.
    pub api: Api,
    /// The base URL. User name and password in it are sent as basic authentication and
    /// never displayed.
    pub base_url: String,
    /// The API key.
    pub key: Key,
    /// Additional headers of every request.
    pub headers: Vec<(String, String)>,
    /// Timeout without data.
    pub idle_timeout: Duration,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Provider")
            .field("api", &self.api)
            .field("address", &self.address())
            .field("key", &self.key)
            .field("headers", &names)
            .field("idle_timeout", &self.idle_timeout)
            .finish_non_exhaustive()
    }
}

impl Provider {
    /// The base URL without secrets, for display.
    pub(crate) fn address(&self) -> String {
        let (before, after) = split_user_info(&self.base_url);
        let shown = after.split(['?', '#']).next().unwrap_or_default();
        format!("{before}{}", shown.trim_end_matches('/'))
    }

    /// The URL of an endpoint.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base_url.trim_end_matches('/'))
    }

    /// Secrets that a server might echo, to be redacted from its messages.
    pub(crate) fn redactor(&self) -> Redactor {
        let redactor = Redactor::default();
        if let Key::Given { secret, .. } = &self.key {
            redactor.add(secret.trim());
        }
        for (_, value) in self.secret_headers() {
            redactor.add(value);
            // The scheme, such as `Bearer`, is not secret.
            if let Some((scheme, secret)) = value.split_once(' ')
                && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
            {
                redactor.add(secret.trim());
            }
        }
        if let Some(user_info) = self.user_info() {
            redactor.add(user_info);
            // Without a password, the user name is the secret.
            let secret = user_info
                .split_once(':')
                .map_or(user_info, |(_, password)| password);
            redactor.add(secret);
            redactor.add(&percent_decode_str(secret).decode_utf8_lossy());
        }
        redactor
    }

    /// What to check if the server rejects the credentials.
    pub(crate) fn auth_hint(&self) -> String {
        let header_names = self.secret_headers().map(|(name, _)| format!("`{name}`"));
        let header_names: Vec<_> = header_names.collect();
        let (what, source) = match &self.key {
            Key::Missing { hint: message, .. } | Key::Unreadable(message) => {
                return message.clone();
            }
            Key::Given { source, .. } => ("the key is", source.clone()),
            Key::None if !header_names.is_empty() => {
                let all = header_names.join(", ");
                (
                    "the credentials are",
                    format!("`headers` in models.yaml, {all}"),
                )
            }
            Key::None if self.user_info().is_some() => (
                "the credentials are",
                "`base_url` in models.yaml".to_owned(),
            ),
            Key::None => {
                return "no key was sent: name one in models.yaml with `api_key_env`".to_owned();
            }
        };
        format!("{what} from {source}: check that it is correct and still valid")
    }

    fn secret_headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.headers.iter().map(|(name, value)| (&**name, &**value));
        all.filter(|(name, _)| !PUBLIC_HEADERS.contains(&&*name.to_ascii_lowercase()))
    }

    /// User name and password in the base URL.
    fn user_info(&self) -> Option<&str> {
        let (before, after) = split_user_info(&self.base_url);
        let whole = self.base_url.len();
        let user_info = self.base_url.get(before.len()..whole - after.len())?;
        user_info
            .strip_suffix('@')
            .filter(|user_info| !user_info.is_empty())
    }
}

/// Splits a URL into scheme and the part from the host on, dropping the user info.
fn split_user_info(url: &str) -> (&str, &str) {
    let start = url.find("://").map_or(0, |at| at + 3);
    let (before, rest) = url.split_at(start);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rfind('@').map_or(0, |at| at + 1);
    (before, &rest[host..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(base_url: &str, headers: &[(&str, &str)]) -> Provider {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Provider {
            api: Api::OpenAiChat,
            base_url: base_url.to_owned(),
            key: Key::None,
            headers: headers.iter().map(owned).collect(),
            idle_timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn displayed_address_contains_no_credentials() {
        for (url, shown) in [
            ("http://ada:p%40ss@host:80/v1/", "http://host:80/v1"),
            ("https://host/v1", "https://host/v1"),
            ("https://token@host", "https://host"),
            ("https://a@b:c@host/x@y?key=z#w", "https://host/x@y"),
            ("https://host/v1?key=secret", "https://host/v1"),
        ] {
            assert_eq!(provider(url, &[]).address(), shown, "{url}");
            let shown_text = format!("{:?}", provider(url, &[("x-key", "a-secret")]));
            assert!(
                shown_text.contains(shown) && !shown_text.contains("secret"),
                "{shown_text}"
            );
        }
    }

    #[test]
    fn all_credentials_are_redacted() {
        let headers = [
            ("Authorization", "Bearer tok-12345"),
            ("X-Thing", "some-value"),
            ("anthropic-beta", "thing-2025"),
        ];
        let redactor = provider("http://ada:p%40ss-word@host", &headers).redactor();
        assert_eq!(
            redactor.redact("tok-12345 some-value thing-2025 p@ss-word p%40ss-word ada"),
            "[redacted] [redacted] thing-2025 [redacted] [redacted] ada"
        );
        let redactor = provider("http://gh-token@host", &[]).redactor();
        assert_eq!(redactor.redact("gh-token"), "[redacted]");
    }
}
