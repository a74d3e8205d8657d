//! Values of the placeholders of a call: parameters, configuration and paths.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rye_items::metadata::Metadata;
use rye_items::{Item, Library, Scope, Space};
use serde_json::{Map, Value};

use super::Executor;
use super::dependencies::{self, LoadableFiles, PrivateCopies};
use super::system_space;
use crate::anchor::{Anchor, AnchorLocation};
use crate::chain::{Chain, Link};
use crate::environment;
use crate::error::ExecuteError;
use crate::parameters;
use crate::template::{self, Origin, Placeholders};

/// The resolved anchor of a call.
#[derive(Debug, Clone)]
pub struct CallAnchor {
    /// Directory of the tool.
    pub tool_dir: PathBuf,
    /// The `tools/` directory of the tool's space.
    pub tools: PathBuf,
    /// The anchor directory; by default the tool's directory.
    pub location: AnchorLocation,
    /// The anchor declaration and the id of the link that contains it.
    pub declared: Option<(Anchor, String)>,
    /// Id of the runtime whose anchor names a `lib`, and the scope of that directory.
    pub runtime_lib: Option<(String, Scope)>,
}

impl CallAnchor {
    /// Resolves the anchor that the link nearest to the tool declares. `tools` is the `tools/`
    /// directory of the tool's space.
    pub(super) fn resolve(
        links: &[Link],
        tool_path: &Path,
        tools: PathBuf,
        project: &Path,
    ) -> Result<Self, ExecuteError> {
        let tool_dir = parent(tool_path);
        let mut links = links.iter();
        let declaration = links.find_map(|link| Some((link, link.metadata.value("anchor")?)));
        let (mut declared, mut runtime_lib) = (None, None);
        if let Some((link, declaration)) = declaration {
            let id = link.id().to_string();
            let invalid = |source| ExecuteError::Anchor {
                id: id.clone(),
                source,
            };
            if let Some(anchor) = Anchor::parse(declaration).map_err(invalid)? {
                let lib = dependencies::lib_scope(&link.item, &anchor).map_err(invalid)?;
                runtime_lib = lib.map(|scope| (id.clone(), scope));
                declared = Some((anchor, id));
            }
        }
        let undeclared = Anchor::undeclared();
        let anchor = declared.as_ref().map_or(&undeclared, |(anchor, _)| anchor);
        let location = anchor
            .locate(&tool_dir, &tools, project)
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
            location,
            declared,
            runtime_lib,
        })
    }

    /// The anchor directory.
    pub fn path(&self) -> &Path {
        &self.location.path
    }
}

impl Executor {
    /// Resolves the anchor of a call.
    pub(super) fn anchor(
        &self,
        library: &Library,
        chain: &Chain,
    ) -> Result<CallAnchor, ExecuteError> {
        let tool_path = self.item_path(&chain.tool().item)?;
        let tools = self.tools_dir(library, chain.tool())?;
        CallAnchor::resolve(&chain.links, &tool_path, tools, &self.roots.project)
    }

    /// Values of all placeholders of a call. Facts override parameters and defaults of the
    /// runtimes.
    pub(super) fn placeholders(
        &self,
        chain: &Chain,
        anchor: &CallAnchor,
        loadable: &LoadableFiles,
        parameters: &Value,
        config: &Map<String, Value>,
    ) -> Result<Placeholders, ExecuteError> {
        let tool = chain.tool();
        let mut names = parameter_placeholders(&chain.metadata(), parameters);
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
            let system = self.system_dir()?.join(".ai");
            names.set("system_space", text(&system)?, Origin::Fact);
            names.set("private_cache", text(&self.private_cache()?)?, Origin::Fact);
        }
        for (key, link) in &chain.named {
            let path = self.item_path(&link.item)?;
            names.set(format!("{key}_config_path"), text(&path)?, Origin::Fact);
        }
        let json = parameters::to_json(tool.metadata.config_schema(), parameters);
        names.set("params_json", json, Origin::Parameter);
        if names.get("tool_name").is_none() {
            names.set("tool_name", tool.id().name(), Origin::Fact);
        }
        let keeps_optional = primitive.is_none_or(|primitive| primitive.optional_keys().is_empty());
        set_config_values(&mut names, &chain.metadata(), config, keeps_optional);
        Ok(names)
    }

    /// Sets the path placeholders and creates the private copies that programs load from.
    fn set_paths(
        &self,
        names: &mut Placeholders,
        chain: &Chain,
        anchor: &CallAnchor,
        loadable: &LoadableFiles,
        runs_programs: bool,
    ) -> Result<(), ExecuteError> {
        let tool = chain.tool();
        let source = self.item_path(&tool.item)?;
        let copies = if runs_programs {
            loadable.copy(&self.roots.cache)?
        } else {
            PrivateCopies {
                tool: Some((source.clone(), anchor.path().to_owned())),
                lib: None,
            }
        };
        let (tool_path, tool_dir, anchor_path) = match copies.tool {
            Some((copy, anchor_copy)) => {
                // An anchor outside of `tools/` is a working directory, not a source of code.
                let is_outside = !anchor.path().starts_with(&anchor.tools);
                let anchor_path = if is_outside {
                    anchor.path().to_owned()
                } else {
                    anchor_copy
                };
                let tool_dir = parent(&copy);
                (copy, tool_dir, anchor_path)
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
        let declared_lib = anchor.declared.as_ref();
        let declared_lib = declared_lib.and_then(|(declared, _)| declared.lib.as_ref());
        let anchor_lib = declared_lib
            .filter(|_| anchor.path().starts_with(&anchor.tools))
            .map(|lib| anchor_path.join(lib))
            .filter(|lib| lib.is_dir());
        let runtime_lib = runtime_lib.or_else(|| anchor_lib.clone());
        let dirs = [
            ("tool_dir", tool_dir.as_path()),
            ("tool_parent", &parent(&tool_dir)),
            ("project_path", &self.roots.project),
            ("anchor_path", &anchor_path),
            (
                "runtime_lib",
                runtime_lib.as_deref().unwrap_or(Path::new("")),
            ),
            ("anchor_lib", anchor_lib.as_deref().unwrap_or(Path::new(""))),
        ];
        for (name, path) in [("tool_path", tool_path.as_path()), ("tool_source", &source)]
            .into_iter()
            .chain(dirs)
        {
            names.set(name, text(path)?, Origin::Fact);
        }
        let has_colon = |path: &Path| path.as_os_str().as_encoded_bytes().contains(&b':');
        if let Some((declared, id)) = &anchor.declared
            && dirs.iter().any(|(_, path)| has_colon(path))
        {
            let checked = environment::check_single_dirs(&declared.env_paths, names);
            checked.map_err(|source| ExecuteError::Anchor {
                id: id.clone(),
                source,
            })?;
        }
        Ok(())
    }

    /// Path of an item's file; for an embedded item, that of its copy in the cache.
    fn item_path(&self, item: &Item) -> Result<PathBuf, ExecuteError> {
        if item.space != Space::System || item.path.is_absolute() {
            return Ok(item.path.clone());
        }
        let relative = format!(
            "{}/{}{}",
            item.reference.kind.dir(),
            item.reference.id,
            item.extension
        );
        Ok(self.system_dir()?.join(".ai").join(relative))
    }

    /// Directory that only this user can write to, for files that interpreters keep between
    /// calls, such as compiled code.
    fn private_cache(&self) -> Result<PathBuf, ExecuteError> {
        let dir = self.roots.cache.join("private");
        rye_items::ensure_owner_only_dir(&dir)?;
        Ok(dir)
    }

    /// Directory with the embedded bundle of the system space.
    fn system_dir(&self) -> Result<PathBuf, ExecuteError> {
        Ok(system_space::materialise(
            self.roots.embedded,
            &self.roots.cache,
        )?)
    }

    /// The `tools/` directory of the space that a link was found in.
    fn tools_dir(&self, library: &Library, link: &Link) -> Result<PathBuf, ExecuteError> {
        let item = &link.item;
        let mut roots = library.spaces().roots_in(item.space);
        let root = roots.find(|root| root.bundle() == item.bundle.as_deref());
        Ok(match root.and_then(|root| root.as_dir()) {
            Some(dir) => dir.join("tools"),
            None => self.system_dir()?.join(".ai/tools"),
        })
    }

    /// Path of the `lib` of an embedded runtime, in the cache.
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
        let dir = self.system_dir()?.join(".ai").join(&scope.dir);
        Ok(dir.is_dir().then_some(dir))
    }
}

/// The verified files that a confined program must be able to read.
pub(super) fn program_files(
    names: &Placeholders,
    anchor: &CallAnchor,
    loadable: &LoadableFiles,
) -> Vec<PathBuf> {
    let mut facts = vec![
        "tool_path",
        "tool_dir",
        "runtime_lib",
        "system_space",
        "private_cache",
    ];
    // Another anchor is a working directory.
    if anchor.path().starts_with(&anchor.tools) {
        facts.push("anchor_path");
    }
    let paths = facts
        .into_iter()
        .filter_map(|name| names.get(name)?.as_str());
    let paths = paths.filter(|path| !path.is_empty()).map(PathBuf::from);
    let environments = loadable.environments().map(|it| it.path.clone());
    paths.chain(environments).collect()
}

/// Values of the parameters of a call and of the parameters that its runtimes declare. `chain`
/// contains the metadata of the links, the tool first.
pub(super) fn parameter_placeholders(chain: &[&Metadata], parameters: &Value) -> Placeholders {
    let mut names = Placeholders::default();
    let Some((tool, executors)) = chain.split_first() else {
        return names;
    };
    // The schema of a primitive declares configuration, not parameters.
    let runtimes = executors
        .split_last()
        .map_or(&[][..], |(_, runtimes)| runtimes);
    for runtime in runtimes.iter().rev() {
        for (name, schema) in declared_parameters(runtime) {
            if let Some(default) = schema.get("default") {
                names.set(name, default.clone(), Origin::Configuration);
            }
            // The tool's configuration may set the parameters of its runtime.
            let config = tool.value("config");
            if let Some(value) = config.and_then(|config| config.get(name)) {
                names.set(name, value.clone(), Origin::Configuration);
            }
        }
    }
    for (name, value) in parameters.as_object().into_iter().flatten() {
        // A parameter cannot override one that the runtime declares and uses, which may be code.
        // Only a direct call of the runtime sets it.
        let mut users = runtimes.iter();
        let is_runtime_parameter = users.any(|runtime| {
            declared_parameters(runtime).any(|(n, _)| n == name) && uses(runtime, name)
        });
        if !is_runtime_parameter {
            let is_declared = declared_parameters(tool).any(|(n, _)| n == name);
            let is_code = is_declared && tool.tool_type() == Some("runtime");
            let origin = if is_code {
                Origin::Code
            } else {
                Origin::Parameter
            };
            names.set(name.clone(), value.clone(), origin);
        }
    }
    names
}

/// Sets the strings, numbers and booleans of the merged configuration as placeholders. Parameters,
/// the paths and names of the call, and the parameters that runtimes declare have precedence. A
/// value may refer to other values, nested at most three levels deep. A value that refers to an
/// unknown name is not set. If not
/// `keeps_optional`, a parameter that the tool declares and the call does not pass stays unset.
pub(super) fn set_config_values(
    names: &mut Placeholders,
    chain: &[&Metadata],
    config: &Map<String, Value>,
    keeps_optional: bool,
) {
    const PASSES: usize = 3;
    let (tool, executors) = chain.split_at(chain.len().min(1));
    let runtimes = executors
        .split_last()
        .map_or(&[][..], |(_, runtimes)| runtimes);
    let declaring = runtimes
        .iter()
        .chain(tool.iter().filter(|_| !keeps_optional));
    let declared: BTreeSet<&str> = declaring
        .flat_map(|item| declared_parameters(item).map(|(name, _)| name.as_str()))
        .collect();
    for _ in 0..PASSES {
        for (name, value) in config {
            let is_scalar = value.is_string() || value.is_number() || value.is_boolean();
            if !is_scalar || declared.contains(name.as_str()) || names.get(name).is_some() {
                continue;
            }
            let (mut used, mut variables) = (BTreeSet::new(), BTreeSet::new());
            template::collect_placeholder_names(value, &mut used);
            template::collect_variable_names(value, &mut variables);
            if variables.is_empty() && used.iter().all(|name| names.get(name).is_some()) {
                names.set(name.clone(), value.clone(), Origin::Configuration);
            }
        }
    }
}

/// Whether a runtime uses a placeholder.
fn uses(runtime: &Metadata, name: &str) -> bool {
    let keys = ["config", "env_config", "anchor"];
    let mut used = BTreeSet::new();
    for value in keys.iter().filter_map(|key| runtime.value(key)) {
        template::collect_placeholder_names(value, &mut used);
    }
    used.contains(name)
}

/// Parameters that an item declares, with their schemas.
pub(super) fn declared_parameters(item: &Metadata) -> impl Iterator<Item = (&String, &Value)> {
    let schema = item.config_schema();
    let properties = schema.and_then(|schema| schema.get("properties"));
    properties.and_then(Value::as_object).into_iter().flatten()
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

fn text(path: &Path) -> Result<String, ExecuteError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| ExecuteError::NotUtf8(path.to_owned()))
}
