//! Dependencies: determines which files a tool can load, has the [`Library`] verify them against
//! their manifest, and passes them as private copies.

use std::path::{Path, PathBuf};

use lillux::hash::Hasher;
use lillux::shell_word;
use rye_items::space::Root;
use rye_items::trust::Trust;
use rye_items::{
    Dependencies, EXCLUDED_DIRS, IntegrityError, Item, ItemError, ItemFile, Library,
    LockedEnvironment, MANIFEST, Owner, Scope, Snapshot, Space, SpaceError,
};
use serde_json::Value;

use super::template_context::CallAnchor;
use crate::anchor::{Anchor, AnchorError};
use crate::chain::{self, Chain, Link};
use crate::error::ExecuteError;
use crate::value_ext;

/// Verified files that a call can load.
#[derive(Debug)]
pub(super) struct LoadableFiles {
    tool_files: ToolFiles,
    /// The `lib` of a runtime, unless it is embedded.
    lib: Option<VerifiedDir>,
}

/// The tool and the files next to it.
#[derive(Debug)]
enum ToolFiles {
    /// Files of the embedded bundle, which the cache contains unchanged.
    Embedded(Dependencies),
    OnDisk(Box<VerifiedDir>),
}

/// A verified directory, to be copied before it is used.
#[derive(Debug)]
struct VerifiedDir {
    snapshot: Snapshot,
    /// Path of the directory, relative to the parent of the anchor.
    name: String,
    /// Number of levels below the anchor.
    depth: usize,
    /// Path of the tool, relative to the directory.
    tool: String,
}

/// Paths of the private copies for a call.
pub(super) struct PrivateCopies {
    /// The tool and its anchor; none for an embedded tool.
    pub(super) tool: Option<(PathBuf, PathBuf)>,
    /// The runtime's library.
    pub(super) lib: Option<PathBuf>,
}

impl LoadableFiles {
    /// Summary of the verified files besides the tool itself.
    pub(super) fn dependencies(&self) -> Option<Dependencies> {
        let tool_files = match &self.tool_files {
            ToolFiles::Embedded(dependencies) => *dependencies,
            ToolFiles::OnDisk(dir) => dir.snapshot.dependencies(),
        };
        let Some(lib) = &self.lib else {
            return (tool_files.files > 0).then_some(tool_files);
        };
        let lib = lib.snapshot.dependencies();
        let mut hasher = Hasher::default();
        hasher.update(tool_files.hash.as_bytes());
        hasher.update(lib.hash.as_bytes());
        Some(Dependencies {
            files: tool_files.files + lib.files,
            waived: tool_files.waived + lib.waived,
            hash: hasher.finish().0,
        })
    }

    /// Signed interpreter environments in the tool's directory.
    pub(super) fn environments(&self) -> impl Iterator<Item = &LockedEnvironment> {
        let dir = match &self.tool_files {
            ToolFiles::OnDisk(dir) => Some(&**dir),
            ToolFiles::Embedded(_) => None,
        };
        dir.into_iter().flat_map(|dir| dir.snapshot.environments())
    }

    /// Creates the private copies that the process loads from.
    pub(super) fn copy(&self, cache: &Path) -> Result<PrivateCopies, ExecuteError> {
        let tool = match &self.tool_files {
            ToolFiles::Embedded(_) => None,
            ToolFiles::OnDisk(dir) => {
                let copy = dir.materialise(cache)?;
                let anchor = copy.ancestors().nth(dir.depth);
                let anchor = anchor.unwrap_or(&copy).to_owned();
                Some((copy.join(&dir.tool), anchor))
            }
        };
        let lib = self.lib.as_ref();
        let lib = lib.map(|lib| lib.materialise(cache)).transpose()?;
        Ok(PrivateCopies { tool, lib })
    }
}

impl VerifiedDir {
    fn materialise(&self, cache: &Path) -> Result<PathBuf, ExecuteError> {
        let copy = self.snapshot.materialise(cache, &self.name);
        copy.map_err(ExecuteError::Dependency)
    }
}

/// Verifies the files that the tool can load.
pub(super) fn verify(
    library: &Library,
    trust: &Trust<'_>,
    chain: &Chain,
    anchor: &CallAnchor,
) -> Result<LoadableFiles, ExecuteError> {
    let item = &chain.tool().item;
    let Some(root) = item_root(library, item) else {
        return Err(ExecuteError::Dependency(
            SpaceError::ChangedWhileReading(item.path.clone()).into(),
        ));
    };
    let lib = match &anchor.runtime_lib {
        Some((runtime, scope)) => verify_lib(library, trust, chain, runtime, scope)?,
        None => None,
    };
    let rules = VerifyRules::parse(&chain.links).map_err(ExecuteError::VerifyDeps)?;
    let load_dir = rules
        .load_dir(item, anchor)
        .map_err(ExecuteError::VerifyDeps)?;
    if let Some(embedded) = root.as_embedded() {
        let load_dir = load_dir.map(|(dir, _)| dir);
        let files = load_dir.as_ref().map_or(0, |dir| {
            embedded
                .with_prefix(&format!("{dir}/"))
                .len()
                .saturating_sub(1)
        });
        let mut hasher = Hasher::default();
        hasher.update(embedded.hash.as_bytes());
        hasher.update(load_dir.unwrap_or_default().as_bytes());
        let dependencies = Dependencies {
            files,
            waived: 0,
            hash: hasher.finish().0,
        };
        return Ok(LoadableFiles {
            tool_files: ToolFiles::Embedded(dependencies),
            lib,
        });
    }
    let dir = verify_tool_files(library, trust, root, item, &rules, load_dir.as_ref())?;
    Ok(LoadableFiles {
        tool_files: ToolFiles::OnDisk(Box::new(dir)),
        lib,
    })
}

/// What a tool can load and does not verify.
#[derive(Default)]
pub(super) struct UnverifiedFiles {
    pub(super) problems: Vec<IntegrityError>,
    /// Interpreter environments in the tool's directory.
    pub(super) environments: Vec<PathBuf>,
}

/// Finds what a tool can load and does not verify.
pub(super) fn unverified(
    library: &Library,
    trust: &Trust<'_>,
    chain: &Chain,
    anchor: &CallAnchor,
) -> Result<UnverifiedFiles, ExecuteError> {
    let item = &chain.tool().item;
    let mut found = UnverifiedFiles::default();
    let root = item_root(library, item).filter(|root| root.as_embedded().is_none());
    let Some(root) = root else {
        return Ok(found);
    };
    let rules = VerifyRules::parse(&chain.links).map_err(ExecuteError::VerifyDeps)?;
    let load_dir = rules
        .load_dir(item, anchor)
        .map_err(ExecuteError::VerifyDeps)?;
    let lib = anchor.runtime_lib.as_ref();
    let lib = lib.map(|(runtime, scope)| verify_lib(library, trust, chain, runtime, scope));
    let tool = verify_tool_files(library, trust, root, item, &rules, load_dir.as_ref());
    for error in [lib.and_then(Result::err), tool.err()]
        .into_iter()
        .flatten()
    {
        match error {
            ExecuteError::Dependency(ItemError::Integrity(problem)) => {
                found.problems.push(*problem);
            }
            other => return Err(other),
        }
    }
    let dir = load_dir.map_or_else(|| tool_dir(item), |(dir, _)| dir);
    for name in rules.exclude_dirs.iter().filter(|_| rules.has_anchor) {
        let path = root.path_to(&format!("{dir}/{name}"));
        let is_environment = matches!(name.as_str(), ".venv" | "node_modules");
        if is_environment && path.is_dir() && !path.join(MANIFEST).is_file() {
            found.environments.push(path);
        }
    }
    Ok(found)
}

/// Verifies the tool's directory, or the tool alone if it has no dependencies.
fn verify_tool_files(
    library: &Library,
    trust: &Trust<'_>,
    root: &Root,
    item: &Item,
    rules: &VerifyRules,
    load_dir: Option<&(String, usize)>,
) -> Result<VerifiedDir, ExecuteError> {
    let tool_dir = tool_dir(item);
    let file = item.path.file_name().unwrap_or_default().to_string_lossy();
    let (dir, depth) = match load_dir {
        Some((dir, depth)) => (dir.as_str(), *depth),
        None => (tool_dir.as_str(), 0),
    };
    let inner = tool_dir.strip_prefix(dir).unwrap_or_default();
    let tool = match inner.strip_prefix('/') {
        Some(inner) => format!("{inner}/{file}"),
        None => file.into_owned(),
    };
    let mut snapshot = if load_dir.is_some() {
        let scope = rules.scope(dir);
        let (id, sign) = (item.reference.to_string(), sign_argument(item));
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
        let path = root.path_to(&format!("{dir}/{name}"));
        let waived = library.dev_mode() && root.space() != Space::System;
        if path.join(MANIFEST).is_file() {
            let environment = library
                .verify_environment(&path, trust)
                .map_err(ExecuteError::Dependency)?
                .filter(|environment| environment.path == path);
            if let Some(environment) = environment {
                snapshot.add_environment(name, environment);
            }
        } else if waived && rules.has_anchor && path.is_dir() {
            snapshot.add_unsigned_environment(name, path);
        }
    }
    let components = dir.split('/').rev().take(depth + 1).collect::<Vec<_>>();
    let name = components.into_iter().rev().collect::<Vec<_>>().join("/");
    Ok(VerifiedDir {
        snapshot,
        name,
        depth,
        tool,
    })
}

/// Verifies the `lib` of a runtime, unless it is embedded.
fn verify_lib(
    library: &Library,
    trust: &Trust<'_>,
    chain: &Chain,
    runtime: &str,
    scope: &Scope,
) -> Result<Option<VerifiedDir>, ExecuteError> {
    let link = chain
        .links
        .iter()
        .find(|link| link.id().as_str() == runtime);
    let root = link.and_then(|link| item_root(library, &link.item));
    let (Some(link), Some(root)) = (link, root) else {
        return Ok(None);
    };
    if root.as_embedded().is_some() || !root.path_to(&scope.dir).is_dir() {
        return Ok(None);
    }
    let (id, sign) = (link.item.reference.to_string(), sign_argument(&link.item));
    let owner = Owner {
        item: &id,
        sign_argument: &sign,
        file: None,
    };
    let snapshot = library
        .verify_dependencies(root, scope, owner, trust)
        .map_err(ExecuteError::Dependency)?;
    let name = scope.dir.rsplit('/').next().unwrap_or("lib");
    Ok(Some(VerifiedDir {
        snapshot,
        name: name.to_owned(),
        depth: 0,
        tool: String::new(),
    }))
}

/// The directories that `rye sign` signs together with a tool: the directory that it loads from,
/// and the `lib` of a runtime. The links of its chain must verify.
pub fn dependency_scopes(
    library: &Library,
    tool: &ItemFile<'_>,
    project: &Path,
) -> Result<Vec<Scope>, ExecuteError> {
    let trust = library.trust();
    let links = chain::existing_links(library, &trust, tool)?;
    let Some(tool) = links.first() else {
        return Ok(Vec::new());
    };
    let Some(root) = item_root(library, &tool.item) else {
        return Ok(Vec::new());
    };
    let tools = root.path_to("tools");
    let anchor = CallAnchor::resolve(&links, &tool.item.path, tools, project)?;
    let rules = VerifyRules::parse(&links).map_err(ExecuteError::VerifyDeps)?;
    let load_dir = rules
        .load_dir(&tool.item, &anchor)
        .map_err(ExecuteError::VerifyDeps)?;
    let mut scopes: Vec<_> = load_dir
        .map(|(dir, _)| rules.scope(&dir))
        .into_iter()
        .collect();
    let anchor = tool.metadata.value("anchor");
    let anchor = anchor.and_then(|declaration| Anchor::parse(declaration).ok()?);
    let lib = anchor.and_then(|anchor| lib_scope(&tool.item, &anchor).ok()?);
    scopes.extend(lib.filter(|scope| root.path_to(&scope.dir).is_dir()));
    Ok(scopes)
}

/// Scope of the `lib` directory of a runtime's anchor, which is relative to the runtime.
pub(super) fn lib_scope(runtime: &Item, anchor: &Anchor) -> Result<Option<Scope>, AnchorError> {
    let Some(lib) = &anchor.lib else {
        return Ok(None);
    };
    let parts: Vec<_> = lib.split('/').filter(|part| !part.is_empty()).collect();
    let is_dots = |part: &&str| matches!(*part, "." | "..");
    if lib.starts_with('/') || parts.is_empty() || parts.iter().any(is_dots) {
        let reason = format!("`lib`: `{lib}` is not a path below the runtime's directory");
        return Err(AnchorError::InvalidDeclaration(reason));
    }
    Ok(Some(Scope {
        dir: format!("{}/{}", tool_dir(runtime), parts.join("/")),
        recursive: true,
        exclude_dirs: EXCLUDED_DIRS.map(str::to_owned).to_vec(),
    }))
}

/// Warning about unverified files that development mode accepts.
pub(super) fn dev_mode_warning(dependencies: Option<Dependencies>) -> Option<String> {
    let waived = dependencies?.waived;
    let files = match waived {
        0 => return None,
        1 => "1 unverified file".to_owned(),
        many => format!("{many} unverified files"),
    };
    Some(format!(
        "RYE_DEV_MODE accepts {files} that the tool can load"
    ))
}

/// The root of the space that an item was found in.
fn item_root<'l>(library: &'l Library, item: &Item) -> Option<&'l Root> {
    let mut roots = library.spaces().roots_in(item.space);
    roots.find(|root| root.bundle() == item.bundle.as_deref())
}

/// Argument of `rye sign` for an item. User items need a path, because the project may contain
/// an item with the same id.
fn sign_argument(item: &Item) -> String {
    match item.space {
        Space::User => shell_word(&item.path),
        _ => item.reference.id.to_string(),
    }
}

/// Directory of a tool, relative to `.ai/`.
fn tool_dir(item: &Item) -> String {
    match item.reference.id.dir() {
        "" => "tools".to_owned(),
        dir => format!("tools/{dir}"),
    }
}

/// The `verify_deps` declaration of the link nearest to the tool.
struct VerifyRules {
    base: LoadBase,
    recursive: bool,
    exclude_dirs: Vec<String>,
    /// Whether a link declares `verify_deps`.
    is_declared: bool,
    /// Whether a link declares an anchor.
    has_anchor: bool,
}

/// The directory that a tool loads from.
enum LoadBase {
    /// The tool loads no other files.
    None,
    ToolDir,
    Anchor,
}

impl VerifyRules {
    fn parse(links: &[Link]) -> Result<Self, String> {
        let value = |key: &str| {
            let mut links = links.iter();
            links.find_map(|link| link.metadata.value(key))
        };
        let declaration = value("verify_deps").unwrap_or(&Value::Null);
        let has_anchor = value("anchor").is_some();
        let excluded = EXCLUDED_DIRS.map(str::to_owned).to_vec();
        let is_enabled = declaration.is_null() || value_ext::flag(declaration, "enabled", true)?;
        let mut rules = Self {
            base: LoadBase::None,
            recursive: true,
            exclude_dirs: excluded,
            is_declared: !declaration.is_null(),
            has_anchor,
        };
        if declaration.is_null() {
            rules.base = LoadBase::Anchor;
            return Ok(rules);
        }
        if !is_enabled {
            return Ok(rules);
        }
        // Only validated: all files that can be loaded are verified, whatever their extension.
        value_ext::texts(declaration, "extensions")?;
        rules.recursive = value_ext::flag(declaration, "recursive", true)?;
        if let Some(dirs) = value_ext::texts(declaration, "exclude_dirs")? {
            rules.exclude_dirs = dirs;
        }
        let is_invalid =
            |dir: &&String| matches!(dir.as_str(), "" | "." | "..") || dir.contains('/');
        if let Some(dir) = rules.exclude_dirs.iter().find(is_invalid) {
            return Err(format!("`exclude_dirs`: `{dir}` is not a directory name"));
        }
        rules.base = match value_ext::text(declaration, "scope")?.unwrap_or("anchor") {
            "tool_file" => LoadBase::None,
            "tool_siblings" => {
                rules.recursive = false;
                LoadBase::ToolDir
            }
            "tool_dir" => LoadBase::ToolDir,
            "anchor" => LoadBase::Anchor,
            other => {
                return Err(format!(
                    "unknown scope `{other}`; expected anchor, tool_dir, tool_siblings or tool_file"
                ));
            }
        };
        Ok(rules)
    }

    fn scope(&self, dir: &str) -> Scope {
        Scope {
            dir: dir.to_owned(),
            recursive: self.recursive,
            exclude_dirs: self.exclude_dirs.clone(),
        }
    }

    /// The directory that the tool loads from, relative to `.ai/`, and its depth below the
    /// anchor; `None` if the tool has no dependencies.
    fn load_dir(
        &self,
        item: &Item,
        anchor: &CallAnchor,
    ) -> Result<Option<(String, usize)>, String> {
        let tool_dir = tool_dir(item);
        let depth_below = |anchor_path: &Path| {
            let relative = anchor.tool_dir.strip_prefix(anchor_path).ok()?;
            Some(relative.components().count())
        };
        let location = &anchor.location;
        match self.base {
            LoadBase::None => Ok(None),
            LoadBase::ToolDir => {
                let is_inside = location.path.starts_with(&anchor.tools);
                let depth = depth_below(&location.path).filter(|_| is_inside);
                Ok(Some((tool_dir, depth.unwrap_or_default())))
            }
            LoadBase::Anchor => {
                if !location.is_marked {
                    return Ok(None);
                }
                let anchor_dir =
                    depth_below(&location.path).and_then(|levels| ancestor(&tool_dir, levels));
                match anchor_dir {
                    Some(dir) => Ok(Some((dir.to_owned(), 0))),
                    None if self.is_declared => {
                        Err("the anchor is outside the space; use `scope: tool_dir`".to_owned())
                    }
                    None => Ok(None),
                }
            }
        }
    }
}

/// The directory some levels above another one; `None` above `tools`.
fn ancestor(dir: &str, levels: usize) -> Option<&str> {
    let mut dir = dir;
    for _ in 0..levels {
        dir = dir.rsplit_once('/')?.0;
    }
    Some(dir)
}
