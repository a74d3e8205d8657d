//! H
use super::{tool, values};
use serde_json::json;

#[test]
fn sanity() {
    let m = tool(".sh", "#!/bin/bash\n# rye:signed:x\n#\n# executor_id: rye/x\n# description: Does this: and that\n# tags: [a, b]\n# config_schema:\n#   type: object\n#   properties: {a: {type: string}}\necho\n# version: 1\n").unwrap();
    assert_eq!(
        values(&m),
        json!({"executor_id": "rye/x", "description": "Does this: and that", "tags": ["a","b"], "config_schema": {"type": "object", "properties": {"a": {"type": "string"}}}})
    );
}
