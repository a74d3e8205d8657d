//! `rye search`: finds items.

use rye_host::search::{VerifiedResults, search, signature_state};
use rye_items::search::{Hit, Query, SearchIndex, SearchResults};
use rye_items::{IntegrityProblem, Space};
use serde_json::Value;

use crate::cli::args::SearchArgs;
use crate::cli::context::Context;
use crate::cli::page::{BAD, DIM, GOOD, Page, WARN, paint};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(args: SearchArgs, context: &Context) -> Outcome {
    let query = Query {
        kinds: args.kinds,
        spaces: args.spaces.into_iter().map(Space::from).collect(),
        category: args.category,
        signer: args.signer,
        risk: args.risk,
        ..Query::new(args.words.join(" "))
    };
    let index = SearchIndex::new(context.cache());
    Ok(Box::new(search(query, args.limit, context, &index)?))
}

impl Report for VerifiedResults {
    fn json(&self) -> Value {
        self.json()
    }

    fn show(&self, page: &mut Page) {
        let SearchResults { hits, total, .. } = &self.results;
        if hits.is_empty() {
            page.line("no items found");
            return;
        }
        let mut table = Table::new(["ITEM", "SPACE", "STATE", "DESCRIPTION"]);
        for (hit, verdict) in hits.iter().zip(&self.verdicts) {
            let style = match verdict {
                Ok(()) => GOOD,
                Err(
                    IntegrityProblem::Line(_)
                    | IntegrityProblem::Untrusted { .. }
                    | IntegrityProblem::Unbound,
                ) => WARN,
                Err(_) => BAD,
            };
            table.row([
                hit.reference.to_string().into(),
                describe_space(hit).into(),
                Cell::styled(style, signature_state(hit, verdict)),
                description(hit),
            ]);
        }
        page.table(&table);
        if *total > hits.len() {
            let more = format!(
                "{} of {total} items; use --limit N to show more",
                hits.len()
            );
            page.line(paint(DIM, more));
        }
    }
}

fn description(hit: &Hit) -> Cell {
    if let Some(problem) = &hit.problem {
        return Cell::styled(BAD, problem);
    }
    if let Some(shadow) = &hit.shadowed_by {
        let text = format!("shadowed by {}", shadow.path.display());
        return Cell::styled(DIM, text);
    }
    let first = [&hit.description, &hit.title];
    Cell::new(
        first
            .into_iter()
            .find(|text| !text.is_empty())
            .map_or("", |text| text),
    )
}

/// The space of a hit, and the spaces in which it shadows an item with the same id.
fn describe_space(hit: &Hit) -> String {
    let mut text = hit.location.space.as_str().to_owned();
    let mut separator = " over ";
    for shadow in &hit.shadows {
        text = text + separator + shadow.space.as_str();
        separator = ", ";
    }
    text
}
