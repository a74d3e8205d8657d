//! Tests that the rest of a client's file is kept.

use super::*;

fn command() -> Vec<String> {
    ["/opt/rye", "mcp", "serve"].map(str::to_owned).to_vec()
}

#[test]
fn other_settings_in_a_json_file_are_kept() {
    let before = r#"{"theme":"dark","mcpServers":{"git":{"command":"git-mcp"}},"z":1}"#;
    let entry = json!({ "command": "/opt/rye" });
    let after = add_to_json(before, "mcpServers", "rye", entry.clone()).unwrap();
    let value: Value = serde_json::from_str(&after).unwrap();
    assert_eq!(value["theme"], "dark");
    assert_eq!(value["mcpServers"]["git"]["command"], "git-mcp");
    assert_eq!(value["mcpServers"]["rye"], entry);
    let keys: Vec<_> = value.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["theme", "mcpServers", "z"]);
    assert_eq!(
        add_to_json(&after, "mcpServers", "rye", entry).unwrap(),
        after
    );
}

#[test]
fn json_with_comments_or_another_shape_is_not_changed() {
    for before in ["{ // mine\n}", "[]", r#"{"mcpServers": 5}"#, "{"] {
        assert!(
            add_to_json(before, "mcpServers", "rye", json!({})).is_err(),
            "{before}"
        );
    }
}

#[test]
fn toml_table_is_appended_once() {
    let before = "# mine\nmodel = \"x\"\n";
    let after = add_to_toml(before, "mcp_servers", "rye", &command()).unwrap();
    assert!(after.starts_with(before));
    let table: toml::Table = after.parse().unwrap();
    assert_eq!(
        table["mcp_servers"]["rye"]["command"].as_str(),
        Some("/opt/rye")
    );
    assert_eq!(
        add_to_toml(&after, "mcp_servers", "rye", &command()).unwrap(),
        after
    );
    let other = after.replace("/opt/rye", "/usr/bin/rye");
    assert!(add_to_toml(&other, "mcp_servers", "rye", &command()).is_err());
}
