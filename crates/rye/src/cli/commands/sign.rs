//! `rye sign`: signs items, and the directories from which tools load code.

use rye_host::sign::{SignTargets, sign};

use crate::cli::args::SignArgs;
use crate::cli::context::Context;
use crate::cli::printer::Outcome;

pub(crate) fn run(args: SignArgs, context: &Context) -> Outcome {
    let targets = SignTargets {
        names: args.targets,
        manifests: args.manifest,
        all: args.all,
        space: args.space.map(Into::into),
        provenance: args.provenance,
    };
    Ok(Box::new(sign(targets, context, None)?))
}
