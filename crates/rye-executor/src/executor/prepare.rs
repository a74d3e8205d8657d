//! From a validated chain to a call that is ready.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lillux::cas::Cas;
use rye_items::metadata;
use rye_items::{Dependencies, ItemKind, Library, Scope};
use serde_json::{Map, Value, json};

use super::Executor;
use super::facts::CallAnchor;
use crate::chain::Chain;
use crate::config::{self, Mode};
use crate::dotenv;
use crate::environment::{Environment, Origin};
use crate::error::ExecuteError;
use crate::interpreter;
use crate::parameters;
use crate::primitive::Call;
use crate::template::{self, Names, Quoting};
use crate::trace::Trace;

/// Programs that parse what follows `-c`.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "ash"];

/// What a call runs in.
pub(super) struct Surroundings {
    pub(super) cwd: PathBuf,
    pub(super) timeout: Option<Duration>,
    pub(super) spill: Option<Cas>,
    /// The parts of the configuration whose fields may be left out.
    pub(super) optional: &'static [&'static str],
}

/// Verifies what the tool brings with it, as the nearest link says.
pub(super) fn verify_dependencies(
    library: &Library,
    chain: &Chain,
    anchor: &CallAnchor,
) -> Result<Option<Dependencies>, ExecuteError> {
    let about = chain
        .links
        .iter()
        .find_map(|link| link.metadata.value("verify_deps"));
    let Some(about) = about.filter(|about| about.get("enabled") != Some(&json!(false))) else {
        return Ok(None);
    };
    let item = &chain.tool().item;
    let tool_folder = match item.reference.id.folder() {
        "" => "tools".to_owned(),
        folder => format!("tools/{folder}"),
    };
    let recursive = about
        .get("recursive")
        .and_then(Value::as_bool)
        .unwrap_or(true);
    let (folder, recursive) = match about
        .get("scope")
        .and_then(Value::as_str)
        .unwrap_or("anchor")
    {
        "tool_file" => return Ok(None),
        "tool_siblings" => (tool_folder, false),
        "tool_dir" => (tool_folder, recursive),
        "anchor" => match &anchor.declared {
            Some((_, anchored, _)) if anchored.is_marked => {
                let Some(folder) = above(&tool_folder, &anchor.tool_dir, &anchored.path) else {
                    let why = "the anchor is outside the space; use the scope tool_dir";
                    return Err(ExecuteError::VerifyDeps(why.to_owned()));
                };
                (folder, recursive)
            }
            // The tool's folder serves for paths only: the tool alone is covered.
            _ => return Ok(None),
        },
        other => {
            return Err(ExecuteError::VerifyDeps(format!(
                "there is no scope `{other}`; the scopes are anchor, tool_dir, tool_siblings, tool_file"
            )));
        }
    };
    let scope = Scope {
        folder,
        recursive,
        extensions: texts(about.get("extensions")),
        exclude_dirs: texts(about.get("exclude_dirs")),
    };
    let mut roots = library.spaces().of(item.space);
    let Some(root) = roots.find(|root| root.bundle() == item.bundle.as_deref()) else {
        return Ok(None);
    };
    library
        .verify_dependencies(root, &scope)
        .map(Some)
        .map_err(ExecuteError::Dependency)
}

/// The anchor as a folder of the space: as many steps above the tool's folder
/// as it is on the disk.
fn above(tool_folder: &str, tool_dir: &Path, anchor: &Path) -> Option<String> {
    let steps = tool_dir.strip_prefix(anchor).ok()?.components().count();
    let mut folder = tool_folder;
    for _ in 0..steps {
        folder = folder.rsplit_once('/')?.0;
    }
    Some(folder.to_owned())
}

/// Adds what `CONFIG_RESOLVE` of the tool asks for to its parameters.
pub(super) fn with_resolved_config(
    library: &Library,
    chain: &Chain,
    mut parameters: Value,
) -> Result<Value, ExecuteError> {
    let Some(about) = chain.tool().metadata.value("config_resolve") else {
        return Ok(parameters);
    };
    let wanted = config::wanted(about).map_err(ExecuteError::ConfigFile)?;
    let trust = library.trust();
    let mut resolved = Map::new();
    for config::Wanted { path, mode } in wanted {
        let mut files = Vec::new();
        for root in library.spaces().roots() {
            let relative = format!("config/{path}");
            // What does not count is left out, as everywhere.
            let Ok(Some(bytes)) = library.config(root, &relative, &trust) else {
                continue;
            };
            let place = root.path_of(&relative);
            let read = metadata::extract(&bytes, ".yaml", ItemKind::Config, library.extractors());
            let read = read.map_err(|error| {
                ExecuteError::ConfigFile(format!(
                    "{}:{}: {error}",
                    place.display(),
                    error.excerpt.position
                ))
            })?;
            let fields = read
                .fields
                .into_iter()
                .map(|(name, field)| (name, field.value));
            files.push(Value::Object(fields.collect()));
            if mode == Mode::FirstMatch {
                break;
            }
        }
        let combined = Value::Object(config::combine(mode, &files));
        resolved = config::merge([&Value::Object(resolved), &combined]);
    }
    if let Value::Object(parameters) = &mut parameters {
        parameters.insert("resolved_config".to_owned(), Value::Object(resolved));
    }
    Ok(parameters)
}

impl Executor {
    /// The variables of a call, from the primitive up to the tool.
    pub(super) async fn environment(
        &self,
        chain: &Chain,
        anchor: &CallAnchor,
        facts: &Names,
        inherited: Vec<(String, String)>,
    ) -> Result<Environment, ExecuteError> {
        let configs = || {
            chain
                .upwards()
                .filter_map(|link| Some((link, link.metadata.value("env_config")?)))
        };
        let minimal = configs().any(|(_, config)| config.get("inherit") == Some(&json!("minimal")));
        let mut environment = Environment::inherited(inherited, minimal);
        if let Ok(text) = std::fs::read_to_string(self.places.project.join(".env")) {
            for (name, value) in dotenv::parse(&text).variables {
                environment.set(name, value, Origin::Dotenv);
            }
        }
        for link in chain.upwards() {
            let id = link.id().to_string();
            if let Some(config) = link.metadata.value("env_config") {
                let resolvers = interpreter::read_all(config);
                let wrong = |source| ExecuteError::Interpreter {
                    id: id.clone(),
                    source,
                };
                for resolver in resolvers.map_err(wrong)? {
                    let found = self
                        .find(&resolver, facts, &environment)
                        .await
                        .map_err(wrong)?;
                    environment.set(&resolver.var, found, Origin::Interpreter(id.clone()));
                }
                environment.apply_env(config.get("env").unwrap_or(&Value::Null), facts, &id);
            }
            if let Some((declared, _, by)) = &anchor.declared
                && *by == id
            {
                environment.apply_paths(&declared.env_paths, facts, &id);
            }
        }
        let needed = chain.tool().metadata.requires_env();
        let missing: Vec<_> = needed
            .into_iter()
            .filter(|name| environment.get(name).is_none())
            .collect();
        if missing.is_empty() {
            Ok(environment)
        } else {
            Err(ExecuteError::MissingVariables(missing))
        }
    }
}

/// Where a call runs: as its anchor says, else in the project.
pub(super) fn cwd(anchor: &CallAnchor, facts: &Names, project: &Path) -> PathBuf {
    let template = anchor
        .declared
        .as_ref()
        .and_then(|(declared, ..)| declared.cwd.as_ref());
    template.map_or_else(
        || project.to_owned(),
        |text| {
            PathBuf::from(word(&template::render(
                text,
                &template::Variables::new(),
                Quoting::None,
                facts,
            )))
        },
    )
}

/// The merged configuration of the chain, rendered, and checked against the primitive's schema.
pub(super) fn call(
    chain: &Chain,
    merged: &Map<String, Value>,
    facts: &Names,
    environment: &Environment,
    parameters: Value,
    surroundings: Surroundings,
    trace: &mut Trace,
) -> Result<Call, ExecuteError> {
    trace.config("before", merged);
    let variables = environment.variables();
    let command = merged.get("command").and_then(Value::as_str);
    let command = command
        .map(|text| template::render_command(text, variables, facts))
        .transpose()?;
    let mut config = Map::new();
    for (key, value) in merged {
        let given;
        let value = if surroundings.optional.contains(&key.as_str()) {
            let Some(fields) = template::given(value, facts) else {
                continue;
            };
            given = fields;
            &given
        } else {
            value
        };
        let rendered = match (key.as_str(), &command) {
            ("command", Some(command)) => Value::String(command.clone()),
            ("args", Some(command)) => arguments(command, value, variables, facts),
            _ => template::render_value(value, variables, facts),
        };
        config.insert(key.clone(), rendered);
    }
    let mut all = environment.variables().clone();
    if let Some(Value::Object(env)) = config.remove("env") {
        all.extend(env.iter().map(|(name, value)| (name.clone(), word(value))));
    }
    trace.config("after", &config);
    let schema = chain.primitive().metadata.config_schema();
    if let Some(schema) = schema {
        parameters::check(Some(schema), Value::Object(config.clone()))
            .map_err(ExecuteError::Config)?;
    }
    let seconds = chain
        .tool()
        .metadata
        .timeout()
        .or_else(|| config.get("timeout")?.as_f64());
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok(Call {
        tool: chain.tool().item.clone(),
        config,
        environment: all,
        parameters,
        cwd: surroundings.cwd,
        timeout: surroundings.timeout.or(seconds),
        spill: surroundings.spill,
    })
}

/// Merges the chain's configurations, the tool's over all. What a runtime
/// declares as its parameter is no configuration of the tool's: `command` of a
/// bash tool is what bash runs, not what runs instead of bash.
pub(super) fn merged(chain: &Chain) -> Map<String, Value> {
    let mut merged = Map::new();
    let mut declared: Vec<&str> = Vec::new();
    for link in chain.upwards() {
        if let Some(Value::Object(own)) = link.metadata.value("config") {
            let mut own = own.clone();
            own.retain(|key, _| key == "timeout" || !declared.contains(&key.as_str()));
            merged = config::merge([&Value::Object(merged), &Value::Object(own)]);
        }
        // What a primitive declares is its configuration.
        if !std::ptr::eq(link, chain.primitive()) {
            declared.extend(properties(link));
        }
    }
    merged
}

fn properties(link: &crate::chain::Link) -> Vec<&str> {
    let schema = link.metadata.config_schema();
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
    properties
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect()
}

/// The arguments, where the one that a shell parses gets its values as words.
fn arguments(
    command: &str,
    value: &Value,
    variables: &template::Variables,
    facts: &Names,
) -> Value {
    let Value::Array(items) = value else {
        return template::render_value(value, variables, facts);
    };
    let name = command.rsplit('/').next().unwrap_or(command);
    let is_shell = SHELLS.contains(&name);
    let mut parsed_next = false;
    items
        .iter()
        .map(|item| {
            let Value::String(text) = item else {
                return item.clone();
            };
            let quoting = if std::mem::take(&mut parsed_next) {
                Quoting::Shell
            } else {
                Quoting::None
            };
            parsed_next =
                is_shell && text.starts_with('-') && !text.starts_with("--") && text.ends_with('c');
            template::render(text, variables, quoting, facts)
        })
        .collect()
}

pub(super) fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}
