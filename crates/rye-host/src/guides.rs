//! Roles, skills and rules from files: of the spaces, of further folders, of the sandbox and
//! of the workspace. They are words for a model, as what a person types is, so nobody need
//! have signed them.

mod page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lillux::path_policy::{PathClass, PathPolicy, ProtectedPaths, SensitiveReason};
use rye_engine::BoxFuture;
use rye_engine::guides::{GuideFuture, Guides, Role, Skill};
use rye_engine::sandbox::Sandbox;
use rye_items::Spaces;

use page::Page;

/// The folder with roles, below a space's `.ai/`.
const ROLES: &str = "roles";
/// That with skills.
const SKILLS: &str = "skills";
/// The file with the rules of a workspace.
const RULES: &str = "AGENTS.md";
/// How much of a file is read.
const LONGEST: usize = 64 * 1024;
/// How many names are told to whoever mistook one.
const MOST: usize = 20;

/// Roles, skills and rules from files.
#[derive(Debug)]
pub struct Files {
    spaces: Spaces,
    workspace: PathBuf,
    /// Folders with further skills.
    folders: Vec<PathBuf>,
}

/// Something that was found: its name and its text.
type Known = BTreeMap<String, String>;

impl Files {
    /// Those of the spaces, for a workspace, with further folders of skills.
    pub fn new(spaces: Spaces, workspace: impl Into<PathBuf>, folders: Vec<PathBuf>) -> Self {
        Self {
            spaces,
            workspace: workspace.into(),
            folders,
        }
    }

    /// All files of a kind, by name: project before user before system before folders, and
    /// the sandbox's own last.
    async fn all(&self, kind: &str, sandbox: &dyn Sandbox) -> Known {
        let mut known = Known::new();
        for root in self.spaces.roots() {
            for entry in root.walk(kind).into_iter().flatten() {
                let below = entry.path.strip_prefix(kind);
                let below = below.map(|rest| rest.trim_start_matches('/'));
                if let Some(name) = below.and_then(name_of)
                    && !known.contains_key(&name)
                    && let Ok(Some(raw)) = root.read(&entry.path)
                {
                    known.insert(name, text(&raw.bytes));
                }
            }
        }
        if kind == SKILLS {
            for folder in &self.folders {
                for (name, text) in of_folder(folder) {
                    known.entry(name).or_insert(text);
                }
            }
        }
        for (name, path) in of_sandbox(kind, sandbox).await {
            if !known.contains_key(&name)
                && let Some(bytes) = read_inside(sandbox, &path).await
            {
                known.insert(name, text(&bytes));
            }
        }
        known
    }

    async fn page(
        &self,
        what: &str,
        kind: &str,
        name: &str,
        sandbox: &dyn Sandbox,
    ) -> Result<Page, String> {
        let mut all = self.all(kind, sandbox).await;
        let Some(text) = all.remove(name) else {
            let names: Vec<_> = all.keys().take(MOST).map(|it| format!("`{it}`")).collect();
            let known = match names.as_slice() {
                [] => format!("there are none; write one as .ai/{kind}/{name}.md"),
                names => format!("there are {}", names.join(", ")),
            };
            return Err(format!("there is no {what} `{name}`: {known}"));
        };
        Page::read(&text).map_err(|why| format!("the {what} `{name}` is no good: {why}"))
    }
}

impl Guides for Files {
    fn role<'a>(&'a self, name: &'a str, sandbox: &'a dyn Sandbox) -> GuideFuture<'a, Role> {
        Box::pin(async move {
            let page = self.page("role", ROLES, name, sandbox).await?;
            if page.body.trim().is_empty() {
                return Err(format!("the role `{name}` is no good: it says nothing"));
            }
            Ok(Role {
                name: name.to_owned(),
                description: page.head.description,
                model: page.head.model,
                text: page.body,
            })
        })
    }

    fn skill<'a>(&'a self, name: &'a str, sandbox: &'a dyn Sandbox) -> GuideFuture<'a, Skill> {
        Box::pin(async move {
            let page = self.page("skill", SKILLS, name, sandbox).await?;
            Ok(skill(name, page))
        })
    }

    fn skills<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Vec<Skill>> {
        Box::pin(async move {
            let all = self.all(SKILLS, sandbox).await;
            let pages = all.iter().filter_map(|(name, text)| {
                // One that cannot be read is told of when it is asked for.
                Page::read(text).ok().map(|page| skill(name, page))
            });
            pages.collect()
        })
    }

    fn rules<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let bytes = match read_inside(sandbox, RULES).await {
                Some(bytes) => Some(bytes),
                None => read_below(&self.workspace, Path::new(RULES)),
            };
            let rules = text(&bytes?);
            (!rules.trim().is_empty()).then_some(rules)
        })
    }
}

fn skill(name: &str, page: Page) -> Skill {
    Skill {
        name: name.to_owned(),
        description: page.head.description,
        text: page.body,
    }
}

/// The name of what a file says: its path without `.md`, or its folder's if it is the
/// `SKILL.md` in it.
fn name_of(path: &str) -> Option<String> {
    let name = path.strip_suffix("/SKILL.md");
    let name = name.or_else(|| path.strip_suffix(".md"))?;
    let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '/' | '.');
    (!name.is_empty() && name.chars().all(plain)).then(|| name.to_owned())
}

fn text(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    String::from_utf8_lossy(bytes).into_owned()
}

/// The skills of a folder: files, and folders with a `SKILL.md`.
fn of_folder(folder: &Path) -> Vec<(String, String)> {
    let Ok(files) = folder.read_dir() else {
        return Vec::new();
    };
    let files = files.flatten().filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let (path, name) = if file.path().is_dir() {
            (file.path().join("SKILL.md"), format!("{name}/SKILL.md"))
        } else {
            (file.path(), name)
        };
        let bytes = read_below(folder, &path)?;
        Some((name_of(&name)?, text(&bytes)))
    });
    files.collect()
}

/// A file of a sandbox, unless a link leads out of the workspace: nobody asked for what lies
/// there, and what is read here goes to a model.
async fn read_inside(sandbox: &dyn Sandbox, path: &str) -> Option<Vec<u8>> {
    if leads_out(sandbox.resolve_path(path).await.class) {
        return None;
    }
    sandbox.read(path).await.ok()
}

/// The same for a regular file of a folder of this machine.
fn read_below(folder: &Path, path: &Path) -> Option<Vec<u8>> {
    let found = PathPolicy::new(folder, ProtectedPaths::default()).classify(path);
    if leads_out(found.class) || !std::fs::metadata(&found.real).ok()?.is_file() {
        return None;
    }
    std::fs::read(found.real).ok()
}

fn leads_out(class: PathClass) -> bool {
    matches!(
        class,
        PathClass::Private
            | PathClass::Sensitive(SensitiveReason::Outside | SensitiveReason::Unresolvable)
    )
}

/// The files of a kind that the sandbox has, and their names.
async fn of_sandbox(kind: &str, sandbox: &dyn Sandbox) -> Vec<(String, String)> {
    let folder = format!(".ai/{kind}");
    let Ok(files) = sandbox.list(&folder).await else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for file in files {
        let path = if file.is_dir {
            format!("{}/SKILL.md", file.path)
        } else {
            file.path
        };
        let below = path.strip_prefix(&folder);
        let below = below.map(|rest| rest.trim_start_matches('/'));
        if let Some(name) = below.and_then(name_of) {
            all.push((name, path));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use lillux::process::Supervisor;
    use rye_items::SYSTEM;
    use rye_sandbox::{Local, Virtual};

    use super::*;

    #[tokio::test]
    async fn rules_and_skills_are_read_through_no_link_that_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        let [work, skills] = ["work", "skills"].map(|it| folder.path().join(it));
        fs::create_dir_all(work.join(".ai/skills")).unwrap();
        fs::create_dir(&skills).unwrap();
        let secret = folder.path().join("secret.md");
        fs::write(&secret, "secret").unwrap();
        fs::write(skills.join("own.md"), "mine").unwrap();
        for link in [
            work.join(RULES),
            work.join(".ai/skills/x.md"),
            skills.join("y.md"),
        ] {
            symlink(&secret, link).unwrap();
        }
        let spaces = Spaces::open(Some(&work), None, &[], &SYSTEM).unwrap();
        let files = Files::new(spaces, &work, vec![skills]);
        let local = Local::new(&work, Supervisor::start().unwrap()).unwrap();
        let sandboxes: [&dyn Sandbox; 2] = [&local, &Virtual::new()];
        for sandbox in sandboxes {
            assert_eq!(files.rules(sandbox).await, None);
            let names: Vec<_> = files.all(SKILLS, sandbox).await.into_keys().collect();
            assert_eq!(names, ["own"], "{}", sandbox.kind());
        }
        fs::remove_file(work.join(RULES)).unwrap();
        fs::write(work.join(RULES), "be brief").unwrap();
        for sandbox in sandboxes {
            assert_eq!(files.rules(sandbox).await.as_deref(), Some("be brief"));
        }
    }
}
