//! What placeholders stand for in a call, and the places behind them.

use std::path::{Path, PathBuf};

use rye_items::metadata::Metadata;
use rye_items::{Item, Library, Space};
use serde_json::Value;

use super::Executor;
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
    /// The declaration and where it leads, if there is one.
    pub declared: Option<(Anchor, Anchored, String)>,
    /// The folder that `lib` of the declaration names.
    pub runtime_lib: Option<PathBuf>,
}

impl CallAnchor {
    /// The anchor, or the tool's folder where there is none.
    pub fn path(&self) -> &Path {
        self.declared
            .as_ref()
            .map_or(&self.tool_dir, |(_, anchored, _)| &anchored.path)
    }
}

impl Executor {
    /// Finds the anchor that the nearest link to the tool declares.
    pub(super) fn anchor(
        &self,
        library: &Library,
        chain: &Chain,
    ) -> Result<CallAnchor, ExecuteError> {
        let tool_path = self.path_of(&chain.tool().item)?;
        let tool_dir = parent(&tool_path);
        let declaring = chain
            .links
            .iter()
            .find_map(|link| Some((link, link.metadata.value("anchor")?)));
        let Some((link, about)) = declaring else {
            return Ok(CallAnchor {
                tool_dir,
                declared: None,
                runtime_lib: None,
            });
        };
        let id = link.id().to_string();
        let wrong = |source| ExecuteError::Anchor {
            id: id.clone(),
            source,
        };
        let Some(anchor) = Anchor::read(about).map_err(wrong)? else {
            return Ok(CallAnchor {
                tool_dir,
                declared: None,
                runtime_lib: None,
            });
        };
        let tools = self.tools_folder(library, chain.tool())?;
        let anchored = anchor
            .find(&tool_dir, &tools, &self.places.project)
            .map_err(wrong)?;
        let runtime_lib = self.runtime_lib(link, &anchor)?;
        let folders = [
            ("anchor_path", anchored.path.as_path()),
            (
                "runtime_lib",
                runtime_lib.as_deref().unwrap_or(Path::new("")),
            ),
            ("tool_dir", &tool_dir),
            ("tool_parent", &parent(&tool_dir)),
            ("project_path", &self.places.project),
        ];
        let with_colon = |path: &Path| path.as_os_str().as_encoded_bytes().contains(&b':');
        if folders.iter().any(|(_, path)| with_colon(path)) {
            let mut names = Names::default();
            for (name, path) in folders {
                names.set(name, text(path)?, Origin::Fact);
            }
            environment::are_single_folders(&anchor.env_paths, &names).map_err(wrong)?;
        }
        Ok(CallAnchor {
            tool_dir,
            declared: Some((anchor, anchored, id)),
            runtime_lib,
        })
    }

    /// What the placeholders stand for: parameters and defaults of the runtimes,
    /// and over them the facts, which no parameter can replace.
    pub(super) fn facts(
        &self,
        chain: &Chain,
        anchor: &CallAnchor,
        parameters: &Value,
    ) -> Result<Names, ExecuteError> {
        let tool = chain.tool();
        let mut names = parameter_names(&chain.metadata(), parameters);
        let source = self.path_of(&tool.item)?;
        let primitive = self.primitives.get(chain.primitive().id());
        let runs_programs = primitive.is_none_or(|primitive| primitive.runs_programs());
        let copy = if runs_programs {
            tool.item.materialise(&self.places.cache)?
        } else {
            source.clone()
        };
        for (name, path) in [
            ("tool_path", copy.as_path()),
            ("tool_source", &source),
            ("tool_dir", &anchor.tool_dir),
            ("tool_parent", &parent(&anchor.tool_dir)),
            ("project_path", &self.places.project),
            ("anchor_path", anchor.path()),
        ] {
            names.set(name, text(path)?, Origin::Fact);
        }
        let lib = anchor
            .runtime_lib
            .as_deref()
            .map_or(Ok(String::new()), text)?;
        names.set("runtime_lib", lib, Origin::Fact);
        let user = self.places.user.as_ref().map(|user| user.join(".ai"));
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

    /// Where an item's file is, also for one inside the binary.
    fn path_of(&self, item: &Item) -> Result<PathBuf, ExecuteError> {
        if item.space != Space::System || item.path.is_absolute() {
            return Ok(item.path.clone());
        }
        let relative = format!(
            "{}/{}{}",
            item.reference.kind.folder(),
            item.reference.id,
            item.extension
        );
        Ok(self.system_folder()?.join(".ai").join(relative))
    }

    /// A folder that no one else can write to, for what interpreters keep between
    /// calls: compiled code, for one, which must not come from a project.
    fn private_cache(&self) -> Result<PathBuf, ExecuteError> {
        let folder = self.places.cache.join("private");
        rye_items::own_folder(&folder)?;
        Ok(folder)
    }

    fn system_folder(&self) -> Result<PathBuf, ExecuteError> {
        Ok(system::folder(self.places.embedded, &self.places.cache)?)
    }

    fn tools_folder(&self, library: &Library, link: &Link) -> Result<PathBuf, ExecuteError> {
        let item = &link.item;
        let mut roots = library.spaces().of(item.space);
        let root = roots.find(|root| root.bundle() == item.bundle.as_deref());
        Ok(match root.and_then(|root| root.as_folder()) {
            Some(folder) => folder.join("tools"),
            None => self.system_folder()?.join(".ai/tools"),
        })
    }

    /// `lib` is relative to the folder of the runtime that declares it.
    fn runtime_lib(&self, link: &Link, anchor: &Anchor) -> Result<Option<PathBuf>, ExecuteError> {
        let Some(lib) = &anchor.lib else {
            return Ok(None);
        };
        let folder = parent(&self.path_of(&link.item)?).join(lib);
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
