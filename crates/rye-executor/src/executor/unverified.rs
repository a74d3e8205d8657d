//! Finds everything that does not verify in a call, so that one command can sign it.

use lillux::shell_word;
use rye_items::{IntegrityError, ItemRef, Library, Options};

use super::{Executor, dependencies};
use crate::chain;
use crate::error::ExecuteError;

impl Executor {
    /// Adds to an integrity error the other items and directories of the call that do not verify.
    pub(super) fn with_all_unverified(&self, tool: &ItemRef, error: ExecuteError) -> ExecuteError {
        if !error.integrity().is_some_and(IntegrityError::is_signable) {
            return error;
        }
        let (problems, environments) = self.unverified(tool).unwrap_or_default();
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

    /// The failed verifications of a chain and of the files that it loads, and the interpreter
    /// environments in the tool's directory that are not signed. Unverified metadata is only read
    /// to find them.
    fn unverified(
        &self,
        tool: &ItemRef,
    ) -> Result<(Vec<IntegrityError>, Vec<std::path::PathBuf>), ExecuteError> {
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
        Ok((problems, found.environments))
    }
}
