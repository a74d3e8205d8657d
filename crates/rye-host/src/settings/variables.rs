//! The environment variables that rye reads. The reference documentation is generated from this
//! list; a test checks that it is complete.

use serde::Serialize;

/// When a variable is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadTime {
    /// By every call.
    Call,
    /// While building rye.
    Build,
}

/// An environment variable that rye reads.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Variable {
    pub name: &'static str,
    pub read: ReadTime,
    /// What it sets, as Markdown.
    pub description: &'static str,
}

const fn call(name: &'static str, description: &'static str) -> Variable {
    let read = ReadTime::Call;
    Variable {
        name,
        read,
        description,
    }
}

const fn build(name: &'static str, description: &'static str) -> Variable {
    let read = ReadTime::Build;
    Variable {
        name,
        read,
        description,
    }
}

/// All variables: those read by a call, then those read by the build, each in alphabetical order.
pub const VARIABLES: [Variable; 25] = [
    call(
        "HOME",
        "directory that contains your `.ai/`, unless `USER_SPACE` is set; default parent of the cache and state directories",
    ),
    call("NO_COLOR", "any value: same as `RYE_COLOR=never`"),
    call("PATH", "where to look for interpreters"),
    call("RYE_CACHE_DIR", "absolute path of the cache directory"),
    call(
        "RYE_COLOR",
        "when to colour output: `auto`, `always` or `never`",
    ),
    call(
        "RYE_CONTEXT_WINDOW",
        "context window in tokens, instead of the one in `models.yaml`",
    ),
    call(
        "RYE_DEBUG",
        "`1`: trace every `rye execute`, as with `--trace`",
    ),
    call(
        "RYE_DEV_MODE",
        "`1`: warn about unverified project and user items instead of refusing them; has no effect on system items and agents",
    ),
    call("RYE_GRAPH_QUIET", "`1`: do not print the steps of graphs"),
    call(
        "RYE_LOG",
        "what to log, unless `--log` is given: `error`, `warn`, `info`, `debug`, `trace`, or directives such as `rye_engine=debug,warn`",
    ),
    call(
        "RYE_LOG_FILE",
        "file to append the log to instead of standard error, unless `--log-file` is given",
    ),
    call(
        "RYE_LOG_FORMAT",
        "format of the log, unless `--log-format` is given: `text` or `json`",
    ),
    call(
        "RYE_MAX_TOKENS",
        "maximum output of a model in tokens, instead of the one in `models.yaml`",
    ),
    call(
        "RYE_MAX_TOOL_CALLS",
        "maximum number of tool calls to run per model answer (default 128)",
    ),
    call(
        "RYE_MCP_TOKEN",
        "token for clients of `rye mcp serve --http`, unless `--token-file` is given",
    ),
    call(
        "RYE_METRICS",
        "file for metrics in the Prometheus text format, written by every command that runs the engine",
    ),
    call(
        "RYE_PROJECT",
        "project directory, unless `--project` is given",
    ),
    call(
        "RYE_REQUIRE_BOUND_SIGNATURES",
        "`1`: reject signatures that are not bound to their file, same as `signatures: bound` in your `rye.yaml`",
    ),
    call(
        "RYE_STATE_DIR",
        "absolute path of the directory for sessions and background runs",
    ),
    call(
        "RYE_SYSTEM_SPACE",
        "bundles of the system space, separated as in `PATH`",
    ),
    call(
        "USER",
        "owner of the key that `rye init` and `rye keys generate` create, unless `--owner` is given",
    ),
    call(
        "USER_SPACE",
        "directory that contains your `.ai/`, instead of `HOME`",
    ),
    call(
        "XDG_CACHE_HOME",
        "parent of the cache directory, unless `RYE_CACHE_DIR` is set",
    ),
    call(
        "XDG_STATE_HOME",
        "parent of the state directory, unless `RYE_STATE_DIR` is set",
    ),
    build(
        "RYE_RELEASE_KEY",
        "file with the key that signs the system space; if unset, a temporary key is used",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Collects all string literals that are variable names of rye in the sources below a directory.
    fn collect_names(dir: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path.file_name().unwrap().to_string_lossy().contains("test");
            if path.is_dir() && !is_test {
                collect_names(&path, names);
            } else if path.extension().is_some_and(|ending| ending == "rs") && !is_test {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                let words = code.split('"').skip(1).step_by(2);
                let ours = words.filter(|word| {
                    let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
                    word.len() > "RYE_".len()
                        && word.starts_with("RYE_")
                        && word.chars().all(is_name)
                });
                names.extend(ours.map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_variable_that_is_read_is_listed() {
        let mut read = BTreeSet::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for name in ["rye", "rye-chat", "rye-host"] {
            collect_names(&crates.join(name).join("src"), &mut read);
        }
        let listed = VARIABLES.map(|variable| variable.name.to_owned());
        let missing: Vec<_> = read.iter().filter(|name| !listed.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(read.contains("RYE_PROJECT"));
    }

    #[test]
    fn variables_are_sorted_and_unique() {
        let names = |read| {
            let all = VARIABLES
                .iter()
                .filter(move |variable| variable.read == read);
            all.map(|variable| variable.name).collect::<Vec<_>>()
        };
        for read in [ReadTime::Call, ReadTime::Build] {
            assert!(names(read).is_sorted_by(|a, b| a < b));
        }
    }
}
