//! Whether the items of each space verify, and which configuration counts.

use rye_items::{Library, Space};

use super::Health;
use crate::cli::commands::verify;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::progress::Progress;

pub(super) fn check(context: &Context, library: &Library, health: &mut Health) {
    for (space, name) in [
        (Space::System, "system items"),
        (Space::User, "user items"),
        (Space::Project, "project items"),
    ] {
        if library.spaces().roots_in(space).next().is_some() {
            verify_space(library, space, name, context, health);
        } else if space == Space::Project {
            let about = format!("{} has no .ai/", context.settings.project().display());
            health.warn(name, about, "rye init".to_owned());
        }
    }
    for ignored in &context.settings.ignored {
        let about = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
        health.warn("configuration", about, ignored.hint.clone());
    }
    for ignored in library.ignored() {
        let about = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
        health.warn(
            "extractors",
            about,
            "rye sign rye/core/extractors/tool_extractor".to_owned(),
        );
    }
}

fn verify_space(
    library: &Library,
    space: Space,
    name: &'static str,
    context: &Context,
    health: &mut Health,
) {
    let targets = verify::all(library, |other| other == space);
    let failures = targets.failures.into_iter();
    let mut failures: Vec<_> = failures.map(|(_, failure)| failure).collect();
    let progress = Progress::new(context.printer, "verifying", targets.items.len());
    let total = targets.items.len();
    let checked = library.verify_batch(targets.items, &|done| progress.reach(done));
    drop(progress);
    let wrong = checked.into_iter().filter_map(|(_, outcome)| outcome.err());
    failures.extend(wrong.map(Failure::from));
    let Some(first) = failures.first() else {
        return health.good(name, format!("{total} verify"));
    };
    let about = match failures.len() {
        1 => first.message.clone(),
        n => format!("{n} of {total} do not verify; the first: {}", first.message),
    };
    let fix = match failures.len() {
        1 => first.hint.clone(),
        _ => Some(format!("rye verify --all --space {space}")),
    };
    // What nobody has signed yet is work in progress; what was signed and differs is not.
    if failures.iter().all(|failure| failure.code == "unsigned") && space != Space::System {
        health.warn(name, about, fix);
    } else {
        health.fail(name, about, fix);
    }
}
