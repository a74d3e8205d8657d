//! The OpenAPI 3.1 document of the API.
//!
//! The handlers describe themselves. The schemas of sessions, entries, gates and events come from
//! the protocol: OpenAPI 3.1 uses the same JSON Schema.

use serde_json::{Map, Value, json};
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;

use crate::api;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Rye",
        description = "Sessions, prompts, gates and events of the Rye engine.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    // Parameters do not add their schemas.
    components(schemas(api::Command)),
)]
struct Description;

/// The OpenAPI document, as JSON.
pub fn openapi() -> Value {
    let (_, paths) = api::routes().merge(api::open_routes()).split_for_parts();
    let mut document: OpenApi = Description::openapi();
    document.merge(paths);
    let mut document = serde_json::to_value(document).unwrap_or_default();
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    document["servers"] = json!([{ "url": "/", "description": "The server of this document" }]);
    document["security"] = json!([{ "token": [] }, { "cookie": [] }]);
    describe_responses(&mut document["paths"]);
    add_unauthorized(&mut document["paths"]);
    let components = &mut document["components"];
    components["securitySchemes"] = json!({
        "token": { "type": "http", "scheme": "bearer" },
        "cookie": {
            "type": "apiKey",
            "in": "cookie",
            "name": "rye_PORT",
            "description": "Set by the login link. The name ends with the port of the server.",
        },
    });
    if let Some(schemas) = components["schemas"].as_object_mut() {
        add_protocol(schemas);
    }
    document
}

/// Adds the description of successful responses, which OpenAPI requires, where a handler has none.
fn describe_responses(paths: &mut Value) {
    let paths = paths.as_object_mut().into_iter().flat_map(Map::values_mut);
    let operations = paths
        .filter_map(Value::as_object_mut)
        .flat_map(Map::values_mut);
    let responses = operations.filter_map(|it| it.get_mut("responses")?.as_object_mut());
    for (status, response) in responses.flatten() {
        let description = &mut response["description"];
        if description.as_str().is_none_or(str::is_empty) {
            let text = if status == "201" {
                "Created"
            } else {
                "Success"
            };
            *description = text.into();
        }
    }
}

/// Adds the refusal of a token to the operations that need one.
fn add_unauthorized(paths: &mut Value) {
    let schema = json!({ "$ref": "#/components/schemas/ProblemDocument" });
    let content = json!({ "application/problem+json": { "schema": schema } });
    let refused = json!({ "description": "No valid token", "content": content });
    let paths = paths.as_object_mut().into_iter().flat_map(Map::values_mut);
    let operations = paths
        .filter_map(Value::as_object_mut)
        .flat_map(Map::values_mut);
    for operation in operations {
        // An operation without a token says so.
        let is_open = operation.get("security").is_some();
        if let Some(responses) = operation["responses"].as_object_mut().filter(|_| !is_open) {
            let refused = refused.clone();
            responses.entry("401").or_insert(refused);
        }
    }
}

/// Adds the schemas of the protocol.
fn add_protocol(schemas: &mut Map<String, Value>) {
    let Value::Object(mut protocol) = rye_protocol::schema() else {
        return;
    };
    let Some(Value::Object(definitions)) = protocol.remove("$defs") else {
        return;
    };
    for (name, mut schema) in definitions {
        point_to_components(&mut schema);
        schemas.insert(name, schema);
    }
}

/// Changes references within the protocol to references within the document.
fn point_to_components(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(target) if key == "$ref" => {
                        *target = target.replace("#/$defs/", "#/components/schemas/");
                    }
                    other => point_to_components(other),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(point_to_components),
        _ => {}
    }
}

/// References to schemas of the protocol.
pub(crate) mod schemas {
    use utoipa::openapi::schema::ArrayBuilder;
    use utoipa::openapi::{Array, Ref, RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    macro_rules! references {
        ($($function:ident => $name:literal,)*) => {$(
            pub(crate) fn $function() -> Ref {
                Ref::from_schema_name($name)
            }
        )*};
    }

    macro_rules! arrays {
        ($($function:ident => $name:literal,)*) => {$(
            pub(crate) fn $function() -> Array {
                ArrayBuilder::new().items(Ref::from_schema_name($name)).build()
            }
        )*};
    }

    references! {
        session => "Session",
        usage => "Usage",
        limits => "Limits",
        queue_mode => "QueueMode",
        sandbox_kind => "SandboxKind",
        turn_end => "TurnEnd",
        error => "ErrorInfo",
    }

    arrays! {
        sessions => "Session",
        threads => "Thread",
        entries => "Entry",
        prompts => "QueuedPrompt",
        gates => "Gate",
        parts => "Part",
    }

    /// A gate, as the body of a response.
    pub(crate) struct Gate;

    impl PartialSchema for Gate {
        fn schema() -> RefOr<Schema> {
            Ref::from_schema_name("Gate").into()
        }
    }

    impl ToSchema for Gate {}
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    fn collect_references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                let inner = members.values();
                inner.for_each(|value| collect_references(value, found));
            }
            Value::Array(all) => all.iter().for_each(|it| collect_references(it, found)),
            _ => {}
        }
    }

    /// The schemas of the protocol are added last.
    #[test]
    fn no_two_schemas_have_the_same_name() {
        let (_, paths) = super::api::routes()
            .merge(super::api::open_routes())
            .split_for_parts();
        let own = serde_json::to_value(paths).unwrap();
        let own = own["components"]["schemas"].as_object().unwrap();
        let protocol = rye_protocol::schema();
        let protocol = protocol["$defs"].as_object().unwrap();
        let both: Vec<_> = own.keys().filter(|it| protocol.contains_key(*it)).collect();
        // A placeholder for the schema of the protocol.
        assert_eq!(both, ["Gate"]);
    }

    #[test]
    fn every_reference_resolves() {
        let document = super::openapi();
        let mut references = Vec::new();
        collect_references(&document, &mut references);
        assert!(references.len() > 50, "{references:?}");
        for reference in references {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
