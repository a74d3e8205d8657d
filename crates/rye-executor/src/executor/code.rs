//! Inline code: an argument that an interpreter runs as a program, such as what a shell gets
//! after `-c`. A value of the call never becomes part of it.

use std::collections::BTreeSet;

use rye_items::metadata::Metadata;
use rye_items::trust::Trust;
use rye_items::{ItemFile, ItemKind, Library, metadata};
use serde_json::{Map, Value, json};

use super::facts::{declared, parameter_names};
use super::prepare::{merged, word};
use crate::chain::Chain;
use crate::error::ExecuteError;
use crate::interpreter::{self, Resolver, Way};
use crate::template::{self, CodeKind, Names, Origin, ValueAsCode, Variables};

/// Shells, which run what follows `-c`.
const SHELLS: [&str; 11] = [
    "sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "mksh", "yash", "fish", "su",
];

/// Other interpreters, with the letters of their options that are followed by code, and of those
/// that are followed by something else.
const LANGUAGES: [(&str, Letters); 14] = [
    ("python", Letters::new("c", "XWmQ")),
    ("pypy", Letters::new("c", "XWmQ")),
    ("perl", Letters::new("eE", "IMmxDCF")),
    ("ruby", Letters::new("e", "IrCxEKTWF")),
    ("node", Letters::new("ep", "rC")),
    ("nodejs", Letters::new("ep", "rC")),
    ("bun", Letters::new("ep", "rC")),
    ("tsx", Letters::new("ep", "rC")),
    ("php", Letters::new("rBRE", "dcfzt")),
    ("lua", Letters::new("e", "l")),
    ("luajit", Letters::new("e", "ljbO")),
    ("rscript", Letters::new("e", "")),
    ("osascript", Letters::new("e", "l")),
    ("pwsh", Letters::new("cC", "")),
];

/// The letters of an interpreter's options.
#[derive(Debug, Clone, Copy)]
struct Letters {
    code: &'static str,
    other: &'static str,
}

impl Letters {
    const fn new(code: &'static str, other: &'static str) -> Self {
        Self { code, other }
    }

    /// What follows the letter for code in a word of options, such as `-uc`.
    fn code_in<'w>(&self, word: &'w str) -> Option<&'w str> {
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

/// Names of facts, for a check that is made before there is a call.
const FACTS: [&str; 10] = [
    "tool_path",
    "tool_source",
    "tool_dir",
    "tool_parent",
    "project_path",
    "anchor_path",
    "runtime_lib",
    "user_space",
    "system_space",
    "private_cache",
];

/// Deeper chains are refused when they are called.
const DEEPEST: usize = 10;

/// A program that takes code as an argument.
#[derive(Debug, Clone, Copy)]
enum Interpreter {
    Shell,
    Language(Letters),
}

impl Interpreter {
    /// The interpreter that a word names, by its path or with a version: `/bin/bash`, `python3.12`.
    fn named(word: &str) -> Option<Self> {
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

/// Which words of a command line are code. Wrappers, such as `env` and `timeout`, are seen
/// through: an interpreter may stand anywhere.
#[derive(Debug, Default)]
struct Scan {
    interpreter: Option<Interpreter>,
    /// An option that is followed by code was seen.
    code_follows: bool,
    /// The word before was an option, so that this one may be its argument.
    after_option: bool,
}

impl Scan {
    /// Looks at the next word, and says whether it is code. A word with a value of the call
    /// names no interpreter: it may be anything.
    fn next(&mut self, word: &str, has_value: bool) -> Option<CodeKind> {
        let Some(interpreter) = self.interpreter else {
            self.interpreter = Interpreter::named(word).filter(|_| !has_value);
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
                // There may be more than one.
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
                let attached = letters.code_in(word)?;
                self.code_follows = attached.is_empty();
                kind
            }
            Interpreter::Language(_) => {
                // The file that it runs, unless it may belong to an option.
                if !std::mem::take(&mut self.after_option) || is_script(word) {
                    *self = Self::default();
                }
                None
            }
        }
    }
}

/// Whether a word looks like a file that an interpreter runs.
fn is_script(word: &str) -> bool {
    const ENDINGS: [&str; 9] = ["py", "pl", "rb", "js", "mjs", "cjs", "ts", "php", "lua"];
    let ending = word.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| ENDINGS.contains(&ending))
}

/// The code of a call that would contain a value.
#[derive(Debug)]
pub(super) struct Misplaced {
    /// Where in the configuration: `command`, or `args[1]`.
    pub(super) place: String,
    pub(super) source: ValueAsCode,
}

impl Misplaced {
    /// The error of a call.
    pub(super) fn of(self, chain: &Chain) -> ExecuteError {
        ExecuteError::ValueAsCode {
            id: chain.tool().id().to_string(),
            place: self.place,
            source: self.source,
        }
    }
}

/// What each argument of a command is to the program: code of this kind, or data. No value of
/// the call may be in code, nor choose the program.
pub(super) fn kinds(
    command: &str,
    arguments: &[Value],
    variables: &Variables,
    untrusted: &BTreeSet<String>,
    names: &Names,
) -> Result<Vec<Option<CodeKind>>, Misplaced> {
    let check = |text: &str, kind, place: &dyn Fn() -> String| {
        template::check_code(text, untrusted, names, kind).map_err(|source| Misplaced {
            place: place(),
            source,
        })
    };
    check(command, CodeKind::Shell, &|| "command".to_owned())?;
    let mut scan = Scan::default();
    scan.next(&word(template::render(command, variables, names)), false);
    let mut kinds = Vec::new();
    for (index, argument) in arguments.iter().enumerate() {
        let Value::String(text) = argument else {
            scan.next(&argument.to_string(), false);
            kinds.push(None);
            continue;
        };
        let has_value = template::takes_untrusted(text, untrusted, names);
        let kind = scan.next(&word(template::render(text, variables, names)), has_value);
        if let Some(kind) = kind {
            check(text, kind, &|| format!("args[{index}]"))?;
        }
        kinds.push(kind);
    }
    Ok(kinds)
}

/// Checks parameters that are a program's text, by `x-code` in the tool's schema or because the
/// tool is a runtime: the caller writes them as a whole, and puts no values into them.
pub(super) fn check_interpolated(
    tool: &Metadata,
    interpolated: &[String],
) -> Result<(), Misplaced> {
    let is_runtime = tool.tool_type() == Some("runtime");
    let is_code = |about: &Value| is_runtime || about.get("x-code") == Some(&Value::Bool(true));
    let mut code = declared(tool).filter(|(_, about)| is_code(about));
    match code.find(|(name, _)| interpolated.contains(name)) {
        None => Ok(()),
        Some((name, _)) => Err(Misplaced {
            place: "parameters".to_owned(),
            source: ValueAsCode {
                reference: name.clone(),
                source_name: "interpolated",
            },
        }),
    }
}

/// Checks the folders in which an interpreter is looked for: no value of the call chooses one.
pub(super) fn check_roots(
    resolver: &Resolver,
    untrusted: &BTreeSet<String>,
    names: &Names,
) -> Result<(), Misplaced> {
    let Way::Local { roots, .. } = &resolver.way else {
        return Ok(());
    };
    for root in roots {
        let checked = template::check_code(root, untrusted, names, CodeKind::Shell);
        checked.map_err(|source| Misplaced {
            place: "env_config: search_roots".to_owned(),
            source,
        })?;
    }
    Ok(())
}

/// Checks the `env_paths` of an anchor: programs load code from there, and no value of the call
/// chooses what.
pub(super) fn check_paths(
    paths: &Value,
    untrusted: &BTreeSet<String>,
    names: &Names,
) -> Result<(), Misplaced> {
    for (variable, change) in paths.as_object().into_iter().flatten() {
        let lists = change.as_object().into_iter().flatten();
        let texts = lists.flat_map(|(_, list)| match list {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        });
        for text in texts.filter_map(Value::as_str) {
            let checked = template::check_code(text, untrusted, names, CodeKind::Shell);
            checked.map_err(|source| Misplaced {
                place: format!("anchor: env_paths: {variable}"),
                source,
            })?;
        }
    }
    Ok(())
}

/// Checks a tool that is about to be signed: whether its code, or that of its runtime, would
/// contain one of its parameters. `content` are the bytes to sign. What the chain needs and is
/// not there is left to the call.
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
    let Some(own) = extract(content, tool) else {
        return Ok(());
    };
    let trust = library.trust();
    let mut chain = vec![own];
    while chain.len() < DEEPEST
        && let Some(above) = chain.last().and_then(|item| above(library, &trust, item))
    {
        chain.push(above);
    }
    let chain: Vec<&Metadata> = chain.iter().collect();
    check_statically(&chain).map_err(|Misplaced { place, source }| ExecuteError::ValueAsCode {
        id: tool.reference.id.to_string(),
        place,
        source,
    })
}

/// The metadata of an item's executor, verified.
fn above(library: &Library, trust: &Trust<'_>, item: &Metadata) -> Option<Metadata> {
    let reference = item.executor_id()?.parse().ok()?;
    let found = library.find(&reference).ok()?;
    let item = library.verify(&found, trust).ok()?;
    library.metadata(&item).ok().map(|it| (*it).clone())
}

/// The same check without a call: each parameter that the tool declares is given.
pub(super) fn check_statically(chain: &[&Metadata]) -> Result<(), Misplaced> {
    let Some(tool) = chain.first() else {
        return Ok(());
    };
    let given = declared(tool).map(|(name, _)| (name.clone(), json!("x")));
    let mut names = parameter_names(chain, &Value::Object(given.collect::<Map<_, _>>()));
    for name in FACTS {
        names.set(name, "x", Origin::Fact);
    }
    names.set("params_json", "x", Origin::Parameter);
    let config = merged(chain);
    let Some(Value::String(command)) = config.get("command") else {
        return Ok(());
    };
    let arguments = config.get("args").and_then(Value::as_array);
    let arguments = arguments.map_or(&[][..], Vec::as_slice);
    let variables = interpreters(chain);
    kinds(command, arguments, &variables, &BTreeSet::new(), &names).map(drop)
}

/// The interpreters that a chain looks for, by their variables.
fn interpreters(chain: &[&Metadata]) -> Variables {
    let configs = chain.iter().filter_map(|item| item.value("env_config"));
    let resolvers = configs.filter_map(|config| interpreter::read_all(config).ok());
    let named = resolvers.flatten().filter_map(|resolver| {
        let name = match resolver.way {
            Way::Local { names, .. } | Way::System { names } => names.into_iter().next(),
            Way::Command(_) => resolver.fallback,
        };
        Some((resolver.var, name?))
    });
    named.collect()
}
