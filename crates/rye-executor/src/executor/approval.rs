//! Who let a tool run, and what nobody runs without having been let.
//!
//! A tool may say itself that each call has to be approved. So must a call of a runtime,
//! whose parameters are the code that runs, and one that changes what programs do: the
//! items and hooks of a project.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use lillux::Hash;
use rye_items::Dependencies;
use rye_items::metadata::Metadata;
use serde_json::Value;

use super::Places;
use crate::chain::Chain;
use crate::error::ExecuteError;

/// Folders whose files say what programs do.
const BEHAVIOUR: [&str; 2] = [".git", ".ai"];
/// What runs other tools, or is what they run on.
const FOUNDATIONS: [&str; 2] = ["runtime", "primitive"];
/// How many links a path may lead over; then nobody knows where it leads.
const LINKS: usize = 40;

/// Who let a tool run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Approval {
    /// A person asked for it themselves.
    #[default]
    Asked,
    /// Nobody yet: what needs an approval is refused.
    Missing,
    /// A person, who was shown the chain of this hash and nothing else.
    OfChain(Hash),
}

/// Why a call needs an approval.
pub(super) enum Needed {
    /// The tool says so.
    Said,
    /// It is a runtime or a primitive.
    Foundation,
    /// It changes this file.
    Behaviour(String),
    /// It changes this file of a folder that is no project.
    NoProject(String),
    /// Not all of it verifies.
    Unverified,
}

impl Needed {
    fn why(self) -> Option<String> {
        match self {
            Self::Said => None,
            Self::Foundation => Some("its parameters say what runs".to_owned()),
            Self::Behaviour(path) => Some(format!(
                "it would change {path}, where files say what programs do"
            )),
            Self::NoProject(path) => Some(format!(
                "it would change {path} in a folder that is no project"
            )),
            Self::Unverified => Some("RYE_DEV_MODE lets it pass unverified".to_owned()),
        }
    }
}

impl Approval {
    /// Whether a chain may run, with what the tool brings along.
    pub(super) fn check(
        &self,
        chain: &Chain,
        dependencies: Option<Dependencies>,
        parameters: &Value,
        places: &Places,
    ) -> Result<(), ExecuteError> {
        let tool = || chain.tool().id().to_string();
        match self {
            Self::Asked => Ok(()),
            Self::OfChain(approved) if *approved == chain.hash_with(dependencies) => Ok(()),
            Self::OfChain(_) => Err(ExecuteError::ApprovalVoid(tool())),
            Self::Missing => match needed(&chain.tool().metadata, parameters, places)
                .or_else(|| (chain.waived(dependencies) > 0).then_some(Needed::Unverified))
            {
                None => Ok(()),
                Some(needed) => Err(ExecuteError::ApprovalRequired {
                    tool: tool(),
                    why: needed.why(),
                }),
            },
        }
    }
}

/// Why a call needs an approval, if it does.
pub(super) fn needed(tool: &Metadata, parameters: &Value, places: &Places) -> Option<Needed> {
    if tool.requires_approval() == Some(true) {
        return Some(Needed::Said);
    }
    if tool.tool_type().is_some_and(|it| FOUNDATIONS.contains(&it)) {
        return Some(Needed::Foundation);
    }
    let written = tool.writes().into_iter();
    let mut written = written.filter_map(|name| parameters.get(&name)?.as_str().map(str::to_owned));
    written.find_map(|path| {
        if says_what_programs_do(&places.project, &path) {
            Some(Needed::Behaviour(path))
        } else {
            (!is_project(places)).then_some(Needed::NoProject(path))
        }
    })
}

/// Whether the folder of a call is a project. Whoever calls may name any; and what lies in
/// the user's own folder, programs of all kinds go by.
fn is_project(places: &Places) -> bool {
    let user = places.user.as_deref().and_then(followed);
    let is_users = user.is_some() && user == followed(&places.project);
    !is_users && places.project.join(".ai").is_dir()
}

/// Whether a path, as a tool of a project would follow it, is in a folder whose files say
/// what programs do: by a name on the way, by where links lead, or because it is the same
/// folder under another name.
fn says_what_programs_do(project: &Path, path: &str) -> bool {
    let is_name = |name: &OsStr| {
        let name = name.to_string_lossy();
        BEHAVIOUR.iter().any(|it| name.eq_ignore_ascii_case(it))
    };
    // The project itself may lie below such a name.
    let is_named = |path: &Path, project: &Path| {
        let within = path.strip_prefix(project).unwrap_or(path);
        within.iter().any(is_name)
    };
    let meant = project.join(path);
    let (Some(real), Some(real_project)) = (followed(&meant), followed(project)) else {
        return true;
    };
    if is_named(&meant, project) || is_named(&real, &real_project) {
        return true;
    }
    let identity = |path: &Path| {
        let about = path.metadata().ok()?;
        Some((about.dev(), about.ino()))
    };
    let folders = BEHAVIOUR
        .iter()
        .filter_map(|name| identity(&project.join(name)));
    let folders: Vec<_> = folders.collect();
    real.ancestors()
        .filter_map(identity)
        .any(|it| folders.contains(&it))
}

/// Where a path leads, whether it is there or not, as a program would resolve it; none if
/// it leads in circles.
fn followed(path: &Path) -> Option<PathBuf> {
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
                        if links > LINKS {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_that_says_what_programs_do_is_known_by_any_way_to_it() {
        let folder = tempfile::tempdir().unwrap();
        // As on machines whose folder for such things lies below one of these names.
        let project = folder.path().join(".ai/project");
        for inner in [".ai/tools", "src/deep", "sub/.ai", ".git/hooks"] {
            fs::create_dir_all(project.join(inner)).unwrap();
        }
        symlink(".ai", project.join("items")).unwrap();
        symlink("../../.ai/tools", project.join("src/deep/tools")).unwrap();
        symlink("nowhere", project.join("src/dangling")).unwrap();
        symlink("round", project.join("round")).unwrap();
        let absolute = project.join(".ai/x").display().to_string();
        for path in [
            ".ai/tools/own.sh",
            ".AI/tools/own.sh",
            "./src/../.ai//tools/own.sh",
            "src/deep/../../.ai/x",
            "items/tools/own.sh",
            "src/deep/tools/own.sh",
            "src/deep/tools/../x",
            ".ai/new/folder/x",
            "sub/.ai/tools/x",
            ".git/hooks/pre-commit",
            "round/x",
            ".ai",
            absolute.as_str(),
        ] {
            assert!(says_what_programs_do(&project, path), "{path}");
        }
        let absolute = project.join("src/main.rs").display().to_string();
        for path in [
            "src/main.rs",
            "new/folder/file",
            "src/dangling",
            "x.ai",
            ".aim/x",
            ".gitignore",
            "items2/x",
            absolute.as_str(),
        ] {
            assert!(!says_what_programs_do(&project, path), "{path}");
        }
    }

    #[test]
    fn the_same_folder_under_another_name_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        fs::create_dir_all(folder.path().join("elsewhere/tools")).unwrap();
        fs::create_dir(&project).unwrap();
        symlink(folder.path().join("elsewhere"), project.join(".ai")).unwrap();
        let there = folder
            .path()
            .join("elsewhere/tools/x")
            .display()
            .to_string();
        assert!(says_what_programs_do(&project, &there));
        assert!(!says_what_programs_do(&project, "src/x"));
    }
}
