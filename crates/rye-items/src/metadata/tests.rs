//! Tests of the metadata parsers.

mod encoding;
mod extractors;
mod fields;
mod header;
mod hostile;
mod javascript;
mod markdown;
mod oracle;
mod python;
mod yaml;

use std::fmt::Write as _;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::*;

/// The extractor table of the system space.
static SHIPPED: LazyLock<Extractors> = LazyLock::new(|| {
    let table =
        include_bytes!("../../../../system/.ai/tools/rye/core/extractors/tool_extractor.yaml");
    Extractors::from_yaml(table).unwrap()
});

fn tool(extension: &str, text: &str) -> Result<Metadata, MetadataError> {
    extract(text.as_bytes(), extension, ItemKind::Tool, &SHIPPED)
}

/// All fields as one JSON object.
fn values(metadata: &Metadata) -> Value {
    let fields = metadata.fields.iter();
    let values = fields.map(|(name, field)| (name.clone(), field.value.clone()));
    Value::Object(values.collect::<Map<_, _>>())
}

/// Formats an error as the CLI does.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, MetadataError>) -> String {
    let error = result.unwrap_err();
    let mut shown = format!("{}: {error}\n{}\n", error.excerpt.position, error.excerpt);
    if let Some(hint) = error.hint {
        writeln!(shown, "  hint: {hint}").unwrap();
    }
    shown
}

/// Formats the errors of several tools.
#[track_caller]
fn refusals(extension: &str, texts: &[&str]) -> String {
    let shown: Vec<_> = texts
        .iter()
        .map(|text| refused(tool(extension, text)))
        .collect();
    shown.join("\n")
}
