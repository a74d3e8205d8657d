//! What a tool can load: verified before it runs, and handed over as private copies.

use std::path::{Path, PathBuf};

use lillux::hash::Hasher;
use lillux::shell_word;
use rye_items::space::Root;
use rye_items::trust::Trust;
use rye_items::{
    Dependencies, EXCLUDED_DIRS, Item, ItemFile, Library, LockedEnvironment, MANIFEST, Owner,
    Scope, Snapshot, Space, SpaceError,
};
use serde_json::Value;

use super::facts::CallAnchor;
use crate::anchor::{Anchor, AnchorError};
use crate::chain::{self, Chain, Link};
use crate::error::ExecuteError;
use crate::shape;

/// What a call can load.
#[derive(Debug)]
pub(super) struct Loadable {
    neighbours: Neighbours,
    /// The `lib` of a runtime that is on the disk.
    lib: Option<Copied>,
}

#[derive(Debug)]
enum Neighbours {
    /// Files inside the program, which are written to the cache as they are.
    Embedded(Dependencies),
    Copied(Box<Copied>),
}

/// A directory that is copied before it is used.
#[derive(Debug)]
struct Copied {
    snapshot: Snapshot,
    /// The directory's path from the parent of the anchor on.
    name: String,
    /// How far it is below the anchor.
    depth: usize,
    /// The tool's path in it.
    tool: String,
}

/// Where the copies of a call are.
pub(super) struct Copies {
    /// The tool and its anchor; none for what is inside the program.
    pub(super) tool: Option<(PathBuf, PathBuf)>,
    /// The runtime's library.
    pub(super) lib: Option<PathBuf>,
}

impl Loadable {
    /// What was verified beside the tool itself.
    pub(super) fn dependencies(&self) -> Option<Dependencies> {
        let neighbours = match &self.neighbours {
            Neighbours::Embedded(dependencies) => *dependencies,
            Neighbours::Copied(copied) => copied.snapshot.dependencies(),
        };
        let Some(lib) = &self.lib else {
            return (neighbours.files > 0).then_some(neighbours);
        };
        let lib = lib.snapshot.dependencies();
        let mut hasher = Hasher::default();
        hasher.update(neighbours.hash.as_bytes());
        hasher.update(lib.hash.as_bytes());
        Some(Dependencies {
            files: neighbours.files + lib.files,
            waived: neighbours.waived + lib.waived,
            hash: hasher.finish().0,
        })
    }

    /// The signed environments in the tool's directory.
    pub(super) fn environments(&self) -> impl Iterator<Item = &LockedEnvironment> {
        let copied = match &self.neighbours {
            Neighbours::Copied(copied) => Some(&**copied),
            Neighbours::Embedded(_) => None,
        };
        copied
            .into_iter()
            .flat_map(|copied| copied.snapshot.environments())
    }

    /// Makes the copies that a process is to load from.
    pub(super) fn copy(&self, cache: &Path) -> Result<Copies, ExecuteError> {
        let tool = match &self.neighbours {
            Neighbours::Embedded(_) => None,
            Neighbours::Copied(copied) => {
                let folder = copied.materialise(cache)?;
                let anchor = folder.ancestors().nth(copied.depth);
                let anchor = anchor.unwrap_or(&folder).to_owned();
                Some((folder.join(&copied.tool), anchor))
            }
        };
        let lib = self.lib.as_ref();
        let lib = lib.map(|lib| lib.materialise(cache)).transpose()?;
        Ok(Copies { tool, lib })
    }
}

impl Copied {
    fn materialise(&self, cache: &Path) -> Result<PathBuf, ExecuteError> {
        let made = self.snapshot.materialise(cache, &self.name);
        made.map_err(ExecuteError::Dependency)
    }
}

/// Verifies what the tool can load.
pub(super) fn verify(
    library: &Library,
    trust: &Trust<'_>,
    chain: &Chain,
    anchor: &CallAnchor,
) -> Result<Loadable, ExecuteError> {
    let item = &chain.tool().item;
    let Some(root) = root_of(library, item) else {
        return Err(ExecuteError::Dependency(
            SpaceError::ChangedWhileReading(item.path.clone()).into(),
        ));
    };
    let lib = match &anchor.runtime_lib {
        Some((runtime, scope)) => verify_lib(library, trust, chain, runtime, scope)?,
        None => None,
    };
    let rules = Rules::read(&chain.links).map_err(ExecuteError::VerifyDeps)?;
    let within = rules
        .folder(item, anchor)
        .map_err(ExecuteError::VerifyDeps)?;
    if let Some(embedded) = root.as_embedded() {
        let folder = within.map(|(folder, _)| folder);
        let files = folder.as_ref().map_or(0, |folder| {
            embedded
                .with_prefix(&format!("{folder}/"))
                .len()
                .saturating_sub(1)
        });
        let mut hasher = Hasher::default();
        hasher.update(embedded.hash.as_bytes());
        hasher.update(folder.unwrap_or_default().as_bytes());
        let dependencies = Dependencies {
            files,
            waived: 0,
            hash: hasher.finish().0,
        };
        return Ok(Loadable {
            neighbours: Neighbours::Embedded(dependencies),
            lib,
        });
    }
    let neighbours = neighbours(library, trust, root, item, &rules, within.as_ref())?;
    Ok(Loadable {
        neighbours: Neighbours::Copied(Box::new(neighbours)),
        lib,
    })
}

fn neighbours(
    library: &Library,
    trust: &Trust<'_>,
    root: &Root,
    item: &Item,
    rules: &Rules,
    within: Option<&(String, usize)>,
) -> Result<Copied, ExecuteError> {
    let tool_folder = tool_folder(item);
    let file = item.path.file_name().unwrap_or_default().to_string_lossy();
    let (folder, depth) = match within {
        Some((folder, depth)) => (folder.as_str(), *depth),
        None => (tool_folder.as_str(), 0),
    };
    let inner = tool_folder.strip_prefix(folder).unwrap_or_default();
    let tool = match inner.strip_prefix('/') {
        Some(inner) => format!("{inner}/{file}"),
        None => file.into_owned(),
    };
    let mut snapshot = if within.is_some() {
        let scope = rules.scope(folder);
        let (id, sign) = (item.reference.to_string(), sign_word(item));
        let owner = Owner {
            item: &id,
            sign_argument: &sign,
            file: Some((&tool, item.bytes())),
        };
        library
            .verify_dependencies(root, &scope, owner, trust)
            .map_err(ExecuteError::Dependency)?
    } else {
        let mut alone = Snapshot::default();
        alone.add_file(&tool, item.bytes().into());
        alone
    };
    for name in &rules.exclude_dirs {
        let path = root.path_to(&format!("{folder}/{name}"));
        let waived = library.dev_mode() && root.space() != Space::System;
        if path.join(MANIFEST).is_file() {
            let environment = library
                .verify_environment(&path, trust)
                .map_err(ExecuteError::Dependency)?
                .filter(|environment| environment.path == path);
            if let Some(environment) = environment {
                snapshot.add_environment(name, environment);
            }
        } else if waived && rules.is_anchored && path.is_dir() {
            snapshot.add_unsigned_environment(name, path);
        }
    }
    let above = folder.split('/').rev().take(depth + 1).collect::<Vec<_>>();
    let name = above.into_iter().rev().collect::<Vec<_>>().join("/");
    Ok(Copied {
        snapshot,
        name,
        depth,
        tool,
    })
}

/// Verifies the `lib` of a runtime, unless it is inside the program.
fn verify_lib(
    library: &Library,
    trust: &Trust<'_>,
    chain: &Chain,
    runtime: &str,
    scope: &Scope,
) -> Result<Option<Copied>, ExecuteError> {
    let link = chain
        .links
        .iter()
        .find(|link| link.id().as_str() == runtime);
    let root = link.and_then(|link| root_of(library, &link.item));
    let (Some(link), Some(root)) = (link, root) else {
        return Ok(None);
    };
    if root.as_embedded().is_some() || !root.path_to(&scope.dir).is_dir() {
        return Ok(None);
    }
    let (id, sign) = (link.item.reference.to_string(), sign_word(&link.item));
    let owner = Owner {
        item: &id,
        sign_argument: &sign,
        file: None,
    };
    let snapshot = library
        .verify_dependencies(root, scope, owner, trust)
        .map_err(ExecuteError::Dependency)?;
    let name = scope.dir.rsplit('/').next().unwrap_or("lib");
    Ok(Some(Copied {
        snapshot,
        name: name.to_owned(),
        depth: 0,
        tool: String::new(),
    }))
}

/// The directories that `rye sign` signs together with a tool: the one that it loads from, and
/// the `lib` of a runtime. Links of its chain must verify.
pub fn dependency_scopes(
    library: &Library,
    tool: &ItemFile<'_>,
    project: &Path,
) -> Result<Vec<Scope>, ExecuteError> {
    let trust = library.trust();
    let links = chain::known_links(library, &trust, tool)?;
    let Some(tool) = links.first() else {
        return Ok(Vec::new());
    };
    let Some(root) = root_of(library, &tool.item) else {
        return Ok(Vec::new());
    };
    let tools = root.path_to("tools");
    let anchor = CallAnchor::find(&links, &tool.item.path, tools, project)?;
    let rules = Rules::read(&links).map_err(ExecuteError::VerifyDeps)?;
    let within = rules
        .folder(&tool.item, &anchor)
        .map_err(ExecuteError::VerifyDeps)?;
    let mut scopes: Vec<_> = within
        .map(|(folder, _)| rules.scope(&folder))
        .into_iter()
        .collect();
    let own = tool.metadata.value("anchor");
    let own = own.and_then(|about| Anchor::read(about).ok()?);
    let lib = own.and_then(|anchor| lib_scope(&tool.item, &anchor).ok()?);
    scopes.extend(lib.filter(|scope| root.path_to(&scope.dir).is_dir()));
    Ok(scopes)
}

/// The directory that `lib` of a runtime's anchor names, which is relative to the runtime.
pub(super) fn lib_scope(runtime: &Item, anchor: &Anchor) -> Result<Option<Scope>, AnchorError> {
    let Some(lib) = &anchor.lib else {
        return Ok(None);
    };
    let parts: Vec<_> = lib.split('/').filter(|part| !part.is_empty()).collect();
    let leads_out = |part: &&str| matches!(*part, "." | "..");
    if lib.starts_with('/') || parts.is_empty() || parts.iter().any(leads_out) {
        let why = format!("`lib` is `{lib}`, which is not a directory below the runtime's own");
        return Err(AnchorError::Description(why));
    }
    Ok(Some(Scope {
        dir: format!("{}/{}", tool_folder(runtime), parts.join("/")),
        recursive: true,
        exclude_dirs: EXCLUDED_DIRS.map(str::to_owned).to_vec(),
    }))
}

/// What is said of files that do not verify and are let pass.
pub(super) fn warning(dependencies: Option<Dependencies>) -> Option<String> {
    let waived = dependencies?.waived;
    let what = match waived {
        0 => return None,
        1 => "1 file that the tool can load and that does".to_owned(),
        more => format!("{more} files that the tool can load and that do"),
    };
    Some(format!("RYE_DEV_MODE lets {what} not verify pass"))
}

fn root_of<'l>(library: &'l Library, item: &Item) -> Option<&'l Root> {
    let mut roots = library.spaces().roots_in(item.space);
    roots.find(|root| root.bundle() == item.bundle.as_deref())
}

/// What `rye sign` is given to sign an item: another space may have one of the same name.
fn sign_word(item: &Item) -> String {
    match item.space {
        Space::User => shell_word(&item.path),
        _ => item.reference.id.to_string(),
    }
}

fn tool_folder(item: &Item) -> String {
    match item.reference.id.dir() {
        "" => "tools".to_owned(),
        folder => format!("tools/{folder}"),
    }
}

/// What `verify_deps` of the nearest link says.
struct Rules {
    reach: Reach,
    recursive: bool,
    exclude_dirs: Vec<String>,
    /// Whether a link says so, rather than nobody.
    is_declared: bool,
    /// Whether a link declares an anchor.
    is_anchored: bool,
}

/// Which directory a tool loads from.
enum Reach {
    Tool,
    ToolDir,
    Anchor,
}

impl Rules {
    /// The error is a sentence.
    fn read(links: &[Link]) -> Result<Self, String> {
        let value = |key: &str| {
            let mut links = links.iter();
            links.find_map(|link| link.metadata.value(key))
        };
        let about = value("verify_deps").unwrap_or(&Value::Null);
        let is_anchored = value("anchor").is_some();
        let excluded = EXCLUDED_DIRS.map(str::to_owned).to_vec();
        let is_enabled = about.is_null() || shape::flag(about, "enabled", true)?;
        let mut declared = Self {
            reach: Reach::Tool,
            recursive: true,
            exclude_dirs: excluded,
            is_declared: !about.is_null(),
            is_anchored,
        };
        if about.is_null() {
            declared.reach = Reach::Anchor;
            return Ok(declared);
        }
        if !is_enabled {
            return Ok(declared);
        }
        // Read so that a wrong one is noticed; whatever can be loaded is verified.
        shape::texts(about, "extensions")?;
        declared.recursive = shape::flag(about, "recursive", true)?;
        if let Some(dirs) = shape::texts(about, "exclude_dirs")? {
            declared.exclude_dirs = dirs;
        }
        let wrong = |dir: &&String| matches!(dir.as_str(), "" | "." | "..") || dir.contains('/');
        if let Some(dir) = declared.exclude_dirs.iter().find(wrong) {
            return Err(format!(
                "`{dir}` in `exclude_dirs` is not the name of a directory"
            ));
        }
        declared.reach = match shape::text(about, "scope")?.unwrap_or("anchor") {
            "tool_file" => Reach::Tool,
            "tool_siblings" => {
                declared.recursive = false;
                Reach::ToolDir
            }
            "tool_dir" => Reach::ToolDir,
            "anchor" => Reach::Anchor,
            other => {
                return Err(format!(
                    "there is no scope `{other}`; the scopes are anchor, tool_dir, tool_siblings, tool_file"
                ));
            }
        };
        Ok(declared)
    }

    fn scope(&self, folder: &str) -> Scope {
        Scope {
            dir: folder.to_owned(),
            recursive: self.recursive,
            exclude_dirs: self.exclude_dirs.clone(),
        }
    }

    /// The directory that the tool loads from, relative to `.ai/`, and how far it is below the
    /// anchor; none if the tool brings nothing along. The error is a sentence.
    fn folder(&self, item: &Item, anchor: &CallAnchor) -> Result<Option<(String, usize)>, String> {
        let tool_folder = tool_folder(item);
        let steps = |anchor_path: &Path| {
            let below = anchor.tool_dir.strip_prefix(anchor_path).ok()?;
            Some(below.components().count())
        };
        let anchored = &anchor.anchored;
        match self.reach {
            Reach::Tool => Ok(None),
            Reach::ToolDir => {
                let is_inside = anchored.path.starts_with(&anchor.tools);
                let depth = steps(&anchored.path).filter(|_| is_inside);
                Ok(Some((tool_folder, depth.unwrap_or_default())))
            }
            Reach::Anchor => {
                if !anchored.is_marked {
                    return Ok(None);
                }
                let above = steps(&anchored.path).and_then(|steps| above(&tool_folder, steps));
                match above {
                    Some(folder) => Ok(Some((folder.to_owned(), 0))),
                    None if self.is_declared => {
                        Err("the anchor is outside the space; use the scope tool_dir".to_owned())
                    }
                    None => Ok(None),
                }
            }
        }
    }
}

/// A directory that is some steps above another one; none above `tools`.
fn above(folder: &str, steps: usize) -> Option<&str> {
    let mut folder = folder;
    for _ in 0..steps {
        folder = folder.rsplit_once('/')?.0;
    }
    Some(folder)
}
