//! What each parser reads and refuses, and what no bytes may do.

mod extractors;
mod fields;
mod header;
mod hostile;
mod javascript;
mod markdown;
mod oracle;
mod python;
mod yaml;

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::*;

/// The table that is shipped.
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

/// An error as a person sees it.
#[expect(dead_code)]
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, MetadataError>) -> String {
    let error = result.unwrap_err();
    let hint = error.hint.iter().map(|hint| format!("\nhint: {hint}"));
    format!(
        "{}: {error}\n{}{}",
        error.excerpt.position,
        error.excerpt,
        hint.collect::<String>()
    )
}
