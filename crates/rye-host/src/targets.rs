//! Resolves command-line arguments to items: ids, globs, paths, or all items.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use rye_executor::{ExecuteError, dependency_scopes};
use rye_items::{
    ItemFile, ItemKind, ItemRef, Library, LookupError, PathItem, Scope, Space, SpaceError,
};

use crate::failure::Failure;

/// The items that a command works on, each file once.
#[derive(Default)]
pub(crate) struct Targets<'a> {
    /// The items.
    pub(crate) items: Vec<ItemFile<'a>>,
    /// Files outside all spaces.
    pub(crate) outside: Vec<PathBuf>,
    /// Arguments or listed files that could not be resolved.
    pub(crate) failures: Vec<(String, Failure)>,
}

impl<'a> Targets<'a> {
    /// Resolves arguments. Globs search the spaces that `within` admits.
    pub(crate) fn named(
        library: &'a Library,
        words: &[String],
        within: impl Fn(Space) -> bool,
    ) -> Self {
        let mut targets = Self::default();
        for word in words {
            if let Err(failure) = targets.add(library, word, &within) {
                targets.failures.push((word.clone(), failure));
            }
        }
        targets.deduplicate()
    }

    /// All items that must verify. The user's own configuration needs no signature.
    pub(crate) fn all_signed(library: &'a Library, within: impl Fn(Space) -> bool) -> Self {
        let mut targets = Self::all(library, within);
        targets.items.retain(|found| {
            found.root.space() != Space::User || found.reference.kind != ItemKind::Config
        });
        targets
    }

    /// All items in the spaces that `within` admits, except trust files.
    pub(crate) fn all(library: &'a Library, within: impl Fn(Space) -> bool) -> Self {
        let mut targets = Self::default();
        for kind in ItemKind::ALL {
            targets.list(library, kind, &within, &|found| {
                !found.reference.is_key_file()
            });
        }
        targets
    }

    fn add(
        &mut self,
        library: &'a Library,
        word: &str,
        within: &dyn Fn(Space) -> bool,
    ) -> Result<(), Failure> {
        if is_path(word) {
            return self.add_path(library, Path::new(word));
        }
        if word.contains(['*', '?']) {
            return self.add_glob(library, word, within);
        }
        let reference: ItemRef = match word.parse() {
            Ok(reference) => reference,
            Err(_) if Path::new(word).exists() => return self.add_path(library, Path::new(word)),
            Err(error) => return Err(error.into()),
        };
        match library.find(&reference) {
            Ok(found) => {
                self.items.push(found);
                Ok(())
            }
            Err(LookupError::NotFound { .. }) if Path::new(word).exists() => {
                self.add_path(library, Path::new(word))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn add_path(&mut self, library: &'a Library, path: &Path) -> Result<(), Failure> {
        let (at, errors) = library.items_at_path(path)?;
        for error in errors {
            self.fail(error);
        }
        match at {
            PathItem::Items(items) if path.is_dir() => {
                let items = items.into_iter();
                self.items
                    .extend(items.filter(|found| !found.reference.is_key_file()));
            }
            PathItem::Items(items) => self.items.extend(items),
            PathItem::External(path) => self.outside.push(path),
        }
        Ok(())
    }

    fn add_glob(
        &mut self,
        library: &'a Library,
        word: &str,
        within: &dyn Fn(Space) -> bool,
    ) -> Result<(), Failure> {
        let (kind, pattern) = match word.split_once(':') {
            Some((kind, pattern)) => (kind.parse()?, pattern),
            None => (ItemKind::Tool, word),
        };
        let before = self.items.len();
        let glob = glob(pattern)?;
        self.list(library, kind, within, &|found| {
            !found.reference.is_key_file() && glob.is_match(found.reference.id.as_str())
        });
        if self.items.len() == before {
            let message = format!("no {kind} matches `{pattern}`");
            return Err(Failure::failed("not_found", message));
        }
        Ok(())
    }

    fn list(
        &mut self,
        library: &'a Library,
        kind: ItemKind,
        within: &dyn Fn(Space) -> bool,
        filter: &dyn Fn(&ItemFile<'a>) -> bool,
    ) {
        for listed in library.list_within(kind, within) {
            match listed {
                Ok(found) if filter(&found) => self.items.push(found),
                Ok(_) => {}
                Err(error) => self.fail(error),
            }
        }
    }

    /// Records an unreadable file. It has no id, so its message, which names the path, stands for it.
    fn fail(&mut self, error: SpaceError) {
        let failure = Failure::from(error);
        self.failures.push((failure.message.clone(), failure));
    }

    fn deduplicate(mut self) -> Self {
        let mut seen = HashSet::new();
        self.items.retain(|found| seen.insert(found.path()));
        self.outside.retain(|path| seen.insert(path.clone()));
        self
    }
}

/// The directories from which tools load code, each once, with a tool that loads from it.
pub(crate) fn code_directories<'f, 'a: 'f>(
    library: &Library,
    items: impl IntoIterator<Item = &'f ItemFile<'a>>,
    project: &Path,
    on_error: impl Fn(&ItemFile<'_>, &ExecuteError),
) -> Vec<(&'f ItemFile<'a>, Scope)> {
    let mut directories = Vec::new();
    let mut seen: Vec<(PathBuf, Scope)> = Vec::new();
    let is_tool = |found: &&ItemFile<'_>| {
        found.reference.kind == ItemKind::Tool && found.root.as_dir().is_some()
    };
    for found in items.into_iter().filter(is_tool) {
        let scopes = dependency_scopes(library, found, project);
        for scope in scopes
            .inspect_err(|error| on_error(found, error))
            .unwrap_or_default()
        {
            let key = (found.root.path_to(&scope.dir), scope.clone());
            if !seen.contains(&key) {
                directories.push((found, scope));
                seen.push(key);
            }
        }
    }
    directories
}

/// Whether an argument can only be a path, not an id.
pub(crate) fn is_path(word: &str) -> bool {
    word.starts_with(['/', '.', '~']) || word.contains("/.ai/") || word == ".ai"
}

/// Compiles a glob over ids: `*` and `?` match within a segment, `**` across segments.
fn glob(pattern: &str) -> Result<GlobMatcher, Failure> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    Ok(glob.map_err(Failure::usage)?.compile_matcher())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_within_a_segment_unless_doubled() {
        for (pattern, id, expected) in [
            ("*", "hello", true),
            ("*", "my/hello", false),
            ("**", "my/hello", true),
            ("my/*", "my/hello", true),
            ("my/*", "my/deep/hello", false),
            ("my/**", "my/deep/hello", true),
            ("**/hello", "my/deep/hello", true),
            ("**/hello", "hello", true),
            ("h?llo", "hello", true),
            ("a?b", "a/b", false),
            ("h*o", "hello", true),
            ("h*x", "hello", false),
            ("hello", "hell", false),
        ] {
            let is_match = glob(pattern).unwrap().is_match(id);
            assert_eq!(is_match, expected, "{pattern} {id}");
        }
    }

    #[test]
    fn invalid_glob_is_wrong_usage() {
        assert_eq!(glob("my/[a").unwrap_err().code, "usage");
    }
}
