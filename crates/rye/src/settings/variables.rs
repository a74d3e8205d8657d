//! The variables of the environment that mean something to rye. What a setting reads is
//! listed here, and from here it goes into the reference; a test holds the two together.

use serde::Serialize;

/// When a variable is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Read {
    /// In every call.
    Call,
    /// When rye itself is built.
    Build,
}

/// A variable that rye reads.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) read: Read,
    /// What it says, as Markdown.
    pub(crate) says: &'static str,
}

const fn call(name: &'static str, says: &'static str) -> Variable {
    let read = Read::Call;
    Variable { name, read, says }
}

const fn build(name: &'static str, says: &'static str) -> Variable {
    let read = Read::Build;
    Variable { name, read, says }
}

/// All of them, those of a call first, each in alphabetical order.
pub(crate) const VARIABLES: [Variable; 22] = [
    call(
        "HOME",
        "the folder with your `.ai/`, where `USER_SPACE` is not set; the cache and the state are below it",
    ),
    call("NO_COLOR", "anything: as `RYE_COLOR=never`"),
    call("PATH", "where interpreters are looked for"),
    call(
        "RYE_CACHE_DIR",
        "where what can be derived again is kept; an absolute path",
    ),
    call(
        "RYE_COLOR",
        "whether output is coloured: `auto`, `always` or `never`",
    ),
    call(
        "RYE_CONTEXT_WINDOW",
        "tokens that a model reads and writes at once, in place of what `models.yaml` says",
    ),
    call(
        "RYE_DEBUG",
        "`1`: every `rye execute` shows how the tool comes to run, as with `--trace`",
    ),
    call(
        "RYE_DEV_MODE",
        "`1`: items of the project and your own that do not verify pass with a warning; never those of the system, and never for an agent",
    ),
    call(
        "RYE_GRAPH_QUIET",
        "`1`: graphs do not tell how they go, a line a step",
    ),
    call(
        "RYE_MAX_TOKENS",
        "tokens that a model writes at most, in place of what `models.yaml` says",
    ),
    call(
        "RYE_MAX_TOOL_CALLS",
        "tool calls of one answer of a model that are run; 128 unless set",
    ),
    call(
        "RYE_MCP_TOKEN",
        "the token of those who may call `rye mcp serve --http`, where no `--token-file` is given",
    ),
    call(
        "RYE_METRICS",
        "a file to which every command that runs an engine writes how long things took, in the text format of Prometheus",
    ),
    call(
        "RYE_PROJECT",
        "the project's folder, where no `--project` is given",
    ),
    call(
        "RYE_REQUIRE_BOUND_SIGNATURES",
        "`1`: signatures that are not bound to the file they are under do not count, as `signatures: bound` in your `rye.yaml`",
    ),
    call(
        "RYE_STATE_DIR",
        "where runs in the background and sessions are written down; an absolute path",
    ),
    call(
        "RYE_SYSTEM_SPACE",
        "bundles of the system space, a list as in `PATH`",
    ),
    call(
        "USER",
        "whose key `rye init` and `rye keys generate` make, where no `--owner` is given",
    ),
    call(
        "USER_SPACE",
        "the folder with your `.ai/`, in place of `HOME`",
    ),
    call(
        "XDG_CACHE_HOME",
        "the folder of all caches, where `RYE_CACHE_DIR` is not set",
    ),
    call(
        "XDG_STATE_HOME",
        "the folder of all state, where `RYE_STATE_DIR` is not set",
    ),
    build(
        "RYE_RELEASE_KEY",
        "the file with the key that signs the system space; without it, one that is thrown away",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Every word in quotes that is a name of ours, in the sources below a folder.
    fn named_below(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path.file_name().unwrap().to_string_lossy().contains("test");
            if path.is_dir() && !is_test {
                named_below(&path, names);
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
    fn every_variable_of_ours_that_a_setting_reads_is_listed() {
        let mut read = BTreeSet::new();
        named_below(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut read,
        );
        let listed = VARIABLES.map(|variable| variable.name.to_owned());
        let missing: Vec<_> = read.iter().filter(|name| !listed.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(read.contains("RYE_PROJECT"));
    }

    #[test]
    fn the_list_is_in_order_and_names_nothing_twice() {
        let names = |read| {
            let all = VARIABLES
                .iter()
                .filter(move |variable| variable.read == read);
            all.map(|variable| variable.name).collect::<Vec<_>>()
        };
        for read in [Read::Call, Read::Build] {
            assert!(names(read).is_sorted_by(|a, b| a < b));
        }
    }
}
