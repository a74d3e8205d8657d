//! A tree of files, walked by listing its folders: right for every sandbox, and quick
//! enough for those that keep their files at hand.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::{FileInfo, Sandbox, SandboxError, WalkOptions, WalkResult};

/// After how many folders others get their turn.
const BREATH: usize = 64;

/// Files that say what to leave out. What the first says holds against the second.
const IGNORE: [&str; 2] = [".ignore", ".gitignore"];

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
            let reason = format!("it is too long to be read at once: {} bytes", bytes.len());
            let path = path.clone();
            Err(SandboxError::Unusable { path, reason })
        };
        all.push(bytes.and_then(fits));
    }
    all
}

pub(super) async fn over<S: Sandbox + ?Sized>(
    sandbox: &S,
    walk: &WalkOptions,
) -> Result<WalkResult, SandboxError> {
    let until = Instant::now() + walk.time_limit;
    let top = sandbox.stat(&walk.path).await?;
    if !top.is_dir {
        let (files, is_complete) = (vec![top], true);
        return Ok(WalkResult { files, is_complete });
    }
    let mut rules = Rules::default();
    if !walk.ignored {
        for above in above(&top.path) {
            rules = rules
                .with(sandbox, above, &sandbox.list(above).await?)
                .await;
        }
    }
    let mut found = WalkResult {
        is_complete: true,
        ..WalkResult::default()
    };
    let mut open = vec![(top.path, rules)];
    let mut folders = 0;
    while let Some((folder, rules)) = open.pop() {
        folders += 1;
        if folders % BREATH == 0 {
            tokio::task::yield_now().await;
        }
        if Instant::now() >= until {
            found.is_complete = false;
            break;
        }
        // A folder that is gone meanwhile, or may not be read, has no files for us.
        let Ok(files) = sandbox.list(&folder).await else {
            continue;
        };
        let rules = if walk.ignored {
            rules
        } else {
            rules.with(sandbox, &folder, &files).await
        };
        for file in files {
            if !rules.allow(&file, walk.hidden) {
                continue;
            }
            if file.is_dir {
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

/// The folders above a path, the outermost first.
fn above(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(end, _)| &path[..end]);
    let top = (!path.is_empty()).then_some("");
    top.into_iter()
        .chain(ends.filter(|folder| !folder.is_empty()))
}

/// What the ignore files above say, the outermost first, by their kind.
#[derive(Clone, Default)]
struct Rules([Vec<Arc<Gitignore>>; 2]);

impl Rules {
    /// With those of a folder, of which it is known what is in it.
    async fn with<S: Sandbox + ?Sized>(
        mut self,
        sandbox: &S,
        folder: &str,
        files: &[FileInfo],
    ) -> Self {
        for (kind, rules) in IGNORE.into_iter().zip(&mut self.0) {
            let is_it = |file: &&FileInfo| !file.is_dir && name(&file.path) == kind;
            let Some(file) = files.iter().find(is_it) else {
                continue;
            };
            if let Ok(bytes) = sandbox.read(&file.path).await {
                rules.extend(parse(folder, &bytes));
            }
        }
        self
    }

    /// Whether a file is among those that are wanted.
    fn allow(&self, file: &FileInfo, hidden: bool) -> bool {
        let name = name(&file.path);
        if name == ".git" {
            return false;
        }
        let said = |rules: &Vec<Arc<Gitignore>>| {
            let inner_first = rules.iter().rev();
            let mut said = inner_first.map(|rules| rules.matched(&file.path, file.is_dir));
            said.find(|said| !said.is_none())
                .map(|said| said.is_ignore())
        };
        match self.0.iter().find_map(said) {
            Some(ignored) => !ignored,
            None => hidden || !name.starts_with('.'),
        }
    }
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The rules of an ignore file. A line that is none is left out.
fn parse(folder: &str, bytes: &[u8]) -> Option<Arc<Gitignore>> {
    let mut builder = GitignoreBuilder::new(Path::new(folder));
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
    fn the_inner_file_and_the_later_line_hold() {
        let rules = |texts: [(&str, &str, &str); 2]| {
            let mut rules = Rules::default();
            for (kind, folder, text) in texts {
                let place = usize::from(kind == ".gitignore");
                rules.0[place].extend(parse(folder, text.as_bytes()));
            }
            rules
        };
        let file = |path: &str| FileInfo {
            path: path.to_owned(),
            is_dir: path.ends_with('/'),
            size: 0,
            modified: 0,
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
            assert_eq!(git.allow(&file(path), false), allowed, "{path}");
        }
        let mixed = rules([(".gitignore", "a", "!x\n!.y\n"), (".ignore", "", "x\n")]);
        assert!(
            !mixed.allow(&file("a/x"), false),
            "`.ignore` holds against `.gitignore`"
        );
        assert!(
            mixed.allow(&file("a/.y"), false),
            "what is named is not hidden"
        );
    }

    #[test]
    fn the_folders_above_begin_with_the_workspace() {
        for (path, folders) in [
            ("", &[][..]),
            ("a", &[""]),
            ("a/b/c", &["", "a", "a/b"]),
            ("/a/b", &["", "/a"]),
        ] {
            assert_eq!(above(path).collect::<Vec<_>>(), folders);
        }
    }
}
