//! Who is asked, and what of that nobody is to see.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rye_engine::mask::Masks;
use zeroize::Zeroizing;

use crate::api::Api;

/// Headers whose values are no secrets; of all others nobody knows.
const OPEN: [&str; 11] = [
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

/// Where a key is from.
#[derive(Clone)]
pub enum Key {
    /// None is sent.
    None,
    /// There it is.
    Given {
        /// The key.
        secret: Arc<Zeroizing<String>>,
        /// Where it was found, for whoever must put it right.
        found: String,
    },
    /// There should be one: what to do, as a sentence.
    Missing(String),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Given { found, .. } => write!(f, "Given({found})"),
            Self::Missing(what) => write!(f, "Missing({what})"),
        }
    }
}

/// Who is asked.
#[derive(Clone)]
pub struct Provider {
    /// How it is spoken to.
    pub api: Api,
    /// Its address, to which the API's own path is added. A name and a password in it are
    /// sent as such, and never shown.
    pub base_url: String,
    /// What it lets us in for.
    pub key: Key,
    /// Headers of its own.
    pub headers: Vec<(String, String)>,
    /// How long it may say nothing.
    pub silence: Duration,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Provider")
            .field("api", &self.api)
            .field("address", &self.address())
            .field("key", &self.key)
            .field("headers", &names)
            .field("silence", &self.silence)
            .finish_non_exhaustive()
    }
}

impl Provider {
    /// Its address as it may be shown.
    pub(crate) fn address(&self) -> String {
        let (before, after) = split(&self.base_url);
        let shown = after.split(['?', '#']).next().unwrap_or_default();
        format!("{before}{}", shown.trim_end_matches('/'))
    }

    /// Where a request goes to.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base_url.trim_end_matches('/'))
    }

    /// What a server may repeat, and nobody is to see.
    pub(crate) fn masks(&self) -> Masks {
        let masks = Masks::default();
        if let Key::Given { secret, .. } = &self.key {
            masks.add(secret.trim());
        }
        for (_, value) in self.secret_headers() {
            masks.add(value);
            // The scheme before it is none: `Bearer`, for one.
            if let Some((scheme, secret)) = value.split_once(' ')
                && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
            {
                masks.add(secret.trim());
            }
        }
        if let Some(own) = self.user_info() {
            masks.add(own);
            // Where there is no password, the name is the secret.
            let secret = own.split_once(':').map_or(own, |(_, password)| password);
            masks.add(secret);
            masks.add(&decoded(secret));
        }
        masks
    }

    /// What the one who is not let in has to look at.
    pub(crate) fn how_to_be_let_in(&self) -> String {
        let of_headers = self.secret_headers().map(|(name, _)| format!("`{name}`"));
        let of_headers: Vec<_> = of_headers.collect();
        let (what, found) = match &self.key {
            Key::Missing(what) => return what.clone(),
            Key::Given { found, .. } => ("the key is", found.clone()),
            Key::None if !of_headers.is_empty() => {
                let all = of_headers.join(", ");
                (
                    "what was sent is",
                    format!("`headers` in models.yaml, {all}"),
                )
            }
            Key::None if self.user_info().is_some() => {
                ("what was sent is", "`base_url` in models.yaml".to_owned())
            }
            Key::None => {
                return "no key was sent: name one in models.yaml with `api_key_env`".to_owned();
            }
        };
        format!("{what} from {found}: see that it is right and still valid")
    }

    fn secret_headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.headers.iter().map(|(name, value)| (&**name, &**value));
        all.filter(|(name, _)| !OPEN.contains(&&*name.to_ascii_lowercase()))
    }

    /// The name and the password in the address.
    fn user_info(&self) -> Option<&str> {
        let (before, after) = split(&self.base_url);
        let whole = self.base_url.len();
        let own = self.base_url.get(before.len()..whole - after.len())?;
        own.strip_suffix('@').filter(|own| !own.is_empty())
    }
}

/// An address up to its host without who asks, and from its host on.
fn split(url: &str) -> (&str, &str) {
    let start = url.find("://").map_or(0, |at| at + 3);
    let (before, rest) = url.split_at(start);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rfind('@').map_or(0, |at| at + 1);
    (before, &rest[host..])
}

/// What was encoded for an address, as it was.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let code = after
            .get(..2)
            .and_then(|it| u8::from_str_radix(it, 16).ok());
        bytes.push(code.unwrap_or(b'%'));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(base_url: &str, headers: &[(&str, &str)]) -> Provider {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Provider {
            api: Api::OpenAiChat,
            base_url: base_url.to_owned(),
            key: Key::None,
            headers: headers.iter().map(own).collect(),
            silence: Duration::from_secs(1),
        }
    }

    #[test]
    fn an_address_is_shown_without_who_asks() {
        for (url, shown) in [
            ("http://ada:p%40ss@host:80/v1/", "http://host:80/v1"),
            ("https://host/v1", "https://host/v1"),
            ("https://token@host", "https://host"),
            ("https://a@b:c@host/x@y?key=z#w", "https://host/x@y"),
            ("https://host/v1?key=secret", "https://host/v1"),
        ] {
            assert_eq!(provider(url, &[]).address(), shown, "{url}");
            let told = format!("{:?}", provider(url, &[("x-key", "a-secret")]));
            assert!(told.contains(shown) && !told.contains("secret"), "{told}");
        }
    }

    #[test]
    fn whatever_it_is_let_in_for_is_masked() {
        let headers = [
            ("Authorization", "Bearer tok-12345"),
            ("X-Thing", "some-value"),
            ("anthropic-beta", "thing-2025"),
        ];
        let masks = provider("http://ada:p%40ss-word@host", &headers).masks();
        assert_eq!(
            masks.mask("tok-12345 some-value thing-2025 p@ss-word p%40ss-word ada"),
            "[masked] [masked] thing-2025 [masked] [masked] ada"
        );
        let masks = provider("http://gh-token@host", &[]).masks();
        assert_eq!(masks.mask("gh-token"), "[masked]");
    }
}
