//! Verifies the items of each space and reports ignored configuration.

use rye_items::{Library, Space};

use super::Checks;
use crate::context::Context;
use crate::failure::Failure;
use crate::targets::Targets;

pub(super) fn check(context: &Context, library: &Library, report: &mut Checks) {
    for (space, name) in [
        (Space::System, "system items"),
        (Space::User, "user items"),
        (Space::Project, "project items"),
    ] {
        if library.spaces().roots_in(space).next().is_some() {
            verify_space(context, library, space, name, report);
        } else if space == Space::Project {
            let detail = format!("{} has no .ai/", context.settings.project().display());
            report.warn(name, detail, "rye init".to_owned());
        }
    }
    for ignored in &context.settings.ignored {
        let detail = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
        report.warn("configuration", detail, ignored.hint.clone());
    }
    for ignored in library.ignored() {
        let detail = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
        report.warn(
            "extractors",
            detail,
            "rye sign rye/core/extractors/tool_extractor".to_owned(),
        );
    }
}

fn verify_space(
    context: &Context,
    library: &Library,
    space: Space,
    name: &'static str,
    report: &mut Checks,
) {
    let targets = Targets::all_signed(library, |other| other == space);
    let failures = targets.failures.into_iter();
    let mut failures: Vec<_> = failures.map(|(_, failure)| failure).collect();
    let total = targets.items.len();
    let progress = context.reporter().progress("verifying", Some(total));
    let checked = library.verify_batch(targets.items, &|done| progress.set(done));
    drop(progress);
    let wrong = checked.into_iter().filter_map(|(_, outcome)| outcome.err());
    failures.extend(wrong.map(Failure::from));
    let Some(first) = failures.first() else {
        return report.ok(name, format!("{total} verified"));
    };
    let detail = match failures.len() {
        1 => first.message.clone(),
        n => format!("{n} of {total} do not verify; first: {}", first.message),
    };
    let fix = match failures.len() {
        1 => first.hint.clone(),
        _ => Some(format!("rye verify --all --space {space}")),
    };
    // Unsigned items are work in progress; altered ones are not.
    if failures.iter().all(|failure| failure.code == "unsigned") && space != Space::System {
        report.warn(name, detail, fix);
    } else {
        report.fail(name, detail, fix);
    }
}
