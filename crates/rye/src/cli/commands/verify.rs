//! `rye verify`: verifies the signatures of items and their dependencies.

use rye_host::verify::verify;

use crate::cli::args::VerifyArgs;
use crate::cli::context::Context;
use crate::cli::printer::Outcome;

pub(crate) fn run(args: &VerifyArgs, context: &Context) -> Outcome {
    let names = (!args.all).then_some(args.targets.as_slice());
    Ok(Box::new(verify(
        names,
        args.space.map(Into::into),
        context,
    )?))
}
