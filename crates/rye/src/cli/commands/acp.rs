//! `rye acp`: serves an editor.

use rye_acp::Options;
use rye_host::settings;

use super::vault;
use crate::cli::args::AcpArgs;
use crate::cli::context::Context;
use crate::cli::printer::{AlreadyPrinted, Outcome};

pub(crate) fn run(args: &AcpArgs, settings: &settings::Options, context: &Context) -> Outcome {
    if let Some(name) = &args.set_key {
        return vault::set_user_secret(name, context);
    }
    let options = Options {
        sandbox: args.sandbox.map(Into::into),
        model: args.model.clone(),
    };
    rye_acp::run(context, settings, options)?;
    Ok(Box::new(AlreadyPrinted))
}
