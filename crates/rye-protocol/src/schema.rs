//! The JSON Schema of all that is written down and told.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::Archive;

/// The JSON Schema of an [`Archive`], and so of everything: each kind of thing stands under
/// its name in `$defs`. It is that of what is written, in which nothing is missing that is
/// always there.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<Archive>();
    schema.to_value()
}
