//! The JSON Schema of the protocol.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::Archive;

/// The JSON Schema of an [`Archive`], with all types under `$defs`. It describes
/// serialised output, so fields that are always written are required.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<Archive>();
    schema.to_value()
}
