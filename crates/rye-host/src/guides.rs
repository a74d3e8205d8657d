//! Roles, skills and instructions from files of the spaces, of additional directories, of the sandbox and
//! of the workspace. They are text for a model like a prompt, so they need no signature.

pub(crate) mod base_prompt;
mod environment;
mod instructions;
mod page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::path_policy::{PathClass, PathPolicy, ProtectedPaths, SensitiveReason};
use rye_engine::BoxFuture;
use rye_engine::guides::{GuideFuture, Guides, InstructionFile, Role, Skill};
use rye_engine::model::ModelFamily;
use rye_engine::policy::Policy;
use rye_engine::sandbox::Sandbox;
use rye_items::Spaces;

use page::{BasePrompt, Page};

/// Directory of the roles, relative to a space's `.ai/`.
const ROLES_DIR: &str = "roles";
/// Directory of the skills, relative to a space's `.ai/`.
const SKILLS_DIR: &str = "skills";
/// Maximum number of bytes read from a file.
const MAX_FILE_LEN: usize = 64 * 1024;
/// Maximum number of names in an error.
const MAX_NAMES: usize = 20;

/// Roles, skills and instructions from files.
#[derive(Debug)]
pub struct FileGuides {
    spaces: Arc<Spaces>,
    workspace: PathBuf,
    /// Additional directories with skills.
    skill_dirs: Vec<PathBuf>,
    instruction_dirs: InstructionDirs,
    base_prompts: BTreeMap<ModelFamily, String>,
    /// The approval policy, if the environment is part of the system prompt.
    policy: Option<Policy>,
}

/// Directories with instruction files beside the workspace.
#[derive(Debug, Default)]
struct InstructionDirs {
    project: PathBuf,
    /// From the project down to the parent of the workspace.
    above: Vec<PathBuf>,
    /// Where the user works, relative to the workspace.
    below: PathBuf,
}

/// Texts of guides by name.
type GuideTexts = BTreeMap<String, String>;

impl FileGuides {
    /// The guides of the spaces and a workspace, with additional directories of skills.
    pub fn new(
        spaces: Arc<Spaces>,
        workspace: impl Into<PathBuf>,
        skill_dirs: Vec<PathBuf>,
    ) -> Self {
        Self {
            spaces,
            workspace: workspace.into(),
            skill_dirs,
            instruction_dirs: InstructionDirs::default(),
            base_prompts: BTreeMap::new(),
            policy: None,
        }
    }

    /// Also loads the instruction files from the project down to the workspace, and from there
    /// down to the directory in which the user works.
    #[must_use]
    pub fn instructions_between(mut self, project: &Path, current_dir: Option<&Path>) -> Self {
        let real = |dir: &Path| std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
        let (workspace, current_dir) = (real(&self.workspace), current_dir.map(real));
        let below = current_dir.and_then(|dir| Some(dir.strip_prefix(&workspace).ok()?.to_owned()));
        let project = real(project);
        self.instruction_dirs = InstructionDirs {
            above: instructions::dirs_above(&project, &workspace),
            project,
            below: below.unwrap_or_default(),
        };
        self
    }

    /// Sets the base system prompts.
    #[must_use]
    pub fn base_prompts(mut self, prompts: BTreeMap<ModelFamily, String>) -> Self {
        self.base_prompts = prompts;
        self
    }

    /// Adds the environment to the system prompt, with what the approval policy allows.
    #[must_use]
    pub fn with_environment(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// All guides of a kind. The project precedes the user, the system, the additional directories
    /// and the sandbox.
    async fn all(&self, kind: &str, sandbox: &dyn Sandbox) -> GuideTexts {
        let mut texts = GuideTexts::new();
        for root in self.spaces.roots() {
            for entry in root.walk(kind).into_iter().flatten() {
                let relative = entry.path.strip_prefix(kind);
                let relative = relative.map(|rest| rest.trim_start_matches('/'));
                if let Some(name) = relative.and_then(guide_name)
                    && !texts.contains_key(&name)
                    && let Ok(Some(raw)) = root.read(&entry.path)
                {
                    texts.insert(name, text(&raw.bytes));
                }
            }
        }
        if kind == SKILLS_DIR {
            for dir in &self.skill_dirs {
                for (name, text) in skills_in_dir(dir) {
                    texts.entry(name).or_insert(text);
                }
            }
        }
        for (name, path) in guides_in_sandbox(kind, sandbox).await {
            if !texts.contains_key(&name)
                && let Some(bytes) = read_in_sandbox(sandbox, &path).await
            {
                texts.insert(name, text(&bytes));
            }
        }
        texts
    }

    async fn page(
        &self,
        label: &str,
        kind: &str,
        name: &str,
        sandbox: &dyn Sandbox,
    ) -> Result<Page, String> {
        let mut all = self.all(kind, sandbox).await;
        let Some(text) = all.remove(name) else {
            let names: Vec<_> = all
                .keys()
                .take(MAX_NAMES)
                .map(|it| format!("`{it}`"))
                .collect();
            let available = match names.as_slice() {
                [] => format!("create .ai/{kind}/{name}.md"),
                names => format!("available: {}", names.join(", ")),
            };
            return Err(format!("there is no {label} `{name}`; {available}"));
        };
        Page::parse(&text).map_err(|error| format!("{label} `{name}`: {error}"))
    }
}

impl Guides for FileGuides {
    fn role<'a>(&'a self, name: &'a str, sandbox: &'a dyn Sandbox) -> GuideFuture<'a, Role> {
        Box::pin(async move {
            let page = self.page("role", ROLES_DIR, name, sandbox).await?;
            if page.body.trim().is_empty() {
                return Err(format!("role `{name}` is empty"));
            }
            Ok(role(name, page))
        })
    }

    fn skill<'a>(&'a self, name: &'a str, sandbox: &'a dyn Sandbox) -> GuideFuture<'a, Skill> {
        Box::pin(async move {
            let page = self.page("skill", SKILLS_DIR, name, sandbox).await?;
            Ok(skill(name, page))
        })
    }

    fn roles<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Vec<Role>> {
        Box::pin(async move {
            let all = self.all(ROLES_DIR, sandbox).await;
            let pages = all.iter().filter_map(|(name, text)| {
                // An invalid role is reported when it is loaded.
                Page::parse(text).ok().map(|page| role(name, page))
            });
            pages.collect()
        })
    }

    fn skills<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Vec<Skill>> {
        Box::pin(async move {
            let all = self.all(SKILLS_DIR, sandbox).await;
            let pages = all.iter().filter_map(|(name, text)| {
                // An invalid skill is reported when it is loaded.
                Page::parse(text).ok().map(|page| skill(name, page))
            });
            pages.collect()
        })
    }

    fn instructions<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Vec<InstructionFile>> {
        Box::pin(instructions::load(self, sandbox))
    }

    fn base_prompt(&self, family: ModelFamily) -> Option<String> {
        self.base_prompts.get(&family).cloned()
    }

    fn environment<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let policy = self.policy.as_ref()?;
            Some(environment::environment(sandbox, policy).await)
        })
    }
}

fn role(name: &str, page: Page) -> Role {
    Role {
        name: name.to_owned(),
        description: page.front_matter.description,
        model: page.front_matter.model,
        replaces_base: page.front_matter.system == BasePrompt::Replace,
        text: page.body,
    }
}

fn skill(name: &str, page: Page) -> Skill {
    Skill {
        name: name.to_owned(),
        description: page.front_matter.description,
        text: page.body,
    }
}

/// The name of a guide: its path without `.md`, or its directory if the file is `SKILL.md`.
fn guide_name(path: &str) -> Option<String> {
    let name = path.strip_suffix("/SKILL.md");
    let name = name.or_else(|| path.strip_suffix(".md"))?;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.');
    (!name.is_empty() && name.chars().all(is_allowed)).then(|| name.to_owned())
}

fn text(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(MAX_FILE_LEN)];
    String::from_utf8_lossy(bytes).into_owned()
}

/// The skills of a directory: files, and directories with a `SKILL.md`.
fn skills_in_dir(dir: &Path) -> Vec<(String, String)> {
    let Ok(files) = dir.read_dir() else {
        return Vec::new();
    };
    let files = files.flatten().filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let (path, name) = if file.path().is_dir() {
            (file.path().join("SKILL.md"), format!("{name}/SKILL.md"))
        } else {
            (file.path(), name)
        };
        let bytes = read_in_dir(dir, &path)?;
        Some((guide_name(&name)?, text(&bytes)))
    });
    files.collect()
}

/// Reads a file of a sandbox, unless a link leads out of the workspace: the content goes to the
/// model.
async fn read_in_sandbox(sandbox: &dyn Sandbox, path: &str) -> Option<Vec<u8>> {
    if is_outside(sandbox.resolve_path(path).await.class) {
        return None;
    }
    sandbox.read(path).await.ok()
}

/// Reads a regular file of a directory on this machine, unless a link leads out of it.
fn read_in_dir(dir: &Path, path: &Path) -> Option<Vec<u8>> {
    let resolved = PathPolicy::new(dir, ProtectedPaths::default()).classify(path);
    if is_outside(resolved.class) || !std::fs::metadata(&resolved.real).ok()?.is_file() {
        return None;
    }
    std::fs::read(resolved.real).ok()
}

fn is_outside(class: PathClass) -> bool {
    matches!(
        class,
        PathClass::Private
            | PathClass::Sensitive(SensitiveReason::Outside | SensitiveReason::Unresolvable)
    )
}

/// Names and paths of the guides in a sandbox.
async fn guides_in_sandbox(kind: &str, sandbox: &dyn Sandbox) -> Vec<(String, String)> {
    let dir = format!(".ai/{kind}");
    let Ok(files) = sandbox.list(&dir).await else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for file in files {
        let path = if file.is_dir {
            format!("{}/SKILL.md", file.path)
        } else {
            file.path
        };
        let relative = path.strip_prefix(&dir);
        let relative = relative.map(|rest| rest.trim_start_matches('/'));
        if let Some(name) = relative.and_then(guide_name) {
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
    use rye_sandbox::{LocalSandbox, VirtualSandbox};

    use super::*;

    #[tokio::test]
    async fn links_that_leave_the_workspace_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let [work, skills] = ["work", "skills"].map(|name| dir.path().join(name));
        fs::create_dir_all(work.join(".ai/skills")).unwrap();
        fs::create_dir(&skills).unwrap();
        let secret = dir.path().join("secret.md");
        fs::write(&secret, "secret").unwrap();
        fs::write(skills.join("own.md"), "mine").unwrap();
        for link in [
            work.join("AGENTS.md"),
            work.join(".ai/skills/x.md"),
            skills.join("y.md"),
        ] {
            symlink(&secret, link).unwrap();
        }
        let spaces = Arc::new(Spaces::open(Some(&work), None, &[], &SYSTEM).unwrap());
        let files = FileGuides::new(spaces, &work, vec![skills]);
        let local = LocalSandbox::new(&work, Supervisor::start().unwrap()).unwrap();
        let sandboxes: [&dyn Sandbox; 2] = [&local, &VirtualSandbox::new()];
        for sandbox in sandboxes {
            assert!(files.instructions(sandbox).await.is_empty());
            let names: Vec<_> = files.all(SKILLS_DIR, sandbox).await.into_keys().collect();
            assert_eq!(names, ["own"], "{}", sandbox.kind());
        }
        fs::remove_file(work.join("AGENTS.md")).unwrap();
        fs::write(work.join("AGENTS.md"), "be brief").unwrap();
        for sandbox in sandboxes {
            let found = files.instructions(sandbox).await;
            let texts: Vec<_> = found.iter().map(|it| (&*it.path, &*it.text)).collect();
            assert_eq!(texts, [("AGENTS.md", "be brief")]);
        }
    }
}
