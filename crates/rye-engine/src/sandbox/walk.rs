//! Default implementations of tree walking and batch reading on top of single operations.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::{FileInfo, Sandbox, SandboxError, WalkOptions, WalkResult};

/// Yield to other tasks after this many directories.
const YIELD_INTERVAL: usize = 64;

/// Ignore files; `.ignore` overrides `.gitignore`.
const IGNORE_FILES: [&str; 2] = [".ignore", ".gitignore"];

pub(super) async fn read_many<S: Sandbox + ?Sized>(
    sandbox: &S,
    paths: &[String],
    longest: u64,
) -> Vec<Result<Vec<u8>, SandboxError>> {
    let mut all = Vec::with_capacity(paths.len());
    for path in paths {
        let bytes = sandbox.read(path).await;
        let fits = |bytes: Vec<u8>| {
            if bytes.len() as u64 <= longest {
                return Ok(bytes);
            }
            let reason = format!("too large to read at once: {} bytes", bytes.len());
            let path = path.clone();
            Err(SandboxError::Unusable { path, reason })
        };
        all.push(bytes.and_then(fits));
    }
    all
}

pub(super) async fn walk<S: Sandbox + ?Sized>(
    sandbox: &S,
    walk: &WalkOptions,
) -> Result<WalkResult, SandboxError> {
    let until = Instant::now() + walk.time_limit;
    let top = sandbox.stat(&walk.path).await?;
    if !top.is_dir {
        return Ok(WalkResult {
            files: vec![top],
            is_complete: true,
            ..WalkResult::default()
        });
    }
    let mut rules = IgnoreRules::default();
    if !walk.ignored {
        for parent in parents(&top.path) {
            rules = rules
                .with(sandbox, parent, &sandbox.list(parent).await?)
                .await;
        }
    }
    let mut found = WalkResult {
        is_complete: true,
        ..WalkResult::default()
    };
    let mut open = vec![(top.path, rules)];
    let mut dirs = 0;
    while let Some((dir, rules)) = open.pop() {
        dirs += 1;
        if dirs % YIELD_INTERVAL == 0 {
            tokio::task::yield_now().await;
        }
        if Instant::now() >= until {
            found.is_complete = false;
            break;
        }
        // A directory that was removed meanwhile or is unreadable is skipped.
        let Ok(files) = sandbox.list(&dir).await else {
            continue;
        };
        let rules = if walk.ignored {
            rules
        } else {
            rules.with(sandbox, &dir, &files).await
        };
        for file in files {
            if !rules.selects(&file, walk.hidden) {
                continue;
            }
            if file.is_dir {
                found.directories.push(file.path.clone());
                open.push((file.path, rules.clone()));
            } else if found.files.len() < walk.max_files {
                found.files.push(file);
            } else {
                found.is_complete = false;
                open.clear();
                break;
            }
        }
    }
    found.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The directories above a path, outermost first.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(end, _)| &path[..end]);
    let top = (!path.is_empty()).then_some("");
    top.into_iter().chain(ends.filter(|dir| !dir.is_empty()))
}

/// Parsed ignore files, by kind, outermost first.
#[derive(Clone, Default)]
struct IgnoreRules([Vec<Arc<Gitignore>>; 2]);

impl IgnoreRules {
    /// Adds the ignore files of a directory whose content is known.
    async fn with<S: Sandbox + ?Sized>(
        mut self,
        sandbox: &S,
        dir: &str,
        files: &[FileInfo],
    ) -> Self {
        for (kind, rules) in IGNORE_FILES.into_iter().zip(&mut self.0) {
            let is_ignore_file = |file: &&FileInfo| !file.is_dir && name(&file.path) == kind;
            let Some(file) = files.iter().find(is_ignore_file) else {
                continue;
            };
            if let Ok(bytes) = sandbox.read(&file.path).await {
                rules.extend(parse(dir, &bytes));
            }
        }
        self
    }

    /// Whether a file is selected.
    fn selects(&self, file: &FileInfo, hidden: bool) -> bool {
        let name = name(&file.path);
        if name == ".git" {
            return false;
        }
        let verdict = |rules: &Vec<Arc<Gitignore>>| {
            let inner_first = rules.iter().rev();
            let mut matches = inner_first.map(|rules| rules.matched(&file.path, file.is_dir));
            matches
                .find(|found| !found.is_none())
                .map(|found| found.is_ignore())
        };
        match self.0.iter().find_map(verdict) {
            Some(ignored) => !ignored,
            None => hidden || !name.starts_with('.'),
        }
    }
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Parses an ignore file; invalid lines are skipped.
fn parse(dir: &str, bytes: &[u8]) -> Option<Arc<Gitignore>> {
    let mut builder = GitignoreBuilder::new(Path::new(dir));
    let text = String::from_utf8_lossy(bytes);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_files_and_later_lines_take_precedence() {
        let rules = |texts: [(&str, &str, &str); 2]| {
            let mut rules = IgnoreRules::default();
            for (kind, dir, text) in texts {
                let index = usize::from(kind == ".gitignore");
                rules.0[index].extend(parse(dir, text.as_bytes()));
            }
            rules
        };
        let file = |path: &str| FileInfo {
            path: path.to_owned(),
            is_dir: path.ends_with('/'),
            ..FileInfo::default()
        };
        let git = rules([
            (".gitignore", "", "*.log\n/top\nout/\n"),
            (".gitignore", "a", "!b.log\n"),
        ]);
        for (path, allowed) in [
            ("x.log", false),
            ("a/x.log", false),
            ("a/b.log", true),
            ("top", false),
            ("a/top", true),
            ("a/.env", false),
            (".git", false),
            ("out", true),
        ] {
            assert_eq!(git.selects(&file(path), false), allowed, "{path}");
        }
        let mixed = rules([(".gitignore", "a", "!x\n!.y\n"), (".ignore", "", "x\n")]);
        assert!(
            !mixed.selects(&file("a/x"), false),
            "`.ignore` overrides `.gitignore`"
        );
        assert!(
            mixed.selects(&file("a/.y"), false),
            "an explicitly included file is not hidden"
        );
    }

    #[test]
    fn parent_directories_start_with_the_workspace() {
        for (path, dirs) in [
            ("", &[][..]),
            ("a", &[""]),
            ("a/b/c", &["", "a", "a/b"]),
            ("/a/b", &["", "/a"]),
        ] {
            assert_eq!(parents(path).collect::<Vec<_>>(), dirs);
        }
    }
}
