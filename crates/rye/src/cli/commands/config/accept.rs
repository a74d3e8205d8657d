//! `rye config accept`: records that the user accepts a project's agent configuration.

use rye_host::accept::accept_configuration;

use crate::cli::args::AcceptArgs;
use crate::cli::commands::keys::confirm;
use crate::cli::context::Context;
use crate::cli::printer::Outcome;

pub(super) fn run(args: &AcceptArgs, context: &Context) -> Outcome {
    let accepted = accept_configuration(context, &|question| {
        if args.yes {
            return Ok(());
        }
        let action = "accepting a project's configuration";
        confirm(context, question, action, "rye config accept --yes")
    });
    Ok(Box::new(accepted?))
}
