//! Which files of a tree are meant.

use std::time::Duration;

use globset::{GlobBuilder, GlobMatcher};
use rye_protocol::{ErrorCode, ErrorInfo};

use super::read;
use crate::sandbox::{Sandbox, WalkOptions, WalkResult};
use crate::tool::ToolError;

/// The most files that are looked at.
pub(super) const MOST: usize = 500_000;

/// A pattern of paths. One without `/` is for names, at any depth.
#[derive(Debug)]
pub(super) struct Pattern {
    glob: GlobMatcher,
    is_exception: bool,
    /// Whether it names something hidden.
    pub(super) hidden: bool,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Result<Self, ToolError> {
        let (text, is_exception) = match text.strip_prefix('!') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let anywhere = if text.contains('/') { "" } else { "**/" };
        let text = text.strip_prefix("./").unwrap_or(text);
        let glob = GlobBuilder::new(&format!("{anywhere}{text}"))
            .literal_separator(true)
            .build()
            .map_err(|error| wrong(&error))?;
        let is_hidden = |name: &str| name.starts_with('.') && !matches!(name, "." | "..");
        Ok(Self {
            glob: glob.compile_matcher(),
            is_exception,
            hidden: !is_exception && text.split('/').any(is_hidden),
        })
    }

    /// Whether a path fits that is relative to where the search began.
    pub(super) fn fits(&self, path: &str) -> bool {
        self.glob.is_match(path) != self.is_exception
    }
}

/// An argument that cannot be used.
pub(super) fn wrong(why: &dyn std::fmt::Display) -> ToolError {
    ToolError(ErrorInfo::new(ErrorCode::InvalidArguments, why.to_string()))
}

/// The folders at the start of a pattern that are named in full, and the rest of it.
pub(super) fn split(pattern: &str) -> (&str, &str) {
    let special = pattern.find(['*', '?', '[', '{', '\\']);
    let plain = &pattern[..special.unwrap_or(pattern.len())];
    match plain.rfind('/') {
        Some(0) => ("/", &pattern[1..]),
        Some(end) => (&pattern[..end], &pattern[end + 1..]),
        None => ("", pattern),
    }
}

/// A path below a folder.
pub(super) fn join(folder: &str, path: &str) -> String {
    match (folder, path) {
        ("", path) => path.to_owned(),
        (folder, "") => folder.to_owned(),
        _ if path.starts_with('/') => path.to_owned(),
        (folder, path) => format!("{}/{path}", folder.trim_end_matches('/')),
    }
}

/// What of a path is below another.
pub(super) fn below<'a>(path: &'a str, top: &str) -> &'a str {
    let rest = path.strip_prefix(top.trim_end_matches('/')).unwrap_or(path);
    rest.trim_start_matches('/')
}

/// The path of a folder, as the files in it name it.
pub(super) fn plain(path: &str) -> String {
    let names = path.split('/').filter(|name| !matches!(*name, "" | "."));
    let start = if path.starts_with('/') { "/" } else { "" };
    format!("{start}{}", names.collect::<Vec<_>>().join("/"))
}

/// All files of a tree.
pub(super) async fn walk(
    sandbox: &dyn Sandbox,
    path: &str,
    hidden: bool,
    ignored: bool,
    time: Duration,
) -> Result<WalkResult, ToolError> {
    let walk = WalkOptions {
        path: path.to_owned(),
        hidden,
        ignored,
        max_files: MOST,
        time_limit: time,
    };
    match sandbox.walk(&walk).await {
        Ok(walked) => Ok(walked),
        Err(error) => Err(read::explain(sandbox, path, error).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_what_they_should() {
        for (pattern, path, fits) in [
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
            let fitting = Pattern::new(pattern).unwrap().fits(path);
            assert_eq!(fitting, fits, "{pattern} {path}");
        }
        let error = Pattern::new("a[").unwrap_err().to_string();
        assert!(error.contains("a["), "{error}");
        assert!(Pattern::new(".github/**").unwrap().hidden);
        assert!(!Pattern::new("../*.rs").unwrap().hidden);
    }

    #[test]
    fn a_pattern_begins_with_folders() {
        for (pattern, folder, rest) in [
            ("*.rs", "", "*.rs"),
            ("src/**/*.rs", "src", "**/*.rs"),
            ("a/b/c.rs", "a/b", "c.rs"),
            ("/*.rs", "/", "*.rs"),
            ("/users/x*/y", "/users", "x*/y"),
            ("a/{b,c}/d", "a", "{b,c}/d"),
        ] {
            assert_eq!(split(pattern), (folder, rest));
        }
        assert_eq!(below("src/a/b", "src"), "a/b");
        assert_eq!(below("a/b", ""), "a/b");
        assert_eq!(plain("./a//b/"), "a/b");
    }
}
