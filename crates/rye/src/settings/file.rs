//! `.ai/config/rye.yaml`: a mapping of known keys. Whatever else it says is an error
//! with its place.

mod node;

use std::path::{Path, PathBuf};

use rye_items::{Excerpt, Position, Space};

use super::{Color, Origin, Setting};
use node::{Node, Scalar, Value};

/// A setting that a file may hold.
struct Key {
    name: &'static str,
    /// Whether only the user's own file may hold it.
    personal: bool,
}

const KEYS: [Key; 5] = [
    Key {
        name: "cache_dir",
        // What is in the cache is believed, so no project says where it is.
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
        // It says which signatures under a project's files count.
        personal: true,
    },
];

/// Settings that are real, and not a file's to set.
const ELSEWHERE: [(&str, &str); 4] = [
    ("dev_mode", "RYE_DEV_MODE=1 in the environment"),
    ("project", "--project or RYE_PROJECT"),
    ("user_space", "USER_SPACE in the environment"),
    ("system_space", "RYE_SYSTEM_SPACE in the environment"),
];

/// The most hits that a search may be asked for.
const MOST_HITS: i64 = 200;

/// The values of one file.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    pub(super) cache_dir: Option<Setting<PathBuf>>,
    pub(super) color: Option<Setting<Color>>,
    pub(super) debug: Option<Setting<bool>>,
    pub(super) search_limit: Option<Setting<u32>>,
    /// Whether signatures must be bound to the file they are under.
    pub(super) bound_signatures: Option<Setting<bool>>,
}

/// A file that says something nobody knows.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct FileError {
    /// What is wrong, as a fragment.
    pub(crate) what: String,
    pub(crate) path: PathBuf,
    pub(crate) excerpt: Option<Excerpt>,
}

impl ConfigFile {
    /// Reads the bytes of a file that counts.
    pub(crate) fn parse(
        space: Space,
        path: &Path,
        bytes: &[u8],
        home: Option<&Path>,
    ) -> Result<Self, Box<FileError>> {
        let fail = |what: String, position: Option<Position>| {
            Box::new(FileError {
                what,
                path: path.to_owned(),
                excerpt: position.map(|position| Excerpt::at_position(bytes, position)),
            })
        };
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let position = Position::at_offset(bytes, error.valid_up_to());
            fail("the file is not UTF-8".to_owned(), Some(position))
        })?;
        let tree = Node::parse(text).map_err(|(what, position)| fail(what, position))?;
        let mut file = Self::default();
        for entry in flatten(tree).map_err(|(what, position)| fail(what, Some(position)))? {
            let position = entry.position;
            file.take(space, path, home, entry)
                .map_err(|(what, at)| fail(what, Some(at.unwrap_or(position))))?;
        }
        Ok(file)
    }

    /// Takes one value over. A complaint without a place is about the key.
    fn take(
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
            return Err((unknown(&name), None));
        };
        if key.personal && space != Space::User {
            let what = format!("`{name}` is for the user's own rye.yaml, not for a {space}'s");
            return Err((what, None));
        }
        let origin = Origin::File {
            path: path.to_owned(),
            line: position.line,
        };
        let wrong = |expected: &str| {
            let found = value.value.describe();
            let what = format!("`{name}` must be {expected}, not {found}");
            (what, Some(value.position))
        };
        match (key.name, &value.value) {
            ("cache_dir", Value::Scalar(Scalar::Text(text))) => {
                let expected = "an absolute path or one that begins with `~/`";
                let folder = folder(text, home).ok_or_else(|| wrong(expected))?;
                self.cache_dir = Some(Setting::new(folder, origin));
            }
            ("cache_dir", _) => return Err(wrong("a path")),
            ("color", Value::Scalar(Scalar::Text(text))) => {
                let color = text.parse().map_err(wrong)?;
                self.color = Some(Setting::new(color, origin));
            }
            ("color", _) => return Err(wrong("one of auto, always, never")),
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
            (_, Value::Scalar(Scalar::Integer(number))) if (1..=MOST_HITS).contains(number) => {
                let number = u32::try_from(*number).unwrap_or(u32::MAX);
                self.search_limit = Some(Setting::new(number, origin));
            }
            _ => return Err(wrong("a whole number from 1 to 200")),
        }
        Ok(())
    }
}

/// A value with its whole name, `search.limit`, and the place of the name.
struct Entry {
    name: String,
    position: Position,
    value: Node,
}

/// All values of a file. Below a key that only groups others, their names follow its own.
fn flatten(tree: Node) -> Result<Vec<Entry>, (String, Position)> {
    let top = match tree.value {
        Value::Scalar(Scalar::Null) => Vec::new(),
        Value::Map(entries) => entries,
        other => {
            let what = format!(
                "the file must be a mapping of settings, not {}",
                other.describe()
            );
            return Err((what, tree.position));
        }
    };
    let mut flat = Vec::new();
    for (key, position, value) in top {
        let groups = KEYS.iter().any(|known| {
            known
                .name
                .split_once('.')
                .is_some_and(|(group, _)| group == key)
        });
        match value.value {
            Value::Map(entries) if groups => {
                flat.extend(entries.into_iter().map(|(inner, position, value)| Entry {
                    name: format!("{key}.{inner}"),
                    position,
                    value,
                }));
            }
            other if groups => {
                let what = format!("`{key}` must be a mapping, not {}", other.describe());
                return Err((what, value.position));
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

fn unknown(name: &str) -> String {
    if let Some((_, how)) = ELSEWHERE.iter().find(|(known, _)| *known == name) {
        return format!("`{name}` is not for a file to set, but for {how}");
    }
    let nearest = KEYS
        .iter()
        .map(|key| (strsim::damerau_levenshtein(key.name, name), key.name))
        .min()
        .filter(|(distance, _)| *distance <= 3);
    match nearest {
        Some((_, nearest)) => format!("there is no setting `{name}`; did you mean `{nearest}`?"),
        None => format!(
            "there is no setting `{name}`; there are {}",
            KEYS.map(|key| format!("`{}`", key.name)).join(", ")
        ),
    }
}

fn folder(text: &str, home: Option<&Path>) -> Option<PathBuf> {
    match text.strip_prefix("~/") {
        Some(rest) => Some(home?.join(rest)),
        None => Some(PathBuf::from(text)).filter(|path| path.is_absolute()),
    }
}

#[cfg(test)]
mod tests;
