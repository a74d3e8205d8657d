//! What is in a client's file stays there.

use super::*;

fn words() -> Vec<String> {
    ["/opt/rye", "mcp", "serve"].map(str::to_owned).to_vec()
}

#[test]
fn other_servers_and_settings_of_a_json_file_stay_as_they_are() {
    let before = r#"{"theme":"dark","mcpServers":{"git":{"command":"git-mcp"}},"z":1}"#;
    let entry = json!({ "command": "/opt/rye" });
    let after = with_json(before, "mcpServers", "rye", entry.clone()).unwrap();
    let value: Value = serde_json::from_str(&after).unwrap();
    assert_eq!(value["theme"], "dark");
    assert_eq!(value["mcpServers"]["git"]["command"], "git-mcp");
    assert_eq!(value["mcpServers"]["rye"], entry);
    let keys: Vec<_> = value.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["theme", "mcpServers", "z"]);
    assert_eq!(
        with_json(&after, "mcpServers", "rye", entry).unwrap(),
        after
    );
}

#[test]
fn a_file_with_comments_or_another_shape_is_not_touched() {
    for before in ["{ // mine\n}", "[]", r#"{"mcpServers": 5}"#, "{"] {
        assert!(
            with_json(before, "mcpServers", "rye", json!({})).is_err(),
            "{before}"
        );
    }
}

#[test]
fn a_toml_file_gets_a_table_at_its_end_once() {
    let before = "# mine\nmodel = \"x\"\n";
    let after = with_toml(before, "mcp_servers", "rye", &words()).unwrap();
    assert!(after.starts_with(before));
    let table: toml::Table = after.parse().unwrap();
    assert_eq!(
        table["mcp_servers"]["rye"]["command"].as_str(),
        Some("/opt/rye")
    );
    assert_eq!(
        with_toml(&after, "mcp_servers", "rye", &words()).unwrap(),
        after
    );
    let other = after.replace("/opt/rye", "/usr/bin/rye");
    assert!(with_toml(&other, "mcp_servers", "rye", &words()).is_err());
}
