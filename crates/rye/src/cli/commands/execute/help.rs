//! Help of a tool, from its metadata and schema.

use rye_executor::chain::Chain;
use rye_host::parameter_schema::{Properties, Property};
use serde_json::{Map, Value, json};

use crate::cli::page::{BOLD, DIM, Page, WARN, paint, sanitize};
use crate::cli::printer::Report;
use crate::cli::table::{Cell, Table};

/// Description, parameters and properties of a tool.
pub(super) struct ToolHelp {
    id: String,
    description: Option<String>,
    schema: Option<Value>,
    /// Other properties: name and value.
    properties: Vec<(&'static str, String)>,
    chain: Vec<String>,
}

impl ToolHelp {
    pub(super) fn new(chain: &Chain) -> Self {
        let metadata = &chain.tool().metadata;
        let mut properties = Vec::new();
        let mut add =
            |name, value: Option<String>| properties.extend(value.map(|value| (name, value)));
        add("version", metadata.version().map(str::to_owned));
        add(
            "risk",
            metadata.risk_level().map(|risk| risk.as_str().to_owned()),
        );
        add(
            "effect",
            metadata.effect().map(|effect| effect.as_str().to_owned()),
        );
        let approval = metadata.requires_approval().unwrap_or_default();
        add(
            "approval",
            approval.then(|| "required for agents".to_owned()),
        );
        add(
            "timeout",
            metadata.timeout().map(|seconds| format!("{seconds} s")),
        );
        let sandbox = chain.sandbox().ok().flatten();
        add("sandbox", sandbox.map(|sandbox| sandbox.to_string()));
        let variables = metadata.requires_env().join(", ");
        add("variables", (!variables.is_empty()).then_some(variables));
        Self {
            id: chain.tool().id().to_string(),
            description: metadata.description().map(str::to_owned),
            schema: metadata.config_schema().cloned(),
            properties,
            chain: chain.ids(),
        }
    }
}

impl Report for ToolHelp {
    fn json(&self) -> Value {
        let properties: Map<_, _> = self
            .properties
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.as_str().into()))
            .collect();
        json!({
            "item_id": self.id,
            "description": self.description,
            "schema": self.schema,
            "properties": properties,
            "chain": self.chain,
        })
    }

    fn show(&self, page: &mut Page) {
        if let Some(description) = &self.description {
            page.line(sanitize(description.trim()));
            page.line("");
        }
        let parameters = Properties::from_schema(self.schema.as_ref());
        let usage = match parameters.iter().next() {
            None if !parameters.is_open() => "",
            _ => " [--PARAMETER VALUE]...",
        };
        page.line(format_args!(
            "{} rye execute [OPTIONS] {}{usage}",
            paint(BOLD, "Usage:"),
            self.id
        ));
        page.line("");
        let has_names = parameters.iter().next().is_some();
        if has_names {
            page.line(paint(BOLD, "Parameters:"));
            let mut table = Table::new(["  NAME", "TYPE", "DESCRIPTION"]);
            for property in parameters.iter() {
                table.row([
                    Cell::new(format!("  --{}", property.name.replace('_', "-"))),
                    Cell::styled(DIM, type_name(property)),
                    Cell::new(description(property)),
                ]);
            }
            page.table(&table);
        }
        match (parameters.is_open(), has_names) {
            (true, true) => page.line("The tool accepts other parameters too, as strings."),
            (true, false) => {
                page.line(
                    "The tool has no schema: pass any parameter as a string, or use --params.",
                );
            }
            (false, true) => {}
            (false, false) => page.line("The tool has no parameters."),
        }
        page.line("");
        for (name, value) in &self.properties {
            let style = if *name == "risk" { WARN } else { DIM };
            page.line(format_args!(
                "{} {}",
                paint(style, format_args!("{name:<9}")),
                sanitize(value)
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

fn type_name(property: &Property) -> String {
    if property.kinds.is_list() {
        return match property.items.describe().as_str() {
            "any" => "list".to_owned(),
            items => format!("list of {items}"),
        };
    }
    property.kinds.describe()
}

/// The description, and in brackets whether it is required, its choices, range and default.
fn description(property: &Property) -> String {
    let mut notes = Vec::new();
    if property.required {
        notes.push("required".to_owned());
    }
    let choices = property.kinds.choices();
    if !choices.is_empty() {
        let choices: Vec<_> = choices.iter().map(display).collect();
        notes.push(format!("one of {}", choices.join(", ")));
    }
    for (key, name) in [("minimum", "at least"), ("maximum", "at most")] {
        if let Some(limit) = property.schema.get(key) {
            notes.push(format!("{name} {limit}"));
        }
    }
    if let Some(default) = property.schema.get("default") {
        notes.push(format!("default {}", display(default)));
    }
    let notes = match notes.as_slice() {
        [] => String::new(),
        notes => format!("[{}]", notes.join("; ")),
    };
    let description = property.schema.get("description").and_then(Value::as_str);
    match description {
        Some(description) => format!("{} {notes}", description.trim())
            .trim_end()
            .to_owned(),
        None => notes,
    }
}

fn display(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
