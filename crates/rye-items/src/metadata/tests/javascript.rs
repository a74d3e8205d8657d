//! JS
use super::{tool, values};
use serde_json::json;

#[test]
fn sanity() {
    let m = tool(".mjs", "#!/usr/bin/env node\n// rye:signed:x\n/**\n * Does it.\n * @executor_id a/b\n * @tags [x, y]\n */\nexport const __version__ = '1.\\u0031';\nconst CONFIG = {a: [1, -2.5, `x`], 'b': null}; export { CONFIG };\n").unwrap();
    assert_eq!(
        values(&m),
        json!({"version": "1.1", "executor_id": "a/b", "tags": ["x","y"], "description": "Does it.", "config": {"a":[1,-2.5,"x"],"b":null}})
    );
    let m = tool(".ts", "export const CONFIG: T = {a: [1] as const} as const satisfies X; export type CONFIG_SCHEMA = string;\n").unwrap();
    assert_eq!(values(&m), json!({"config": {"a":[1]}}));
}
