//! Path patterns and directory walks for `glob` and `grep`.

use std::time::Duration;

use globset::{GlobBuilder, GlobMatcher};
use rye_protocol::{ErrorCode, ErrorInfo};

use super::read;
use rye_engine::sandbox::{Sandbox, WalkOptions, WalkResult};
use rye_engine::tool::ToolError;

/// Maximum number of files to walk.
pub(super) const MAX_FILES: usize = 500_000;

/// A path pattern. Without a `/`, it matches names at any depth.
#[derive(Debug)]
pub(super) struct Pattern {
    glob: GlobMatcher,
    is_negated: bool,
    /// The pattern names a hidden file or directory.
    pub(super) hidden: bool,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Result<Self, ToolError> {
        let (text, is_negated) = match text.strip_prefix('!') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let any_depth = if text.contains('/') { "" } else { "**/" };
        let text = text.strip_prefix("./").unwrap_or(text);
        let glob = GlobBuilder::new(&format!("{any_depth}{text}"))
            .literal_separator(true)
            .build()
            .map_err(|error| invalid_argument(&error))?;
        let is_hidden = |name: &str| name.starts_with('.') && !matches!(name, "." | "..");
        Ok(Self {
            glob: glob.compile_matcher(),
            is_negated,
            hidden: !is_negated && text.split('/').any(is_hidden),
        })
    }

    /// Whether the pattern excludes files.
    pub(super) fn is_negated(&self) -> bool {
        self.is_negated
    }

    /// Whether a path, relative to the root of the search, matches.
    pub(super) fn matches(&self, path: &str) -> bool {
        self.glob.is_match(path) != self.is_negated
    }
}

/// Error for an invalid argument.
pub(super) fn invalid_argument(why: &dyn std::fmt::Display) -> ToolError {
    ToolError(ErrorInfo::new(ErrorCode::InvalidArguments, why.to_string()))
}

/// Splits a pattern into its literal leading directories and the rest.
pub(super) fn split(pattern: &str) -> (&str, &str) {
    let special = pattern.find(['*', '?', '[', '{', '\\']);
    let literal = &pattern[..special.unwrap_or(pattern.len())];
    match literal.rfind('/') {
        Some(0) => ("/", &pattern[1..]),
        Some(end) => (&pattern[..end], &pattern[end + 1..]),
        None => ("", pattern),
    }
}

/// Joins a directory and a path; an absolute path replaces the directory.
pub(super) fn join(dir: &str, path: &str) -> String {
    match (dir, path) {
        ("", path) => path.to_owned(),
        (dir, "") => dir.to_owned(),
        _ if path.starts_with('/') => path.to_owned(),
        (dir, path) => format!("{}/{path}", dir.trim_end_matches('/')),
    }
}

/// The part of a path below `root`.
pub(super) fn relative_to<'a>(path: &'a str, root: &str) -> &'a str {
    let rest = path
        .strip_prefix(root.trim_end_matches('/'))
        .unwrap_or(path);
    rest.trim_start_matches('/')
}

/// Removes empty and `.` components from a path.
pub(super) fn normalize(path: &str) -> String {
    let names = path.split('/').filter(|name| !matches!(*name, "" | "."));
    let start = if path.starts_with('/') { "/" } else { "" };
    format!("{start}{}", names.collect::<Vec<_>>().join("/"))
}

/// Lists all files of a directory tree.
pub(super) async fn walk(
    sandbox: &dyn Sandbox,
    path: &str,
    hidden: bool,
    ignored: bool,
    timeout: Duration,
) -> Result<WalkResult, ToolError> {
    let walk = WalkOptions {
        path: path.to_owned(),
        hidden,
        ignored,
        max_files: MAX_FILES,
        time_limit: timeout,
    };
    match sandbox.walk(&walk).await {
        Ok(walked) => Ok(walked),
        Err(error) => Err(read::not_found_error(sandbox, path, error).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_paths() {
        for (pattern, path, expected) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/deep/a.rs", true),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/deep/a.rs", false),
            ("src/**/*.rs", "src/a.rs", true),
            ("src/**/*.rs", "src/deep/er/a.rs", true),
            ("./src/*.rs", "src/a.rs", true),
            ("./*.rs", "src/a.rs", false),
            ("**/*.{ts,tsx}", "web/a.tsx", true),
            ("a?[xy].txt", "abx.txt", true),
            ("a?[xy].txt", "a/x.txt", false),
            ("!*.min.js", "a.min.js", false),
            ("!*.min.js", "a.js", true),
        ] {
            let actual = Pattern::new(pattern).unwrap().matches(path);
            assert_eq!(actual, expected, "{pattern} {path}");
        }
        let error = Pattern::new("a[").unwrap_err().to_string();
        assert!(error.contains("a["), "{error}");
        assert!(Pattern::new(".github/**").unwrap().hidden);
        assert!(!Pattern::new("../*.rs").unwrap().hidden);
    }

    #[test]
    fn pattern_is_split_after_literal_directories() {
        for (pattern, dir, rest) in [
            ("*.rs", "", "*.rs"),
            ("src/**/*.rs", "src", "**/*.rs"),
            ("a/b/c.rs", "a/b", "c.rs"),
            ("/*.rs", "/", "*.rs"),
            ("/users/x*/y", "/users", "x*/y"),
            ("a/{b,c}/d", "a", "{b,c}/d"),
        ] {
            assert_eq!(split(pattern), (dir, rest));
        }
        assert_eq!(relative_to("src/a/b", "src"), "a/b");
        assert_eq!(relative_to("a/b", ""), "a/b");
        assert_eq!(normalize("./a//b/"), "a/b");
    }
}
