//! Inline code: arguments that an interpreter runs, such as the argument of a shell's `-c`.
//! Values of a call must not become part of inline code.

use std::collections::BTreeSet;

use rye_items::metadata::Metadata;
use rye_items::trust::Trust;
use rye_items::{ItemError, ItemFile, ItemKind, Library, Space, metadata};
use serde_json::{Map, Value, json};

use super::prepare::merged_config;
use super::template_context::{declared_parameters, parameter_placeholders, set_config_values};
use super::unknown_names;
use crate::anchor::Anchor;
use crate::chain::{self, Chain, ChainError};
use crate::config;
use crate::environment;
use crate::error::ExecuteError;
use crate::interpreter::{self, InterpreterError, Resolver, SearchMethod, SearchRoot};
use crate::primitive::ALIASES;
use crate::template::{self, CodeKind, Origin, Placeholders, ValueAsCode, Variables};
use crate::value_ext::as_text;

/// Shells, which run the argument of `-c`.
const SHELLS: [&str; 11] = [
    "sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "mksh", "yash", "fish", "su",
];

/// Other interpreters and their single-letter options.
const LANGUAGES: [(&str, OptionLetters); 14] = [
    ("python", OptionLetters::new("c", "XWmQ")),
    ("pypy", OptionLetters::new("c", "XWmQ")),
    ("perl", OptionLetters::new("eE", "IMmxDCF")),
    ("ruby", OptionLetters::new("e", "IrCxEKTWF")),
    ("node", OptionLetters::new("ep", "rC")),
    ("nodejs", OptionLetters::new("ep", "rC")),
    ("bun", OptionLetters::new("ep", "rC")),
    ("tsx", OptionLetters::new("ep", "rC")),
    ("php", OptionLetters::new("rBRE", "dcfzt")),
    ("lua", OptionLetters::new("e", "l")),
    ("luajit", OptionLetters::new("e", "ljbO")),
    ("rscript", OptionLetters::new("e", "")),
    ("osascript", OptionLetters::new("e", "l")),
    ("pwsh", OptionLetters::new("cC", "")),
];

/// Single-letter options of an interpreter that take an argument.
#[derive(Debug, Clone, Copy)]
struct OptionLetters {
    /// Options whose argument is code.
    code: &'static str,
    /// Options whose argument is something else.
    other: &'static str,
}

impl OptionLetters {
    const fn new(code: &'static str, other: &'static str) -> Self {
        Self { code, other }
    }

    /// The text after the code option in combined options such as `-uc`.
    fn attached_code<'w>(&self, word: &'w str) -> Option<&'w str> {
        for (at, letter) in word.char_indices().skip(1) {
            if self.code.contains(letter) {
                return Some(&word[at + letter.len_utf8()..]);
            }
            if self.other.contains(letter) {
                return None;
            }
        }
        None
    }
}

/// Placeholders that the executor sets, for checks without a call.
pub(super) const EXECUTOR_PLACEHOLDERS: [&str; 11] = [
    "tool_path",
    "tool_source",
    "tool_dir",
    "tool_parent",
    "project_path",
    "anchor_path",
    "runtime_lib",
    "anchor_lib",
    "user_space",
    "system_space",
    "private_cache",
];

/// Limit on the number of links; calls of longer chains are refused.
const MAX_LINKS: usize = 10;

/// A program that accepts inline code.
#[derive(Debug, Clone, Copy)]
enum Interpreter {
    Shell,
    Language(OptionLetters),
}

impl Interpreter {
    /// Recognises an interpreter by its path or versioned name: `/bin/bash`, `python3.12`.
    fn from_name(word: &str) -> Option<Self> {
        let name = word.rsplit('/').next().unwrap_or(word).to_ascii_lowercase();
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        if SHELLS.contains(&name) {
            return Some(Self::Shell);
        }
        let (_, letters) = LANGUAGES.iter().find(|(language, _)| *language == name)?;
        Some(Self::Language(*letters))
    }

    fn kind(self) -> CodeKind {
        match self {
            Self::Shell => CodeKind::Shell,
            Self::Language(_) => CodeKind::Other,
        }
    }
}

/// Scans the arguments of a command for inline code. The interpreter can be any argument, so
/// wrappers such as `env` and `timeout` need no special treatment.
#[derive(Debug, Default)]
struct ArgumentScanner {
    interpreter: Option<Interpreter>,
    /// Whether the next argument is code.
    code_follows: bool,
    /// Whether the previous argument was an option, so that this one may be its value.
    after_option: bool,
}

impl ArgumentScanner {
    /// Classifies the next argument. An argument that contains a value of the call is never
    /// recognised as an interpreter.
    fn next(&mut self, word: &str, has_value: bool) -> Option<CodeKind> {
        let Some(interpreter) = self.interpreter else {
            self.interpreter = Interpreter::from_name(word).filter(|_| !has_value);
            return None;
        };
        let kind = Some(interpreter.kind());
        let is_option = word.len() > 1 && word.starts_with(['-', '+']);
        match interpreter {
            Interpreter::Shell if is_option => {
                if word.starts_with("--") {
                    self.after_option = matches!(word, "--rcfile" | "--init-file");
                    self.code_follows |= word == "--command";
                } else {
                    self.code_follows |= word.contains('c');
                    // `-o NAME`
                    self.after_option = word.ends_with(['o', 'O']);
                }
                // `--command=…`
                word.starts_with("--command=").then_some(CodeKind::Shell)
            }
            Interpreter::Shell if std::mem::take(&mut self.after_option) => None,
            Interpreter::Shell => {
                let is_code = self.code_follows;
                *self = Self::default();
                if is_code { kind } else { None }
            }
            Interpreter::Language(_) if std::mem::take(&mut self.code_follows) => {
                // Some interpreters accept several code options.
                self.after_option = true;
                kind
            }
            Interpreter::Language(letters) if is_option => {
                self.after_option = true;
                if let Some(long) = word.strip_prefix("--") {
                    let (name, value) = long.split_once('=').unwrap_or((long, ""));
                    let is_code = matches!(name, "eval" | "print");
                    self.code_follows = is_code && value.is_empty();
                    return if is_code { kind } else { None };
                }
                // `-c CODE`, `-uc CODE`, `-cCODE`
                let attached = letters.attached_code(word)?;
                self.code_follows = attached.is_empty();
                kind
            }
            Interpreter::Language(_) => {
                // A script file ends the options, unless it may be the value of an option.
                if !std::mem::take(&mut self.after_option) || is_script(word) {
                    *self = Self::default();
                }
                None
            }
        }
    }
}

/// Whether an argument looks like a script file.
fn is_script(word: &str) -> bool {
    const EXTENSIONS: [&str; 9] = ["py", "pl", "rb", "js", "mjs", "cjs", "ts", "php", "lua"];
    let extension = word.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
}

/// Inline code that would contain a value of the call.
#[derive(Debug)]
pub(super) struct InlineCodeError {
    /// Position in the configuration, such as `command` or `args[1]`.
    pub(super) location: String,
    pub(super) source: ValueAsCode,
}

impl InlineCodeError {
    /// Converts this into the error of a call.
    pub(super) fn for_chain(self, chain: &Chain) -> ExecuteError {
        ExecuteError::ValueAsCode {
            id: chain.tool().id().to_string(),
            location: self.location,
            source: self.source,
        }
    }
}

/// Classifies each argument of a command as code or data (`None`). Fails if code, or the name of
/// the program, contains a value of the call.
pub(super) fn classify_arguments(
    command: &str,
    arguments: &[Value],
    variables: &Variables,
    untrusted: &BTreeSet<String>,
    names: &Placeholders,
) -> Result<Vec<Option<CodeKind>>, InlineCodeError> {
    let check = |text: &str, kind, location: &dyn Fn() -> String| {
        template::check_code(text, untrusted, names, kind).map_err(|source| InlineCodeError {
            location: location(),
            source,
        })
    };
    check(command, CodeKind::Shell, &|| "command".to_owned())?;
    let mut scanner = ArgumentScanner::default();
    scanner.next(
        &as_text(&template::render(command, variables, names)),
        false,
    );
    let mut kinds = Vec::new();
    for (index, argument) in arguments.iter().enumerate() {
        let Value::String(text) = argument else {
            scanner.next(&argument.to_string(), false);
            kinds.push(None);
            continue;
        };
        let has_value = template::contains_untrusted(text, untrusted, names);
        let kind = scanner.next(
            &as_text(&template::render(text, variables, names)),
            has_value,
        );
        if let Some(kind) = kind {
            check(text, kind, &|| format!("args[{index}]"))?;
        }
        kinds.push(kind);
    }
    Ok(kinds)
}

/// Checks that no parameter that contains code is interpolated. A parameter contains code if the
/// tool's schema has `x-code` or if the tool is a runtime or primitive.
pub(super) fn check_interpolated(
    tool: &Metadata,
    interpolated: &[String],
) -> Result<(), InlineCodeError> {
    let is_executor = chain::is_executor(tool);
    let is_code = |schema: &Value| is_executor || schema.get("x-code") == Some(&Value::Bool(true));
    let mut code = declared_parameters(tool).filter(|(_, schema)| is_code(schema));
    match code.find(|(name, _)| interpolated.contains(name)) {
        None => Ok(()),
        Some((name, _)) => Err(InlineCodeError {
            location: "parameters".to_owned(),
            source: ValueAsCode {
                reference: name.clone(),
                source_name: "interpolated",
            },
        }),
    }
}

/// Checks that no value of the call chooses a directory in which an interpreter is searched.
pub(super) fn check_search_roots(
    resolver: &Resolver,
    untrusted: &BTreeSet<String>,
    names: &Placeholders,
) -> Result<(), InlineCodeError> {
    let SearchMethod::Local { roots, .. } = &resolver.method else {
        return Ok(());
    };
    for root in roots {
        let SearchRoot::Dir(root) = root else {
            continue;
        };
        let checked = template::check_code(root, untrusted, names, CodeKind::Shell);
        checked.map_err(|source| InlineCodeError {
            location: "env_config.search_roots".to_owned(),
            source,
        })?;
    }
    Ok(())
}

/// Checks that no value of the call is part of `env_paths`, which programs load code from.
pub(super) fn check_env_paths(
    paths: &Value,
    untrusted: &BTreeSet<String>,
    names: &Placeholders,
) -> Result<(), InlineCodeError> {
    for (variable, change) in paths.as_object().into_iter().flatten() {
        let lists = change.as_object().into_iter().flatten();
        let texts = lists.flat_map(|(_, list)| match list {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        });
        for text in texts.filter_map(Value::as_str) {
            let checked = template::check_code(text, untrusted, names, CodeKind::Shell);
            checked.map_err(|source| InlineCodeError {
                location: format!("anchor.env_paths.{variable}"),
                source,
            })?;
        }
    }
    Ok(())
}

/// Checks a tool before it is signed: no inline code of its chain contains one of its parameters,
/// its declarations are valid, and all its keys and placeholders have a meaning. `content` is the
/// content to sign. Missing links are not an error here.
pub fn check_before_signing(
    library: &Library,
    tool: &ItemFile<'_>,
    content: &[u8],
) -> Result<(), ExecuteError> {
    if tool.reference.kind != ItemKind::Tool {
        return Ok(());
    }
    let extract = |content: &[u8], found: &ItemFile<'_>| {
        let kind = found.reference.kind;
        metadata::extract(content, &found.extension, kind, library.extractors()).ok()
    };
    let Some(metadata) = extract(content, tool) else {
        return Ok(());
    };
    metadata::check_exports(content, &tool.extension, library.extractors()).map_err(|source| {
        ChainError::Item(ItemError::Metadata {
            path: tool.path(),
            source: Box::new(source),
        })
    })?;
    let id = tool.reference.id.to_string();
    check_declarations(&id, &metadata)?;
    crate::confinement::parse(&id, &metadata)?;
    let trust = library.trust();
    let mut chain = vec![metadata];
    while chain.len() < MAX_LINKS
        && let Some(executor) = chain
            .last()
            .and_then(|item| executor_metadata(library, &trust, tool.root.space(), item))
    {
        chain.push(executor);
    }
    let chain: Vec<&Metadata> = chain.iter().collect();
    let unusable = code_parameters(&chain, &tool.extension, &[]);
    check_statically(&chain, &unusable).map_err(|InlineCodeError { location, source }| {
        ExecuteError::ValueAsCode {
            id: id.clone(),
            location,
            source,
        }
    })?;
    let unknown = unknown_names::find(&chain, 0, &tool.extension, None);
    if unknown.is_empty() {
        Ok(())
    } else {
        Err(ExecuteError::UnknownNames { id, unknown })
    }
}

/// Parses the declarations of an item.
fn check_declarations(id: &str, item: &Metadata) -> Result<(), ExecuteError> {
    let id = || id.to_owned();
    let null = &Value::Null;
    let anchor = item.value("anchor").unwrap_or(null);
    Anchor::parse(anchor).map_err(|source| ExecuteError::Anchor { id: id(), source })?;
    let env_config = item.value("env_config").unwrap_or(null);
    environment::is_minimal(env_config)
        .map_err(|(name, reason)| InterpreterError::InvalidDeclaration {
            name: name.to_owned(),
            reason,
        })
        .and_then(|_| interpreter::parse_resolvers(env_config))
        .map_err(|source| ExecuteError::Interpreter { id: id(), source })?;
    let requests = item.value("config_resolve").unwrap_or(null);
    config::parse_requests(requests).map_err(ExecuteError::ConfigFile)?;
    Ok(())
}

/// Verified metadata of an item's executor.
fn executor_metadata(
    library: &Library,
    trust: &Trust<'_>,
    space: Space,
    item: &Metadata,
) -> Option<Metadata> {
    let name = item.executor_id()?;
    let found = library
        .find_from(space, &name.parse().ok()?)
        .or_else(|error| {
            let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
            let id = alias.and_then(|(_, id)| id.parse().ok()).ok_or(error)?;
            library.find_from(space, &id)
        });
    let found = found.ok()?;
    let item = library.verify(&found, trust).ok()?;
    library.metadata(&item).ok().map(|it| (*it).clone())
}

/// Checks that no parameter of the call has the name of a parameter of the runtime that is code.
/// `given` are the names of the parameters that the caller passes.
pub(super) fn check_parameters(chain: &Chain, given: &[String]) -> Result<(), InlineCodeError> {
    let links = chain.metadata();
    let unusable = code_parameters(&links, &chain.tool().item.extension, given);
    if unusable.is_empty() {
        return Ok(());
    }
    check_statically(&links, &unusable)
}

/// Parameters of a tool that have the name of a parameter of its runtime, which the tool does not
/// set itself: neither in its configuration, nor by being the script that the runtime runs. The
/// author expects them to reach the runtime.
fn code_parameters(chain: &[&Metadata], extension: &str, given: &[String]) -> Vec<String> {
    let Some((tool, executors)) = chain.split_first() else {
        return Vec::new();
    };
    let runtimes = executors
        .split_last()
        .map_or(&[][..], |(_, runtimes)| runtimes);
    let is_script = !matches!(extension, ".yaml" | ".yml");
    let is_unset = |name: &String| {
        let config = tool.value("config").and_then(|config| config.get(name));
        let mut used = BTreeSet::new();
        if let Some(value) = config {
            template::collect_placeholder_names(value, &mut used);
        }
        used.contains(name) || (config.is_none() && !is_script)
    };
    let is_declared = |name: &String| {
        let mut runtimes = runtimes.iter();
        runtimes.any(|runtime| declared_parameters(runtime).any(|(other, _)| other == name))
    };
    let names = declared_parameters(tool).map(|(name, _)| name).chain(given);
    let names = names.filter(|name| is_declared(name) && is_unset(name));
    names.cloned().collect()
}

/// Checks inline code without a call, as if every declared parameter were passed, and as if the
/// parameters `unusable` were those of the runtime with the same name.
pub(super) fn check_statically(
    chain: &[&Metadata],
    unusable: &[String],
) -> Result<(), InlineCodeError> {
    let Some(tool) = chain.first() else {
        return Ok(());
    };
    let parameters = declared_parameters(tool).map(|(name, _)| (name.clone(), json!("x")));
    let parameters = Value::Object(parameters.collect::<Map<_, _>>());
    let mut names = parameter_placeholders(chain, &parameters);
    for name in EXECUTOR_PLACEHOLDERS {
        names.set(name, "x", Origin::Fact);
    }
    names.set("params_json", "x", Origin::Parameter);
    for name in unusable {
        names.set(name.clone(), "x", Origin::Parameter);
    }
    let config = merged_config(chain);
    set_config_values(&mut names, chain, &config, true);
    let Some(Value::String(command)) = config.get("command") else {
        return Ok(());
    };
    let arguments = config.get("args").and_then(Value::as_array);
    let arguments = arguments.map_or(&[][..], Vec::as_slice);
    let variables = interpreters(chain);
    classify_arguments(command, arguments, &variables, &BTreeSet::new(), &names).map(drop)
}

/// Names of the interpreters that a chain declares, by environment variable.
fn interpreters(chain: &[&Metadata]) -> Variables {
    let configs = chain.iter().filter_map(|item| item.value("env_config"));
    let resolvers = configs.filter_map(|config| interpreter::parse_resolvers(config).ok());
    let named = resolvers.flatten().filter_map(|resolver| {
        let name = match resolver.method {
            SearchMethod::Local { names, .. } | SearchMethod::System { names } => {
                names.into_iter().next()
            }
            SearchMethod::Command(_) => resolver.fallback,
        };
        Some((resolver.var, name?))
    });
    named.collect()
}
