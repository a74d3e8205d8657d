//! The options of a call that were typed, before the tool's id or after it.

use clap::ValueEnum as _;

use super::words::wrong;
use crate::cli::args::{CallOptions, TraceChoice, seconds};
use crate::cli::failure::Failure;
use crate::settings::Color;

/// The call's own options.
#[derive(Debug, Default)]
pub(in crate::cli::commands) struct Own {
    pub(in crate::cli::commands) options: CallOptions,
    pub(super) json: bool,
    pub(super) quiet: bool,
    pub(super) color: Option<Color>,
    pub(in crate::cli::commands) help: bool,
}

impl Own {
    pub(super) const NAMES: &[&str] = &[
        "params", "dry-run", "trace", "async", "timeout", "json", "quiet", "color", "help",
        "project",
    ];

    /// Whether the call has an option of this name.
    pub(super) fn has(name: &str) -> bool {
        Self::NAMES.contains(&name)
    }

    /// Takes a short option, if it is one.
    pub(super) fn short(&mut self, word: &str) -> bool {
        match word {
            "-h" => self.help = true,
            "-q" => self.quiet = true,
            _ => return false,
        }
        true
    }

    /// Takes an option. `value` gives what was typed with or after it.
    pub(super) fn set<'a>(
        &mut self,
        name: &str,
        attached: Option<&str>,
        value: &mut dyn FnMut() -> Result<&'a str, Failure>,
    ) -> Result<(), Failure> {
        let takes_none = matches!(name, "dry-run" | "async" | "json" | "quiet" | "help");
        if takes_none && attached.is_some() {
            return Err(wrong(format!("--{name} takes no value")));
        }
        match name {
            "dry-run" => self.options.dry_run = true,
            "async" => self.options.background = true,
            "json" => self.json = true,
            "quiet" => self.quiet = true,
            "help" => self.help = true,
            "trace" => {
                let choice = attached.map(|text| TraceChoice::from_str(text, false));
                let choice = choice.unwrap_or(Ok(TraceChoice::Steps));
                let message = || "--trace is --trace or --trace=all".to_owned();
                self.options.trace = Some(choice.map_err(|_| wrong(message()))?);
            }
            "timeout" => {
                let time = seconds(value()?);
                let time = time.map_err(|why| wrong(format!("--timeout: {why}")))?;
                self.options.timeout = Some(time);
            }
            "color" => {
                let color = value()?.parse();
                self.color = Some(color.map_err(|why| wrong(format!("--color: {why}")))?);
            }
            "params" => {
                if self.options.params.is_some() {
                    return Err(wrong("--params is given twice".to_owned()));
                }
                self.options.params = Some(value()?.to_owned());
            }
            _ => {
                let message = format!("--{name} belongs before the tool's id");
                return Err(wrong(message).hint("rye execute --project DIR ID"));
            }
        }
        Ok(())
    }
}
