//! `rye load`: shows an item, or copies it to another space.

use rye_host::load::{CopiedItem, LoadedItem, load, new_copy, verified_item};
use rye_items::{Coverage, Item, ItemKind, ItemRef};
use serde_json::Value;

use super::keys::confirm;
use crate::cli::args::LoadArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, DIM, GOOD, Page, WARN, paint, sanitize};
use crate::cli::printer::{AlreadyPrinted, Outcome, Printer, Report};

pub(crate) fn run(args: &LoadArgs, context: &Context) -> Outcome {
    let reference: ItemRef = args.item.parse()?;
    if let Some(space) = args.to {
        let copy = new_copy(&reference, space.into(), context)?;
        if reference.kind == ItemKind::Config && !args.yes {
            let question = copy.question();
            let hint = format!("rye load {reference} --to {} --yes", copy.space);
            confirm(context, &question, "copying configuration", &hint)?;
        }
        return Ok(Box::new(copy.write(context)?));
    }
    if args.content && !context.printer.json {
        let (_, item) = verified_item(&reference, context)?;
        Printer::raw(item.content()).map_err(|error| {
            Failure::failed(
                "io",
                format_args!("cannot write to standard output: {error}"),
            )
        })?;
        return Ok(Box::new(AlreadyPrinted));
    }
    Ok(Box::new(load(&reference, context)?))
}

impl Report for LoadedItem {
    fn json(&self) -> Value {
        self.json()
    }

    fn show(&self, page: &mut Page) {
        let Self { item, metadata, .. } = self;
        page.line(paint(BOLD, &item.reference));
        let mut field = |name: &str, value: &str| {
            if !value.is_empty() {
                let name = paint(DIM, format!("{name:<12}"));
                page.line(format_args!("  {name} {}", sanitize(value)));
            }
        };
        field("description", metadata.description().unwrap_or_default());
        field("version", metadata.version().unwrap_or_default());
        field("runtime", metadata.executor_id().unwrap_or_default());
        field("parameters", &metadata.parameter_names().join(", "));
        field("space", item.space.as_str());
        field("file", &item.path.display().to_string());
        for path in &self.shadowed {
            field("shadows", &path.display().to_string());
        }
        page.line(format_args!(
            "  {} {}",
            paint(DIM, format_args!("{:<12}", "signature")),
            describe_signature(item)
        ));
        page.line("");
        let content = String::from_utf8_lossy(item.content());
        page.line(sanitize(content.trim_end()));
    }
}

fn describe_signature(item: &Item) -> String {
    let Some(signer) = &item.signer else {
        return paint(WARN, "none (RYE_DEV_MODE)").to_string();
    };
    let fingerprint = signer.key.fingerprint();
    let owner = signer.owner.as_deref().unwrap_or_default();
    let line = item.signature.as_ref();
    let time = line.map_or("", |line| &line.time);
    let provenance = line.and_then(|line| line.provenance.as_deref());
    let provenance = provenance.map_or_else(String::new, |from| format!(", claims to be {from}"));
    let coverage = match item.coverage {
        Coverage::Whole => "",
        Coverage::Partial => ", covers only its <directive> element",
    };
    let signed = paint(GOOD, "signed");
    let owner = sanitize(owner);
    format!("{signed} by {fingerprint} {owner} on {time}{provenance}{coverage}")
}

impl Report for CopiedItem {
    fn json(&self) -> Value {
        self.json()
    }

    fn show(&self, page: &mut Page) {
        let path = self.path.display();
        page.line(format_args!("copied {} to {path}", self.item));
    }
}
