//! From a validated chain to a call that is ready.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rye_items::metadata::{self, Metadata};
use rye_items::trust::{IgnoredFile, Trust};
use rye_items::{ItemKind, Library};
use serde_json::{Map, Value};

use super::code;
use super::dependencies::Loadable;
use super::facts::{self, CallAnchor};
use super::guard::Guard;
use super::program;
use super::{Approval, Executor};
use crate::chain::{Chain, Link};
use crate::config::{self, Mode};
use crate::dotenv;
use crate::environment::{self, Declared, Environment, Origin};
use crate::error::ExecuteError;
use crate::interpreter::{self, InterpreterError, Resolver};
use crate::parameters::Schemas;
use crate::primitive::{Call, OutputListener, RunContext, Spill};
use crate::template::{self, CodeKind, Names, Variables};
use crate::trace::Trace;

/// What a call runs in.
pub(super) struct Surroundings<'a> {
    pub(super) schemas: &'a Schemas,
    pub(super) cwd: PathBuf,
    pub(super) timeout: Option<Duration>,
    pub(super) spill: Spill,
    /// The parts of the configuration whose fields may be left out.
    pub(super) optional: &'static [&'static str],
    pub(super) listener: Option<OutputListener>,
    pub(super) approval: Approval,
    pub(super) run: Option<RunContext>,
}

/// Adds what `CONFIG_RESOLVE` of the tool asks for to its parameters.
pub(super) fn with_resolved_config(
    library: &Library,
    trust: &Trust<'_>,
    chain: &Chain,
    mut parameters: Value,
    warnings: &mut Vec<String>,
) -> Result<Value, ExecuteError> {
    let Some(about) = chain.tool().metadata.value("config_resolve") else {
        return Ok(parameters);
    };
    let wanted = config::wanted(about).map_err(ExecuteError::ConfigFile)?;
    let mut resolved = Map::new();
    for config::Wanted { path, mode } in wanted {
        let mut files = Vec::new();
        for root in library.spaces().roots() {
            let relative = format!("config/{path}");
            let bytes = match library.read_config(root, &relative, trust) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => continue,
                Err(IgnoredFile {
                    path, reason: why, ..
                }) => {
                    let word = lillux::shell_word(&path);
                    let path = path.display();
                    warnings.push(format!(
                        "{path} does not count: {why}; rye sign {word} # after reading it"
                    ));
                    continue;
                }
            };
            let place = root.path_to(&relative);
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

/// What a link of the chain says about its environment.
pub(super) struct EnvConfig<'c> {
    resolvers: Vec<Resolver>,
    env: &'c Value,
    pub(super) minimal: bool,
}

/// What the links say about their environment, from the primitive up to the tool.
pub(super) fn env_configs(chain: &Chain) -> Result<Vec<EnvConfig<'_>>, ExecuteError> {
    fn read(link: &Link) -> Result<EnvConfig<'_>, InterpreterError> {
        let config = link.metadata.value("env_config").unwrap_or(&Value::Null);
        let wrong = |(name, why): (&str, String)| InterpreterError::Description {
            name: name.to_owned(),
            why,
        };
        Ok(EnvConfig {
            minimal: environment::is_minimal(config).map_err(wrong)?,
            resolvers: interpreter::read_all(config)?,
            env: config.get("env").unwrap_or(&Value::Null),
        })
    }
    let all = chain.upwards().map(|link| {
        read(link).map_err(|source| ExecuteError::Interpreter {
            id: link.id().to_string(),
            source,
        })
    });
    all.collect()
}

impl Executor {
    /// Checks the programs that the tool brings along, without running anything.
    pub(super) fn check_programs(
        &self,
        chain: &Chain,
        configs: &[EnvConfig<'_>],
        anchor: &CallAnchor,
        loadable: &Loadable,
        parameters: &Value,
        inherited: impl FnOnce() -> Arc<Variables>,
    ) -> Result<(), ExecuteError> {
        let is_own = |config: &EnvConfig<'_>| config.resolvers.iter().any(program::is_own);
        if !configs.iter().any(is_own) {
            return Ok(());
        }
        let facts = self.facts(chain, anchor, loadable, parameters)?;
        let inherited = inherited();
        let path = inherited.get("PATH").map_or("", String::as_str);
        for (link, config) in chain.upwards().zip(configs) {
            for resolver in &config.resolvers {
                let checked = self.check_own(resolver, &facts, path);
                checked.map_err(|source| ExecuteError::Interpreter {
                    id: link.id().to_string(),
                    source,
                })?;
            }
        }
        Ok(())
    }

    /// The variables of a call, from the primitive up to the tool.
    pub(super) async fn environment(
        &self,
        chain: &Chain,
        configs: &[EnvConfig<'_>],
        facts: &Names,
        guard: &Guard<'_>,
        inherited: Arc<Variables>,
        warnings: &mut Vec<String>,
    ) -> Result<Environment, ExecuteError> {
        let mut environment = Environment::from(inherited);
        let file = self.roots.project.join(".env");
        match dotenv::read(&file) {
            Ok(read) => {
                if !read.variables.is_empty() {
                    environment.apply_dotenv(read.variables, &Declared::of(chain));
                }
                let told = read.problems.into_iter().map(|(line, why)| match line {
                    0 => format!("{}: {why}", file.display()),
                    line => format!("{}:{line}: {why}", file.display()),
                });
                warnings.extend(told);
            }
            Err(why) => warnings.push(format!("{} is left out: {why}", file.display())),
        }
        for (link, config) in chain.upwards().zip(configs) {
            let id = link.id().to_string();
            for resolver in &config.resolvers {
                let untrusted = environment.untrusted();
                code::check_roots(resolver, untrusted, facts).map_err(|it| it.of(chain))?;
                let space = chain.tool().item.space;
                let found = self.find(resolver, space, facts, &environment, guard).await;
                warnings.extend(guard.take_warnings());
                if let Some(error) = guard.take_error() {
                    return Err(ExecuteError::Dependency(error));
                }
                let found = found.map_err(|source| ExecuteError::Interpreter {
                    id: id.clone(),
                    source,
                })?;
                let origin = Origin::Interpreter(id.clone());
                // Interpreters keep compiled code by the path of its source.
                if let Some(hash) = guard.environment_of(Path::new(&found)) {
                    let name = format!("{}_ENVIRONMENT", resolver.var);
                    environment.set(name, hash.to_hex(), origin.clone());
                }
                environment.set(&resolver.var, found, origin);
            }
            environment.apply_env(config.env, facts, &id);
            if let Some((declared, by)) = &guard.anchor.declared
                && *by == id
            {
                let (paths, untrusted) = (&declared.env_paths, environment.untrusted());
                code::check_paths(paths, untrusted, facts).map_err(|it| it.of(chain))?;
                let path = environment.get("PATH").unwrap_or_default().to_owned();
                environment.apply_paths(paths, facts, &id);
                guard
                    .strip_unverified(&mut environment, paths, &path, &id)
                    .map_err(ExecuteError::Dependency)?;
                warnings.extend(guard.take_warnings());
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

/// Says which variables of `.env` a tool did not get, and how it would.
pub(super) fn dotenv_warning(names: &BTreeSet<String>, tool: &Link) -> String {
    let (reserved, undeclared): (Vec<&str>, Vec<&str>) = names
        .iter()
        .map(String::as_str)
        .partition(|name| environment::is_reserved(name));
    let mut parts = Vec::new();
    if !undeclared.is_empty() {
        parts.push(format!(
            "{} of .env not passed, since {} does not declare it; to pass a variable, add it to \
             `requires_env` of the tool and sign it",
            undeclared.join(", "),
            tool.id()
        ));
    }
    if !reserved.is_empty() {
        parts.push(format!(
            "{} of .env never passed; set it in your shell",
            reserved.join(", ")
        ));
    }
    parts.join("; ")
}

/// Where a call runs: as its anchor says, else in the project.
pub(super) fn cwd(anchor: &CallAnchor, facts: &Names, project: &Path) -> PathBuf {
    let template = anchor
        .declared
        .as_ref()
        .and_then(|(declared, _)| declared.cwd.as_ref());
    template.map_or_else(
        || project.to_owned(),
        |text| PathBuf::from(word(template::render(text, &Variables::new(), facts))),
    )
}

/// The merged configuration of the chain, rendered, and checked against the primitive's schema.
pub(super) fn call(
    chain: &Chain,
    merged: &Map<String, Value>,
    facts: &Names,
    environment: Environment,
    parameters: Value,
    surroundings: Surroundings<'_>,
    trace: &mut Trace,
) -> Result<Call, ExecuteError> {
    trace.template(merged);
    let variables = environment.variables();
    let command = merged.get("command").and_then(Value::as_str);
    let arguments = merged.get("args").and_then(Value::as_array);
    let arguments = arguments.map_or(&[][..], Vec::as_slice);
    let kinds = command
        .map(|text| code::kinds(text, arguments, variables, environment.untrusted(), facts))
        .transpose()
        .map_err(|misplaced| misplaced.of(chain))?
        .unwrap_or_default();
    let command = command
        .map(|text| template::render_command(text, variables, facts))
        .transpose()
        .map_err(|source| ExecuteError::Placeholder {
            id: chain.tool().id().to_string(),
            source,
        })?;
    let mut config = Map::new();
    let mut passed = Variables::new();
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
            ("args", Some(_)) => rendered_arguments(&kinds, value, variables, facts, &mut passed),
            ("cwd" | "input_data", Some(_)) if value.is_string() => {
                // A process gets text, whatever a placeholder stands for.
                Value::String(word(template::render_value(value, variables, facts)))
            }
            ("env", _) => texts(template::render_value(value, variables, facts)),
            ("url", None) if value.is_string() => {
                template::render_address(&word(value.clone()), variables, facts)
                    .map_err(ExecuteError::Address)?
            }
            _ => template::render_value(value, variables, facts),
        };
        config.insert(key.clone(), rendered);
    }
    // What the call says goes before what the tool says, and that before the chain.
    let given = surroundings.timeout.map(|timeout| timeout.as_secs_f64());
    let given = given.or_else(|| chain.tool().metadata.timeout());
    trace.rendered(&config, given);
    let mut config = surroundings
        .schemas
        .fits(&chain.primitive().metadata, config)
        .map_err(ExecuteError::Config)?;
    let mut all = environment.into_variables();
    if let Some(Value::Object(env)) = config.remove("env") {
        let env = env.into_iter().map(|(name, value)| (name, word(value)));
        Arc::make_mut(&mut all).extend(env);
    }
    if !passed.is_empty() {
        Arc::make_mut(&mut all).extend(passed);
    }
    let seconds = given.or_else(|| config.get("timeout")?.as_f64());
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok(Call {
        tool: chain.tool().item.clone(),
        items: chain.named.clone(),
        config,
        environment: all,
        parameters,
        cwd: surroundings.cwd,
        timeout: seconds,
        spill: surroundings.spill,
        listener: surroundings.listener,
        approval: surroundings.approval,
        run: surroundings.run,
    })
}

/// Merges the configurations of a chain, the tool's first, which goes over all. What a runtime
/// declares as its parameter is no configuration of the tool's: `command` of a
/// bash tool is what bash runs, not what runs instead of bash.
pub(super) fn merged(chain: &[&Metadata]) -> Map<String, Value> {
    let mut merged = Map::new();
    let mut declared: Vec<&str> = Vec::new();
    for (index, item) in chain.iter().enumerate().rev() {
        if let Some(Value::Object(own)) = item.value("config") {
            let mut own = own.clone();
            own.retain(|key, _| key == "timeout" || !declared.contains(&key.as_str()));
            merged = config::merge([&Value::Object(merged), &Value::Object(own)]);
        }
        // What a primitive declares is its configuration.
        if index + 1 < chain.len() {
            declared.extend(facts::declared(item).map(|(name, _)| name.as_str()));
        }
    }
    merged
}

/// The arguments. The one that a shell parses gets its values as variables.
fn rendered_arguments(
    kinds: &[Option<CodeKind>],
    value: &Value,
    variables: &Variables,
    facts: &Names,
    passed: &mut Variables,
) -> Value {
    let Value::Array(items) = value else {
        return template::render_value(value, variables, facts);
    };
    let kinds = kinds.iter().copied().chain(std::iter::repeat(None));
    let items = items.iter().zip(kinds).map(|(item, kind)| {
        let Value::String(text) = item else {
            return text_of(item.clone());
        };
        if kind == Some(CodeKind::Shell) {
            let before = std::mem::take(passed);
            let script = template::render_script(text, variables, facts, before);
            *passed = script.values;
            return Value::String(script.text);
        }
        Value::String(word(template::render(text, variables, facts)))
    });
    items.collect()
}

/// A value as text: a string as it is, other things as JSON.
pub(super) fn word(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Numbers and truth values as the texts that people mean by them.
fn text_of(value: Value) -> Value {
    match value {
        Value::Number(_) | Value::Bool(_) => Value::String(value.to_string()),
        other => other,
    }
}

/// A mapping whose values are texts. What is null is not there.
fn texts(value: Value) -> Value {
    let Value::Object(fields) = value else {
        return value;
    };
    let there = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(there.map(|(name, value)| (name, text_of(value))).collect())
}
