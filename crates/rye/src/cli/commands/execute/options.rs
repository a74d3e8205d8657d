//! Options of rye that were typed after the tool's id.

use clap::ValueEnum as _;
use rye_host::settings::Color;

use super::param_args::usage_error;
use crate::cli::args::{CallOptions, ToolSandboxChoice, TraceChoice, seconds};
use crate::cli::failure::Failure;

/// Options before or after the tool's id.
#[derive(Debug, Default)]
pub(in crate::cli::commands) struct TypedOptions {
    pub(in crate::cli::commands) options: CallOptions,
    pub(in crate::cli::commands) json: bool,
    pub(in crate::cli::commands) quiet: bool,
    pub(super) color: Option<Color>,
    pub(in crate::cli::commands) help: bool,
}

impl From<CallOptions> for TypedOptions {
    fn from(options: CallOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }
}

impl TypedOptions {
    pub(super) const NAMES: &[&str] = &[
        "params",
        "dry-run",
        "trace",
        "async",
        "timeout",
        "sandbox",
        "json",
        "quiet",
        "color",
        "help",
        "project",
        "log",
        "log-file",
        "log-format",
    ];

    /// Whether rye has an option with this name.
    pub(super) fn is_option(name: &str) -> bool {
        Self::NAMES.contains(&name)
    }

    /// Sets a short option; returns `false` if there is no such option.
    pub(super) fn set_short(&mut self, word: &str) -> bool {
        match word {
            "-h" => self.help = true,
            "-q" => self.quiet = true,
            _ => return false,
        }
        true
    }

    /// Sets an option. `value` returns the attached or following word.
    pub(super) fn set<'a>(
        &mut self,
        name: &str,
        attached: Option<&str>,
        value: &mut dyn FnMut() -> Result<&'a str, Failure>,
    ) -> Result<(), Failure> {
        let is_flag = matches!(name, "dry-run" | "async" | "json" | "quiet" | "help");
        if is_flag && attached.is_some() {
            return Err(usage_error(format!("--{name} takes no value")));
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
                let message = || "invalid --trace: expected --trace or --trace=all".to_owned();
                self.options.trace = Some(choice.map_err(|_| usage_error(message()))?);
            }
            "timeout" => {
                let time = seconds(value()?);
                let time = time.map_err(|why| usage_error(format!("invalid --timeout: {why}")))?;
                self.options.timeout = Some(time);
            }
            "sandbox" => {
                let text = value()?;
                let choice = ToolSandboxChoice::from_str(text, false);
                let message = || format!("invalid --sandbox `{text}`: expected confined");
                self.options.sandbox = Some(choice.map_err(|_| usage_error(message()))?);
            }
            "color" => {
                let color = value()?.parse();
                let invalid =
                    |expected| usage_error(format!("invalid --color: expected {expected}"));
                self.color = Some(color.map_err(invalid)?);
            }
            "params" => {
                if self.options.params.is_some() {
                    return Err(usage_error("--params is given twice".to_owned()));
                }
                self.options.params = Some(value()?.to_owned());
            }
            _ => {
                let message = format!("--{name} must come before the tool's id");
                return Err(usage_error(message));
            }
        }
        Ok(())
    }
}
