//! Where a path leads.

use std::path::{Component, Path, PathBuf};

/// How many links a path may lead over, as in the kernel.
const MOST_LINKS: usize = 40;

/// The place that an absolute path names, without links, whether it exists or not; none if
/// its links form a loop.
///
/// Links of `/proc` that the kernel resolves by itself (`/proc/self/root`, `/proc/1/cwd`)
/// count as the path that they show.
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
                let here = real.join(name);
                match here.read_link() {
                    Ok(target) => {
                        links += 1;
                        if links > MOST_LINKS {
                            return None;
                        }
                        rest.push(target);
                    }
                    Err(_) => real = here,
                }
            }
        }
    }
    Some(real)
}
