//! The help of a tool, from its own schema.

use rye_executor::chain::Chain;
use serde_json::{Map, Value, json};

use super::schema::{Properties, Property};
use crate::cli::page::{BOLD, DIM, Page, WARN, paint, plain};
use crate::cli::printer::Report;
use crate::cli::table::{Cell, Table};

/// What a tool does and takes.
pub(super) struct Help {
    id: String,
    description: Option<String>,
    schema: Option<Value>,
    /// What else it says about itself, in words.
    facts: Vec<(&'static str, String)>,
    chain: Vec<String>,
}

impl Help {
    pub(super) fn of(chain: &Chain) -> Self {
        let metadata = &chain.tool().metadata;
        let mut facts = Vec::new();
        let mut fact = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
        fact("version", metadata.version().map(str::to_owned));
        fact(
            "risk",
            metadata.risk_level().map(|risk| risk.as_str().to_owned()),
        );
        fact(
            "effect",
            metadata.effect().map(|effect| effect.as_str().to_owned()),
        );
        let approval = metadata.requires_approval().unwrap_or_default();
        fact(
            "approval",
            approval.then(|| "asked for by agents".to_owned()),
        );
        fact(
            "timeout",
            metadata.timeout().map(|seconds| format!("{seconds} s")),
        );
        let needed = metadata.requires_env().join(", ");
        fact("needs", (!needed.is_empty()).then_some(needed));
        Self {
            id: chain.tool().id().to_string(),
            description: metadata.description().map(str::to_owned),
            schema: metadata.config_schema().cloned(),
            facts,
            chain: chain.ids(),
        }
    }
}

impl Report for Help {
    fn json(&self) -> Value {
        let facts: Map<_, _> = self
            .facts
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.as_str().into()))
            .collect();
        json!({
            "item_id": self.id,
            "description": self.description,
            "schema": self.schema,
            "about": facts,
            "chain": self.chain,
        })
    }

    fn show(&self, page: &mut Page) {
        if let Some(description) = &self.description {
            page.line(plain(description.trim()));
            page.line("");
        }
        let properties = Properties::of(self.schema.as_ref());
        let usage = match properties.iter().next() {
            None if !properties.are_any() => "",
            _ => " [--PARAMETER VALUE]...",
        };
        page.line(format_args!(
            "{} rye execute [OPTIONS] {}{usage}",
            paint(BOLD, "Usage:"),
            self.id
        ));
        page.line("");
        if properties.are_any() {
            page.line("It does not say which parameters it takes: values are texts, or --params.");
        } else if properties.iter().next().is_some() {
            page.line(paint(BOLD, "Parameters:"));
            let mut table = Table::new(["  NAME", "TYPE", "ABOUT"]);
            for property in properties.iter() {
                table.row([
                    Cell::new(format!("  --{}", property.name.replace('_', "-"))),
                    Cell::styled(DIM, kind(property)),
                    Cell::new(about(property)),
                ]);
            }
            page.table(&table);
        } else {
            page.line("It takes no parameters.");
        }
        page.line("");
        for (name, value) in &self.facts {
            let style = if *name == "risk" { WARN } else { DIM };
            page.line(format_args!(
                "{} {}",
                paint(style, format_args!("{name:<9}")),
                plain(value)
            ));
        }
        let chain = self.chain.join(" → ");
        page.line(format_args!(
            "{} {chain}",
            paint(DIM, format_args!("{:<9}", "chain"))
        ));
        page.line(format_args!(
            "{} rye execute --help",
            paint(DIM, format_args!("{:<9}", "options"))
        ));
    }
}

fn kind(property: &Property) -> String {
    if property.kinds.is_list() {
        return match property.items.words().as_str() {
            "any" => "list".to_owned(),
            items => format!("list of {items}"),
        };
    }
    property.kinds.words()
}

/// Its description, and in brackets whether it is needed, its default and choices.
fn about(property: &Property) -> String {
    let mut notes = Vec::new();
    if property.required {
        notes.push("required".to_owned());
    }
    let choices = property.kinds.choices();
    if !choices.is_empty() {
        let choices: Vec<_> = choices.iter().map(word).collect();
        notes.push(format!("one of {}", choices.join(", ")));
    }
    for (key, name) in [("minimum", "at least"), ("maximum", "at most")] {
        if let Some(limit) = property.about.get(key) {
            notes.push(format!("{name} {limit}"));
        }
    }
    if let Some(default) = property.about.get("default") {
        notes.push(format!("default {}", word(default)));
    }
    let notes = match notes.as_slice() {
        [] => String::new(),
        notes => format!("[{}]", notes.join("; ")),
    };
    let description = property.about.get("description").and_then(Value::as_str);
    match description {
        Some(description) => format!("{} {notes}", description.trim())
            .trim_end()
            .to_owned(),
        None => notes,
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
