//! Resolves a path to its real path, which need not exist.

use std::path::{Component, Path, PathBuf};

/// Maximum number of links in a path, as in the Linux kernel.
const MAX_LINKS: usize = 40;

/// Resolves the links of an absolute path. The path need not exist. Returns `None` if its
/// links form a loop.
///
/// Magic links of `/proc` (`/proc/self/root`, `/proc/1/cwd`) resolve to the path that
/// `readlink` returns.
pub fn resolve(path: &Path) -> Option<PathBuf> {
    let mut rest: Vec<PathBuf> = vec![path.to_owned()];
    let mut real = PathBuf::from("/");
    let mut links = 0;
    while let Some(next) = rest.pop() {
        let mut parts = next.components();
        let Some(first) = parts.next() else {
            continue;
        };
        let after = parts.as_path();
        if !after.as_os_str().is_empty() {
            rest.push(after.to_owned());
        }
        match first {
            Component::RootDir | Component::Prefix(_) => real = PathBuf::from("/"),
            Component::CurDir => {}
            Component::ParentDir => {
                real.pop();
            }
            Component::Normal(name) => {
                let entry = real.join(name);
                match entry.read_link() {
                    Ok(target) => {
                        links += 1;
                        if links > MAX_LINKS {
                            return None;
                        }
                        rest.push(target);
                    }
                    Err(_) => real = entry,
                }
            }
        }
    }
    Some(real)
}
