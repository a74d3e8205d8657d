//! Parser of `.ai/config/rye.yaml`: a mapping of known keys. Everything else is an error with
//! its position.

mod node;

use std::path::{Path, PathBuf};

use rye_items::{Excerpt, Position, Space};

use super::{Color, Origin, Setting};
use node::{Node, Scalar, Value};

/// A setting that a file may contain.
struct Key {
    name: &'static str,
    /// Only allowed in the user's own file.
    personal: bool,
}

const KEYS: [Key; 5] = [
    Key {
        name: "cache_dir",
        // Cached data is trusted, so a project must not choose the cache.
        personal: true,
    },
    Key {
        name: "color",
        personal: false,
    },
    Key {
        name: "debug",
        personal: false,
    },
    Key {
        name: "search.limit",
        personal: false,
    },
    Key {
        name: "signatures",
        // Decides which signatures in a project are valid.
        personal: true,
    },
];

/// Settings that a file cannot set, and where to set them.
const SET_ELSEWHERE: [(&str, &str); 4] = [
    ("dev_mode", "RYE_DEV_MODE=1 in the environment"),
    ("project", "--project or RYE_PROJECT"),
    ("user_space", "USER_SPACE in the environment"),
    ("system_space", "RYE_SYSTEM_SPACE in the environment"),
];

/// Upper bound of `search.limit`.
const MAX_SEARCH_LIMIT: i64 = 200;

/// The settings in one file.
#[derive(Debug, Default)]
pub struct ConfigFile {
    pub(super) cache_dir: Option<Setting<PathBuf>>,
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
        let tree = Node::parse(text).map_err(|(message, position)| fail(message, position))?;
        let mut file = Self::default();
        for entry in flatten(tree).map_err(|(message, position)| fail(message, Some(position)))? {
            let position = entry.position;
            file.apply(space, path, home, entry)
                .map_err(|(message, at)| fail(message, Some(at.unwrap_or(position))))?;
        }
        Ok(file)
    }

    /// Applies one entry. An error without a position is about the key.
    fn apply(
        &mut self,
        space: Space,
        path: &Path,
        home: Option<&Path>,
        entry: Entry,
    ) -> Result<(), (String, Option<Position>)> {
        let Entry {
            name,
            position,
            value,
        } = entry;
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            return Err((unknown_key(&name), None));
        };
        if key.personal && space != Space::User {
            let message =
                format!("`{name}` is only allowed in your own rye.yaml, not in a {space}'s");
            return Err((message, None));
        }
        let origin = Origin::File {
            path: path.to_owned(),
            line: position.line,
        };
        let wrong = |expected: &str| {
            let found = value.value.describe();
            let message = format!("invalid `{name}`: expected {expected}, found {found}");
            (message, Some(value.position))
        };
        match (key.name, &value.value) {
            ("cache_dir", Value::Scalar(Scalar::Text(text))) => {
                let expected = "an absolute path or one that begins with `~/`";
                let dir = expand_dir(text, home).ok_or_else(|| wrong(expected))?;
                self.cache_dir = Some(Setting::new(dir, origin));
            }
            ("cache_dir", _) => return Err(wrong("a path")),
            ("color", Value::Scalar(Scalar::Text(text))) => {
                let color = text.parse().map_err(wrong)?;
                self.color = Some(Setting::new(color, origin));
            }
            ("color", _) => return Err(wrong("auto, always or never")),
            ("debug", Value::Scalar(Scalar::Bool(on))) => {
                self.debug = Some(Setting::new(*on, origin));
            }
            ("debug", _) => return Err(wrong("true or false")),
            ("signatures", Value::Scalar(Scalar::Text(text))) => {
                let bound = match text.as_str() {
                    "bound" => true,
                    "any" => false,
                    _ => return Err(wrong("bound or any")),
                };
                self.bound_signatures = Some(Setting::new(bound, origin));
            }
            ("signatures", _) => return Err(wrong("bound or any")),
            (_, Value::Scalar(Scalar::Integer(number)))
                if (1..=MAX_SEARCH_LIMIT).contains(number) =>
            {
                let number = u32::try_from(*number).unwrap_or(u32::MAX);
                self.search_limit = Some(Setting::new(number, origin));
            }
            _ => return Err(wrong("an integer from 1 to 200")),
        }
        Ok(())
    }
}

/// A value with its full name, such as `search.limit`, and the position of the name.
struct Entry {
    name: String,
    position: Position,
    value: Node,
}

/// Flattens nested keys: `search: {limit: 5}` becomes `search.limit`.
fn flatten(tree: Node) -> Result<Vec<Entry>, (String, Position)> {
    let top = match tree.value {
        Value::Scalar(Scalar::Null) => Vec::new(),
        Value::Map(entries) => entries,
        other => {
            let message = format!("expected a mapping of settings, found {}", other.describe());
            return Err((message, tree.position));
        }
    };
    let mut flat = Vec::new();
    for (key, position, value) in top {
        let is_group = KEYS.iter().any(|known| {
            known
                .name
                .split_once('.')
                .is_some_and(|(group, _)| group == key)
        });
        match value.value {
            Value::Map(entries) if is_group => {
                flat.extend(entries.into_iter().map(|(inner, position, value)| Entry {
                    name: format!("{key}.{inner}"),
                    position,
                    value,
                }));
            }
            other if is_group => {
                let message = format!(
                    "invalid `{key}`: expected a mapping, found {}",
                    other.describe()
                );
                return Err((message, value.position));
            }
            other => flat.push(Entry {
                name: key,
                position,
                value: Node {
                    position: value.position,
                    value: other,
                },
            }),
        }
    }
    Ok(flat)
}

fn unknown_key(name: &str) -> String {
    if let Some((_, how)) = SET_ELSEWHERE.iter().find(|(known, _)| *known == name) {
        return format!("`{name}` cannot be set in a file; use {how}");
    }
    let nearest = KEYS
        .iter()
        .map(|key| (strsim::damerau_levenshtein(key.name, name), key.name))
        .min()
        .filter(|(distance, _)| *distance <= 3);
    match nearest {
        Some((_, nearest)) => format!("unknown setting `{name}`; did you mean `{nearest}`?"),
        None => format!(
            "unknown setting `{name}`; expected one of {}",
            KEYS.map(|key| format!("`{}`", key.name)).join(", ")
        ),
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
