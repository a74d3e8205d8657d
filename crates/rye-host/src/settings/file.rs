//! The configuration file `.ai/config/rye.yaml`.

use std::path::{Path, PathBuf};

use rye_items::{Excerpt, Position, Space};
use rye_model::yaml_error;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

use super::{ChatNotify, ChatTheme, Color, Origin, Setting};

/// Upper bound of `search.limit`.
const MAX_SEARCH_LIMIT: u32 = 200;

/// The content of a file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    /// Only in the user's own file: cached data is trusted.
    cache_dir: Option<Spanned<String>>,
    #[serde(default)]
    chat: Chat,
    color: Option<Spanned<Color>>,
    debug: Option<Spanned<bool>>,
    #[serde(default)]
    search: Search,
    /// Only in the user's own file: decides which signatures in a project are valid.
    signatures: Option<Spanned<Signatures>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chat {
    notify: Option<Spanned<ChatNotify>>,
    theme: Option<Spanned<ChatTheme>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    /// From 1 to 200.
    limit: Option<Spanned<Value>>,
}

/// Which signatures are valid.
#[derive(PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Signatures {
    /// Signatures that are bound to their file.
    Bound,
    /// All signatures.
    Any,
}

/// The settings in one file.
#[derive(Debug, Default)]
pub struct ConfigFile {
    pub(super) cache_dir: Option<Setting<PathBuf>>,
    pub(super) chat_notify: Option<Setting<ChatNotify>>,
    pub(super) chat_theme: Option<Setting<ChatTheme>>,
    pub(super) color: Option<Setting<Color>>,
    pub(super) debug: Option<Setting<bool>>,
    pub(super) search_limit: Option<Setting<u32>>,
    /// Whether signatures must be bound to their file.
    pub(super) bound_signatures: Option<Setting<bool>>,
}

/// An invalid configuration file.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    /// The problem, without its position.
    pub message: String,
    pub path: PathBuf,
    pub excerpt: Option<Excerpt>,
}

impl ConfigFile {
    /// Parses a verified file.
    pub fn parse(
        space: Space,
        path: &Path,
        bytes: &[u8],
        home: Option<&Path>,
    ) -> Result<Self, Box<FileError>> {
        let fail = |message: String, position: Option<Position>| {
            Box::new(FileError {
                message,
                path: path.to_owned(),
                excerpt: position.map(|position| Excerpt::at_position(bytes, position)),
            })
        };
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let position = Position::at_offset(bytes, error.valid_up_to());
            fail("invalid UTF-8".to_owned(), Some(position))
        })?;
        let content: Option<Content> = serde_saphyr::from_str(text).map_err(|error| {
            let message = format!("invalid settings: {}", yaml_error::message(&error));
            fail(message, error.location().map(position))
        })?;
        let content = content.unwrap_or_default();
        let personal = [
            (
                "cache_dir",
                content.cache_dir.as_ref().map(|it| it.referenced),
            ),
            (
                "signatures",
                content.signatures.as_ref().map(|it| it.referenced),
            ),
        ];
        for (name, location) in personal {
            if let Some(location) = location.filter(|_| space != Space::User) {
                let message =
                    format!("`{name}` is only allowed in your own rye.yaml, not in a {space}'s");
                return Err(fail(message, Some(position(location))));
            }
        }
        let invalid = |name: &str, expected: &str, found: &dyn std::fmt::Display, at: Location| {
            let message = format!("invalid `{name}`: expected {expected}, found `{found}`");
            fail(message, Some(position(at)))
        };
        let cache_dir = content.cache_dir.map(|dir| {
            if let Some(value) = expand_dir(&dir.value, home) {
                Ok(setting(path, dir.referenced, value))
            } else {
                let expected = "an absolute path or one that begins with `~/`";
                Err(invalid("cache_dir", expected, &dir.value, dir.referenced))
            }
        });
        let search_limit = content.search.limit.map(|limit| {
            let number = limit.value.as_u64().and_then(|it| u32::try_from(it).ok());
            let number = number.filter(|it| (1..=MAX_SEARCH_LIMIT).contains(it));
            if let Some(value) = number {
                Ok(setting(path, limit.referenced, value))
            } else {
                let expected = "an integer from 1 to 200";
                Err(invalid(
                    "search.limit",
                    expected,
                    &limit.value,
                    limit.referenced,
                ))
            }
        });
        let (color, debug) = (content.color, content.debug);
        let (notify, theme) = (content.chat.notify, content.chat.theme);
        Ok(Self {
            cache_dir: cache_dir.transpose()?,
            chat_notify: notify.map(|it| setting(path, it.referenced, it.value)),
            chat_theme: theme.map(|it| setting(path, it.referenced, it.value)),
            color: color.map(|it| setting(path, it.referenced, it.value)),
            debug: debug.map(|it| setting(path, it.referenced, it.value)),
            search_limit: search_limit.transpose()?,
            bound_signatures: content.signatures.map(|it| {
                let is_bound = it.value == Signatures::Bound;
                setting(path, it.referenced, is_bound)
            }),
        })
    }
}

fn setting<T>(path: &Path, location: Location, value: T) -> Setting<T> {
    let origin = Origin::File {
        path: path.to_owned(),
        line: position(location).line,
    };
    Setting::new(value, origin)
}

fn position(location: Location) -> Position {
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).max(1);
    Position {
        line: number(location.line()),
        column: number(location.column()),
    }
}

fn expand_dir(text: &str, home: Option<&Path>) -> Option<PathBuf> {
    match text.strip_prefix("~/") {
        Some(rest) => Some(home?.join(rest)),
        None => Some(PathBuf::from(text)).filter(|path| path.is_absolute()),
    }
}

#[cfg(test)]
mod tests;
