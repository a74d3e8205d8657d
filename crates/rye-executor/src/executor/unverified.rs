//! Finds everything that does not verify in a call, so that one command can sign it.

use std::path::{Path, PathBuf};

use lillux::shell_word;
use rye_items::{IntegrityError, ItemRef, Library, Options};

use super::{Executor, dependencies};
use crate::chain;
use crate::error::ExecuteError;

impl Executor {
    /// Adds to an integrity error the other items and directories of the call that do not verify,
    /// including those of tools that the tool itself calls.
    pub fn with_all_unverified(&self, tool: &ItemRef, error: ExecuteError) -> ExecuteError {
        if !error.integrity().is_some_and(IntegrityError::is_signable) {
            return error;
        }
        let (problems, environments) = self.all_unverified(tool);
        if problems.len() + environments.len() < 2
            || !problems.iter().all(IntegrityError::is_signable)
        {
            return error;
        }
        let mut targets = Vec::new();
        let mut manifests = Vec::new();
        for problem in &problems {
            match problem.sign_argument() {
                argument if argument.starts_with("--manifest ") => manifests.push(argument),
                argument => {
                    let id = argument.strip_prefix("tool:").unwrap_or(&argument);
                    targets.push(id.to_owned());
                }
            }
        }
        let environments = environments.iter();
        manifests.extend(environments.map(|path| format!("--manifest {}", shell_word(path))));
        targets.append(&mut manifests);
        let mut arguments: Vec<String> = Vec::new();
        for argument in targets {
            if !arguments.contains(&argument) {
                arguments.push(argument);
            }
        }
        ExecuteError::Unverified {
            error: Box::new(error),
            all: problems,
            command: format!("rye sign {}", arguments.join(" ")),
        }
    }

    /// The failed verifications of a tool and of the tools that it calls, and the interpreter
    /// environments in their directories that are not signed.
    fn all_unverified(&self, tool: &ItemRef) -> (Vec<IntegrityError>, Vec<PathBuf>) {
        let (mut problems, mut environments) = (Vec::new(), Vec::new());
        let mut tools = vec![tool.clone()];
        let mut next = 0;
        while let Some(tool) = tools.get(next).cloned() {
            next += 1;
            // A tool that cannot be read at all is an error of its own.
            let Ok(found) = self.unverified(&tool) else {
                continue;
            };
            let other = found.problems.into_iter();
            let other = other.filter(|it: &IntegrityError| !has_path(&problems, &it.path));
            let other: Vec<_> = other.collect();
            problems.extend(other);
            environments.extend(found.environments);
            for tool in found.called {
                if !tools.contains(&tool) {
                    tools.push(tool);
                }
            }
        }
        (problems, environments)
    }

    /// What does not verify in a chain and in the files that it loads. Unverified metadata is only
    /// read to find them.
    fn unverified(&self, tool: &ItemRef) -> Result<Unverified, ExecuteError> {
        let lenient = Library::open(&Options {
            dev_mode: true,
            process_cache: None,
            ..self.options()
        });
        let lenient = lenient.map_err(chain::ChainError::from)?;
        let trust = lenient.trust();
        let chain = chain::build(&lenient, &trust, tool, &self.primitives)?;
        let links = chain.links.iter().chain(chain.named.values());
        let mut problems: Vec<_> = links.filter_map(|link| link.item.waived.clone()).collect();
        let library = self.library()?;
        let anchor = self.anchor(&lenient, &chain)?;
        let trust = library.trust();
        let found = dependencies::unverified(&library, &trust, &chain, &anchor)?;
        problems.extend(found.problems);
        let primitive = self.primitives.get(chain.primitive().id());
        Ok(Unverified {
            problems,
            environments: found.environments,
            called: primitive
                .map(|it| it.called_tools(&chain.tool().item))
                .unwrap_or_default(),
        })
    }
}

/// What does not verify in the chain of one tool.
struct Unverified {
    problems: Vec<IntegrityError>,
    environments: Vec<PathBuf>,
    /// Tools that the tool calls.
    called: Vec<ItemRef>,
}

fn has_path(problems: &[IntegrityError], path: &Path) -> bool {
    problems.iter().any(|it| it.path == path)
}
