//! Prepares a call: builds the environment of its process, merges its configuration and renders its
//! templates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rye_items::metadata::{self, Metadata};
use rye_items::trust::{IgnoredFile, Trust};
use rye_items::{ItemError, ItemKind, Library};
use serde_json::{Map, Value};

use super::inline_code;
use super::path_guard::PathGuard;
use super::template_context::{self, CallAnchor};
use super::{Approval, Executor};
use crate::chain::{Chain, Link};
use crate::config::{self, Mode};
use crate::dotenv;
use crate::environment::{self, DotenvFilter, Environment, Origin};
use crate::error::ExecuteError;
use crate::interpreter::{self, CandidateResult, InterpreterError, Resolver, SearchMethod};
use crate::parameters;
use crate::primitive::{Call, OutputListener, RunContext, Spill};
use crate::template::{self, CodeKind, Placeholders, Variables};
use crate::trace::Trace;
use crate::value_ext::as_text;

/// Settings of a call that do not depend on its chain.
pub(super) struct CallContext {
    pub(super) cwd: PathBuf,
    pub(super) timeout: Option<Duration>,
    pub(super) spill: Spill,
    /// See [`crate::primitive::Primitive::optional_keys`].
    pub(super) optional_keys: &'static [&'static str],
    /// Whether the configuration comes from the caller and contains no templates.
    pub(super) is_literal: bool,
    /// Verified items that the configuration names.
    pub(super) items: BTreeMap<String, Link>,
    pub(super) listener: Option<OutputListener>,
    pub(super) approval: Approval,
    pub(super) run: Option<RunContext>,
}

/// Adds the configuration that `config_resolve` requests to the parameters.
pub(super) fn with_resolved_config(
    library: &Library,
    trust: &Trust<'_>,
    chain: &Chain,
    mut parameters: Value,
    warnings: &mut Vec<String>,
) -> Result<Value, ExecuteError> {
    let Some(declaration) = chain.tool().metadata.value("config_resolve") else {
        return Ok(parameters);
    };
    let requests = config::parse_requests(declaration).map_err(ExecuteError::ConfigFile)?;
    let mut resolved = Map::new();
    for config::ConfigRequest { path, mode } in requests {
        let mut files = Vec::new();
        for root in library.spaces().roots() {
            let relative = format!("config/{path}");
            let bytes = match library.read_config(root, &relative, trust) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => continue,
                Err(IgnoredFile { path, reason, .. }) => {
                    let argument = lillux::shell_word(&path);
                    let path = path.display();
                    warnings.push(format!(
                        "{path} is ignored: {reason}; to use it: rye sign {argument}"
                    ));
                    continue;
                }
            };
            let path = root.path_to(&relative);
            let config = metadata::extract(&bytes, ".yaml", ItemKind::Config, library.extractors());
            let config = config.map_err(|source| {
                let source = Box::new(source);
                ExecuteError::ConfigSyntax(ItemError::Metadata { path, source })
            })?;
            let fields = config
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

/// The `env_config` of a link.
pub(super) struct EnvConfig<'c> {
    resolvers: Vec<Resolver>,
    env: &'c Value,
    pub(super) minimal: bool,
}

/// Parses the `env_config` of all links, from the primitive to the tool.
pub(super) fn env_configs(chain: &Chain) -> Result<Vec<EnvConfig<'_>>, ExecuteError> {
    fn parse(link: &Link) -> Result<EnvConfig<'_>, InterpreterError> {
        let config = link.metadata.value("env_config").unwrap_or(&Value::Null);
        let invalid = |(name, reason): (&str, String)| InterpreterError::InvalidDeclaration {
            name: name.to_owned(),
            reason,
        };
        Ok(EnvConfig {
            minimal: environment::is_minimal(config).map_err(invalid)?,
            resolvers: interpreter::parse_resolvers(config)?,
            env: config.get("env").unwrap_or(&Value::Null),
        })
    }
    let all = chain.from_primitive().map(|link| {
        parse(link).map_err(|source| ExecuteError::Interpreter {
            id: link.id().to_string(),
            source,
        })
    });
    all.collect()
}

/// Refuses to confine a call whose interpreter is found by a command, which would not be confined.
pub(super) fn check_confinable(
    chain: &Chain,
    configs: &[EnvConfig<'_>],
) -> Result<(), ExecuteError> {
    let resolvers = configs.iter().flat_map(|config| &config.resolvers);
    let mut methods = resolvers.map(|resolver| &resolver.method);
    if methods.any(|method| matches!(method, SearchMethod::Command(_))) {
        return Err(ExecuteError::Sandbox {
            tool: chain.tool().id().to_string(),
            reason: "a command that is not confined would find its interpreter".to_owned(),
            fix: None,
        });
    }
    Ok(())
}

impl Executor {
    /// Builds the environment of a call, applying the links from the primitive to the tool.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is another part of the call"
    )]
    pub(super) async fn environment(
        &self,
        chain: &Chain,
        configs: &[EnvConfig<'_>],
        placeholders: &Placeholders,
        guard: &PathGuard<'_>,
        inherited: Arc<Variables>,
        warnings: &mut Vec<String>,
        trace: &mut Trace,
    ) -> Result<Environment, ExecuteError> {
        let mut environment = Environment::from(inherited);
        let file = self.roots.project.join(".env");
        match dotenv::read(&file) {
            Ok(dotenv) => {
                if !dotenv.variables.is_empty() {
                    environment.apply_dotenv(dotenv.variables, &DotenvFilter::from_chain(chain));
                }
                let problems = dotenv.problems.into_iter();
                warnings.extend(problems.map(|(line, reason)| match line {
                    0 => format!("{}: {reason}", file.display()),
                    line => format!("{}:{line}: {reason}", file.display()),
                }));
            }
            Err(reason) => warnings.push(format!("{} is ignored: {reason}", file.display())),
        }
        for (link, config) in chain.from_primitive().zip(configs) {
            let id = link.id().to_string();
            for resolver in &config.resolvers {
                let untrusted = environment.untrusted();
                inline_code::check_search_roots(resolver, untrusted, placeholders)
                    .map_err(|error| error.for_chain(chain))?;
                let space = chain.tool().item.space;
                let mut tried = Vec::new();
                let found = self
                    .find_program(
                        resolver,
                        space,
                        placeholders,
                        &environment,
                        guard,
                        &mut tried,
                    )
                    .await;
                let last = tried.last().map(|candidate| candidate.result);
                let is_unknown = last == Some(CandidateResult::NotRun);
                let shown = found.as_deref().ok().filter(|_| !is_unknown);
                trace.interpreter(resolver, link.id(), shown, tried);
                warnings.extend(guard.take_warnings());
                if let Some(error) = guard.take_error() {
                    return Err(ExecuteError::Dependency(error));
                }
                let found = found.map_err(|mut source| {
                    if let InterpreterError::NotFound { unsigned, .. } = &mut source {
                        *unsigned = guard.unsigned();
                    }
                    ExecuteError::Interpreter {
                        id: id.clone(),
                        source,
                    }
                })?;
                let origin = if is_unknown {
                    Origin::InterpreterCommand(id.clone())
                } else {
                    Origin::Interpreter(id.clone())
                };
                // Lets runtimes separate the compiled code of different environments.
                if let Some(hash) = guard.environment_hash(Path::new(&found)) {
                    let name = format!("{}_ENVIRONMENT", resolver.var);
                    environment.set(name, hash.to_hex(), origin.clone());
                }
                environment.set(&resolver.var, found, origin);
            }
            environment.apply_env(config.env, placeholders, &id);
            if let Some((declared, declared_by)) = &guard.anchor.declared
                && *declared_by == id
            {
                let (paths, untrusted) = (&declared.env_paths, environment.untrusted());
                inline_code::check_env_paths(paths, untrusted, placeholders)
                    .map_err(|error| error.for_chain(chain))?;
                let path = environment.get("PATH").unwrap_or_default().to_owned();
                environment.apply_env_paths(paths, placeholders, &id);
                guard
                    .strip_unverified(&mut environment, paths, &path, &id)
                    .map_err(ExecuteError::Dependency)?;
                warnings.extend(guard.take_warnings());
            }
        }
        let required = chain.tool().metadata.requires_env();
        let missing: Vec<_> = required
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

/// Warning about variables of `.env` that were not passed to a failed tool.
pub(super) fn dotenv_warning(names: &BTreeSet<String>, tool: &Link) -> String {
    let (reserved, undeclared): (Vec<&str>, Vec<&str>) = names
        .iter()
        .map(String::as_str)
        .partition(|name| environment::is_reserved(name));
    let mut parts = Vec::new();
    if !undeclared.is_empty() {
        parts.push(format!(
            ".env: not passed, because {1} does not declare it: {0}; to pass a variable, add it to \
             `requires_env` of the tool and sign it",
            undeclared.join(", "),
            tool.id()
        ));
    }
    if !reserved.is_empty() {
        parts.push(format!(
            ".env: not passed, because it is reserved: {}; set it in your shell",
            reserved.join(", ")
        ));
    }
    parts.join("; ")
}

/// Working directory of a call: the `cwd` of its anchor, or the project.
pub(super) fn cwd(anchor: &CallAnchor, placeholders: &Placeholders, project: &Path) -> PathBuf {
    let template = anchor
        .declared
        .as_ref()
        .and_then(|(declared, _)| declared.cwd.as_ref());
    template.map_or_else(
        || project.to_owned(),
        |text| {
            PathBuf::from(as_text(&template::render(
                text,
                &Variables::new(),
                placeholders,
            )))
        },
    )
}

/// Refuses a YAML tool that does not set the parameter of its runtime that is the script: the
/// default of that parameter runs the tool's file, which is no script.
fn check_script(
    chain: &Chain,
    arguments: &[Value],
    kinds: &[Option<CodeKind>],
) -> Result<(), ExecuteError> {
    let tool = chain.tool();
    let is_yaml = |link: &Link| matches!(link.item.extension.as_str(), ".yaml" | ".yml");
    if !is_yaml(tool) || tool.is_executor() {
        return Ok(());
    }
    let code = arguments
        .iter()
        .zip(kinds)
        .filter(|(_, kind)| kind.is_some());
    let mut used = BTreeSet::new();
    code.for_each(|(argument, _)| template::collect_placeholder_names(argument, &mut used));
    for (index, link) in chain.links.iter().enumerate().skip(1) {
        let is_set = |name: &String| {
            let mut before = chain.links[..index].iter();
            before.any(|link| {
                link.metadata
                    .value("config")
                    .is_some_and(|it| it.get(name).is_some())
            })
        };
        let mut declared = template_context::declared_parameters(&link.metadata);
        let script = declared.find(|(name, _)| used.contains(*name) && !is_set(name));
        if let Some((name, _)) = script.filter(|_| link.is_executor()) {
            return Err(ExecuteError::NoScript {
                id: tool.id().to_string(),
                parameter: name.clone(),
                runtime: link.id().to_string(),
            });
        }
    }
    Ok(())
}

/// Refuses arguments with a placeholder of a parameter that the call does not pass: the program
/// would get the placeholder itself. Other braces that the tool writes may be meant literally.
fn check_values(
    chain: &Chain,
    arguments: &[Value],
    kinds: &[Option<CodeKind>],
    placeholders: &Placeholders,
) -> Result<(), ExecuteError> {
    let tool = chain.tool();
    let mut literal = BTreeSet::new();
    if !tool.is_executor()
        && let Some(own) = tool.metadata.value("config").and_then(|it| it.get("args"))
    {
        template::collect_placeholder_names(own, &mut literal);
        for (name, _) in template_context::declared_parameters(&tool.metadata) {
            literal.remove(name);
        }
    }
    let mut used = BTreeSet::new();
    let kinds = kinds.iter().copied().chain(std::iter::repeat(None));
    for (argument, _) in arguments.iter().zip(kinds).filter(|(_, it)| it.is_none()) {
        template::collect_placeholder_names(argument, &mut used);
    }
    let mut missing = used.into_iter().filter(|name| !literal.contains(name));
    match missing.find(|name| placeholders.get(name).is_none()) {
        Some(parameter) => Err(ExecuteError::NoValue {
            id: tool.id().to_string(),
            parameter,
        }),
        None => Ok(()),
    }
}

/// Renders the merged configuration and validates it against the primitive's schema.
pub(super) fn call(
    chain: &Chain,
    merged: &Map<String, Value>,
    placeholders: &Placeholders,
    environment: Environment,
    parameters: Value,
    context: CallContext,
    trace: &mut Trace,
) -> Result<Call, ExecuteError> {
    trace.template(merged);
    let variables = environment.variables();
    let command = merged.get("command").and_then(Value::as_str);
    let arguments = merged.get("args").and_then(Value::as_array);
    let arguments = arguments.map_or(&[][..], Vec::as_slice);
    let kinds = command
        .filter(|_| !context.is_literal)
        .map(|text| {
            inline_code::classify_arguments(
                text,
                arguments,
                variables,
                environment.untrusted(),
                placeholders,
            )
        })
        .transpose()
        .map_err(|error| error.for_chain(chain))?
        .unwrap_or_default();
    check_script(chain, arguments, &kinds)?;
    if command.is_some() && !context.is_literal && !context.optional_keys.contains(&"args") {
        check_values(chain, arguments, &kinds, placeholders)?;
    }
    let command = command
        .filter(|_| !context.is_literal)
        .map(|text| template::render_command(text, variables, placeholders))
        .transpose()
        .map_err(|source| ExecuteError::Placeholder {
            id: chain.tool().id().to_string(),
            source,
        })?;
    let mut config = Map::new();
    let mut passed = Variables::new();
    for (key, value) in merged {
        let known_fields;
        let is_optional = context.optional_keys.contains(&key.as_str());
        let value = if is_optional && !context.is_literal {
            let Some(fields) = template::without_unknown(value, placeholders) else {
                continue;
            };
            known_fields = fields;
            &known_fields
        } else {
            value
        };
        let rendered = match (key.as_str(), &command) {
            _ if context.is_literal => value.clone(),
            ("command", Some(command)) => Value::String(command.clone()),
            ("args", Some(_)) => {
                render_arguments(&kinds, value, variables, placeholders, &mut passed)
            }
            ("cwd" | "input_data", Some(_)) if value.is_string() => {
                // A process gets strings, whatever the type of a value.
                Value::String(as_text(&template::render_value(
                    value,
                    variables,
                    placeholders,
                )))
            }
            ("env", _) => variables_as_text(template::render_value(value, variables, placeholders)),
            ("url", None) if value.is_string() => {
                template::render_url(&as_text(value), variables, placeholders)
                    .map_err(ExecuteError::UrlPath)?
            }
            _ => template::render_value(value, variables, placeholders),
        };
        config.insert(key.clone(), rendered);
    }
    // The timeout of the call overrides that of the tool, which overrides the configuration.
    let timeout = context.timeout.map(|timeout| timeout.as_secs_f64());
    let timeout = timeout.or_else(|| chain.tool().metadata.timeout());
    trace.rendered(&config, timeout);
    let config_schema = chain.primitive().metadata.config_schema();
    let mut config = parameters::validate(config_schema, config).map_err(ExecuteError::Config)?;
    let mut all = environment.into_variables();
    if let Some(Value::Object(env)) = config.remove("env") {
        let env = env.into_iter().map(|(name, value)| (name, as_text(&value)));
        Arc::make_mut(&mut all).extend(env);
    }
    if !passed.is_empty() {
        Arc::make_mut(&mut all).extend(passed);
    }
    let seconds = timeout.or_else(|| config.get("timeout")?.as_f64());
    let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok(Call {
        tool: chain.tool().item.clone(),
        items: context.items,
        config,
        environment: all,
        parameters,
        cwd: context.cwd,
        timeout,
        spill: context.spill,
        listener: context.listener,
        approval: context.approval,
        run: context.run,
        confinement: None,
    })
}

/// Sets the effective timeout: that of the call overrides that of the tool, which overrides the
/// configuration.
pub(super) fn set_timeout(config: &mut Map<String, Value>, chain: &Chain, call: Option<Duration>) {
    let seconds = call.map(|timeout| timeout.as_secs_f64());
    let seconds = seconds.or_else(|| chain.tool().metadata.timeout());
    // A whole number is shown without a fraction.
    let seconds = seconds.and_then(|seconds| serde_json::from_str(&seconds.to_string()).ok());
    if let Some(seconds) = seconds {
        config.insert("timeout".to_owned(), seconds);
    }
}

/// Merges the configurations of a chain; the tool comes first and overrides the others. A key that
/// is a parameter of a runtime, and that the runtime uses as a placeholder, is skipped in the
/// tool's configuration: `command` of a bash tool is the script, not a replacement for bash. If a
/// runtime declares `args` without using them, they are added to its own arguments.
pub(super) fn merged_config(chain: &[&Metadata]) -> Map<String, Value> {
    let mut merged = Map::new();
    let mut declared: BTreeSet<&str> = BTreeSet::new();
    for (index, item) in chain.iter().enumerate().rev() {
        if let Some(Value::Object(own)) = item.value("config") {
            let mut used = BTreeSet::new();
            merged
                .values()
                .for_each(|value| template::collect_placeholder_names(value, &mut used));
            let mut own = own.clone();
            own.retain(|key, _| {
                key == "timeout" || !declared.contains(key.as_str()) || !used.contains(key)
            });
            if declared.contains("args")
                && let (Some(Value::Array(first)), Some(Value::Array(more))) =
                    (merged.get("args"), own.get_mut("args"))
            {
                *more = [first.clone(), std::mem::take(more)].concat();
            }
            merged = config::merge([&Value::Object(merged), &Value::Object(own)]);
        }
        // The schema of a primitive declares configuration, not parameters.
        if index + 1 < chain.len() {
            declared
                .extend(template_context::declared_parameters(item).map(|(name, _)| name.as_str()));
        }
    }
    merged
}

/// Renders the arguments. Shell code gets its values as environment variables in `passed`.
fn render_arguments(
    kinds: &[Option<CodeKind>],
    value: &Value,
    variables: &Variables,
    placeholders: &Placeholders,
    passed: &mut Variables,
) -> Value {
    let Value::Array(items) = value else {
        return template::render_value(value, variables, placeholders);
    };
    let kinds = kinds.iter().copied().chain(std::iter::repeat(None));
    let items = items.iter().zip(kinds).map(|(item, kind)| {
        let Value::String(text) = item else {
            return scalar_as_text(item.clone());
        };
        if kind == Some(CodeKind::Shell) {
            let before = std::mem::take(passed);
            let script = template::render_script(text, variables, placeholders, before);
            *passed = script.values;
            return Value::String(script.text);
        }
        Value::String(as_text(&template::render(text, variables, placeholders)))
    });
    items.collect()
}

/// Converts numbers and booleans to strings.
fn scalar_as_text(value: Value) -> Value {
    match value {
        Value::Number(_) | Value::Bool(_) => Value::String(value.to_string()),
        other => other,
    }
}

/// Converts the values of a mapping to strings and drops nulls.
fn variables_as_text(value: Value) -> Value {
    let Value::Object(fields) = value else {
        return value;
    };
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(
        fields
            .map(|(name, value)| (name, scalar_as_text(value)))
            .collect(),
    )
}
