//! What placeholders stand for in a call, and the roots behind them.

use std::path::{Path, PathBuf};

use rye_items::metadata::Metadata;
use rye_items::{Item, Library, Scope, Space};
use serde_json::Value;

use super::Executor;
use super::dependencies::{self, Copies, Loadable};
use super::system;
use crate::anchor::{Anchor, Anchored};
use crate::chain::{Chain, Link};
use crate::environment;
use crate::error::ExecuteError;
use crate::template::{Names, Origin};

/// The anchor of a call, and who declares it.
#[derive(Debug, Clone)]
pub struct CallAnchor {
    /// The folder that has the tool.
    pub tool_dir: PathBuf,
    /// The folder `tools/` of its space.
    pub tools: PathBuf,
    /// Where the anchor is: the tool's folder if nothing says otherwise.
    pub anchored: Anchored,
    /// The declaration and the id of the link that has it, if there is one.
    pub declared: Option<(Anchor, String)>,
    /// The runtime whose anchor names a `lib`, and the directory that it is.
    pub runtime_lib: Option<(String, Scope)>,
}

impl CallAnchor {
    /// Finds the anchor that the nearest link to the tool declares. `tools` is the folder of
    /// that name in the tool's space.
    pub(super) fn find(
        links: &[Link],
        tool_path: &Path,
        tools: PathBuf,
        project: &Path,
    ) -> Result<Self, ExecuteError> {
        let tool_dir = parent(tool_path);
        let mut links = links.iter();
        let declaring = links.find_map(|link| Some((link, link.metadata.value("anchor")?)));
        let (mut declared, mut runtime_lib) = (None, None);
        if let Some((link, about)) = declaring {
            let id = link.id().to_string();
            let wrong = |source| ExecuteError::Anchor {
                id: id.clone(),
                source,
            };
            if let Some(anchor) = Anchor::read(about).map_err(wrong)? {
                let lib = dependencies::lib_scope(&link.item, &anchor).map_err(wrong)?;
                runtime_lib = lib.map(|scope| (id.clone(), scope));
                declared = Some((anchor, id));
            }
        }
        let undeclared = Anchor::undeclared();
        let anchor = declared.as_ref().map_or(&undeclared, |(anchor, _)| anchor);
        let anchored =
            anchor
                .find(&tool_dir, &tools, project)
                .map_err(|source| ExecuteError::Anchor {
                    id: declared
                        .as_ref()
                        .map(|(_, id)| id.clone())
                        .unwrap_or_default(),
                    source,
                })?;
        Ok(Self {
            tool_dir,
            tools,
            anchored,
            declared,
            runtime_lib,
        })
    }

    /// The anchor.
    pub fn path(&self) -> &Path {
        &self.anchored.path
    }
}

impl Executor {
    /// Finds the anchor of a call.
    pub(super) fn anchor(
        &self,
        library: &Library,
        chain: &Chain,
    ) -> Result<CallAnchor, ExecuteError> {
        let tool_path = self.path_of(&chain.tool().item)?;
        let tools = self.tools_folder(library, chain.tool())?;
        CallAnchor::find(&chain.links, &tool_path, tools, &self.roots.project)
    }

    /// What the placeholders stand for: parameters and defaults of the runtimes,
    /// and over them the facts, which no parameter can replace.
    pub(super) fn facts(
        &self,
        chain: &Chain,
        anchor: &CallAnchor,
        loadable: &Loadable,
        parameters: &Value,
    ) -> Result<Names, ExecuteError> {
        let tool = chain.tool();
        let mut names = parameter_names(&chain.metadata(), parameters);
        let primitive = self.primitives.get(chain.primitive().id());
        let runs_programs = primitive.is_none_or(|primitive| primitive.runs_programs());
        self.set_paths(&mut names, chain, anchor, loadable, runs_programs)?;
        let user = self.roots.user.as_ref().map(|user| user.join(".ai"));
        names.set(
            "user_space",
            user.as_deref().map_or(Ok(String::new()), text)?,
            Origin::Fact,
        );
        if runs_programs {
            let system = self.system_folder()?.join(".ai");
            names.set("system_space", text(&system)?, Origin::Fact);
            names.set("private_cache", text(&self.private_cache()?)?, Origin::Fact);
        }
        for (key, link) in &chain.named {
            let path = self.path_of(&link.item)?;
            names.set(format!("{key}_config_path"), text(&path)?, Origin::Fact);
        }
        names.set("params_json", parameters.to_string(), Origin::Parameter);
        if names.get("tool_name").is_none() {
            names.set("tool_name", tool.id().name(), Origin::Fact);
        }
        Ok(names)
    }

    /// Sets the roots of a call, and makes the copies that a program loads from.
    fn set_paths(
        &self,
        names: &mut Names,
        chain: &Chain,
        anchor: &CallAnchor,
        loadable: &Loadable,
        runs_programs: bool,
    ) -> Result<(), ExecuteError> {
        let tool = chain.tool();
        let source = self.path_of(&tool.item)?;
        let copies = if runs_programs {
            loadable.copy(&self.roots.cache)?
        } else {
            Copies {
                tool: Some((source.clone(), anchor.path().to_owned())),
                lib: None,
            }
        };
        let (tool_path, tool_dir, anchor_path) = match copies.tool {
            Some((copy, folder)) => {
                // An anchor outside the tools is a place to work in, not one to load from.
                let is_outside = !anchor.path().starts_with(&anchor.tools);
                let folder = if is_outside {
                    anchor.path().to_owned()
                } else {
                    folder
                };
                let tool_dir = parent(&copy);
                (copy, tool_dir, folder)
            }
            None => (
                tool.item.materialise(&self.roots.cache)?,
                anchor.tool_dir.clone(),
                anchor.path().to_owned(),
            ),
        };
        let runtime_lib = match (copies.lib, &anchor.runtime_lib) {
            (Some(lib), _) => Some(lib),
            (None, Some((id, scope))) if runs_programs => self.embedded_lib(chain, id, scope)?,
            (None, _) => None,
        };
        let folders = [
            ("tool_dir", tool_dir.as_path()),
            ("tool_parent", &parent(&tool_dir)),
            ("project_path", &self.roots.project),
            ("anchor_path", &anchor_path),
            (
                "runtime_lib",
                runtime_lib.as_deref().unwrap_or(Path::new("")),
            ),
        ];
        for (name, path) in [("tool_path", tool_path.as_path()), ("tool_source", &source)]
            .into_iter()
            .chain(folders)
        {
            names.set(name, text(path)?, Origin::Fact);
        }
        let with_colon = |path: &Path| path.as_os_str().as_encoded_bytes().contains(&b':');
        if let Some((declared, id)) = &anchor.declared
            && folders.iter().any(|(_, path)| with_colon(path))
        {
            let checked = environment::are_single_folders(&declared.env_paths, names);
            checked.map_err(|source| ExecuteError::Anchor {
                id: id.clone(),
                source,
            })?;
        }
        Ok(())
    }

    /// Where an item's file is, also for one inside the binary.
    fn path_of(&self, item: &Item) -> Result<PathBuf, ExecuteError> {
        if item.space != Space::System || item.path.is_absolute() {
            return Ok(item.path.clone());
        }
        let relative = format!(
            "{}/{}{}",
            item.reference.kind.dir(),
            item.reference.id,
            item.extension
        );
        Ok(self.system_folder()?.join(".ai").join(relative))
    }

    /// A folder that no one else can write to, for what interpreters keep between
    /// calls: compiled code, for one, which must not come from a project.
    fn private_cache(&self) -> Result<PathBuf, ExecuteError> {
        let folder = self.roots.cache.join("private");
        rye_items::ensure_owner_only_dir(&folder)?;
        Ok(folder)
    }

    fn system_folder(&self) -> Result<PathBuf, ExecuteError> {
        Ok(system::folder(self.roots.embedded, &self.roots.cache)?)
    }

    fn tools_folder(&self, library: &Library, link: &Link) -> Result<PathBuf, ExecuteError> {
        let item = &link.item;
        let mut roots = library.spaces().roots_in(item.space);
        let root = roots.find(|root| root.bundle() == item.bundle.as_deref());
        Ok(match root.and_then(|root| root.as_dir()) {
            Some(folder) => folder.join("tools"),
            None => self.system_folder()?.join(".ai/tools"),
        })
    }

    /// The `lib` of a runtime inside the program, as it is written to the cache.
    fn embedded_lib(
        &self,
        chain: &Chain,
        runtime: &str,
        scope: &Scope,
    ) -> Result<Option<PathBuf>, ExecuteError> {
        let link = chain
            .links
            .iter()
            .find(|link| link.id().as_str() == runtime);
        let is_embedded =
            link.is_some_and(|link| link.space() == Space::System && !link.item.path.is_absolute());
        if !is_embedded {
            return Ok(None);
        }
        let folder = self.system_folder()?.join(".ai").join(&scope.dir);
        Ok(folder.is_dir().then_some(folder))
    }
}

/// What the placeholders of a chain's own names stand for: defaults and configuration of what
/// its runtimes declare, and the call's parameters. `chain` is the metadata of its links, the
/// tool's first.
pub(super) fn parameter_names(chain: &[&Metadata], parameters: &Value) -> Names {
    let mut names = Names::default();
    let Some((tool, above)) = chain.split_first() else {
        return names;
    };
    // What a primitive declares is its configuration, no parameter.
    let runtimes = above.split_last().map_or(&[][..], |(_, runtimes)| runtimes);
    for runtime in runtimes.iter().rev() {
        for (name, about) in declared(runtime) {
            if let Some(default) = about.get("default") {
                names.set(name, default.clone(), Origin::Configuration);
            }
            // What a runtime declares, the tool's configuration may set.
            let config = tool.value("config");
            if let Some(value) = config.and_then(|config| config.get(name)) {
                names.set(name, value.clone(), Origin::Configuration);
            }
        }
    }
    for (name, value) in parameters.as_object().into_iter().flatten() {
        // A parameter is never code: a runtime's own name keeps its meaning,
        // unless it is the runtime itself that was called.
        let is_runtimes = runtimes
            .iter()
            .any(|runtime| declared(runtime).any(|(n, _)| n == name));
        if !is_runtimes {
            let own = declared(tool).any(|(n, _)| n == name) && tool.tool_type() == Some("runtime");
            let origin = if own { Origin::Code } else { Origin::Parameter };
            names.set(name.clone(), value.clone(), origin);
        }
    }
    names
}

/// The parameters that an item declares.
pub(super) fn declared(item: &Metadata) -> impl Iterator<Item = (&String, &Value)> {
    let schema = item.config_schema();
    let properties = schema.and_then(|schema| schema.get("properties"));
    properties.and_then(Value::as_object).into_iter().flatten()
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

fn text(path: &Path) -> Result<String, ExecuteError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| ExecuteError::NotText(path.to_owned()))
}
