//! Python files.

use serde_json::json;

use super::{tool, values};

#[test]
fn a_tool_as_they_are_published_is_read() {
    let text = r#"# rye:signed:2026-04-10T03:28:17Z:00:11:22
"""Run a command.

More about it.
"""
from __future__ import annotations
import os

__version__ = "1.0.0"
__tool_type__ = 'python'
__executor_id__: str = "rye/core/runtimes/python/script"
__category__ = "rye/bash"

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "What to " "run"},
        "timeout": {"type": "integer", "default": 120, },  # seconds
    },
    "required": ["command"],
}
CONFIG = {"risk_level": "high", "timeout": 2.5}

def execute(params, project_path):
    __version__ = compute()
    return {"success": True}

if __name__ == "__main__":
    CONFIG = 1
"#;
    let metadata = tool(".py", text).unwrap();
    assert_eq!(
        values(&metadata),
        json!({
            "version": "1.0.0",
            "tool_type": "python",
            "executor_id": "rye/core/runtimes/python/script",
            "category": "rye/bash",
            "description": "Run a command.",
            "config_schema": {
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "What to run"},
                    "timeout": {"type": "integer", "default": 120},
                },
                "required": ["command"],
            },
            "config": {"risk_level": "high", "timeout": 2.5},
            "risk_level": "high",
            "timeout": 2.5,
        })
    );
    let at = metadata.get("executor_id").unwrap().at;
    assert_eq!(at.to_string(), "11:24");
    assert_eq!(metadata.parameter_names(), ["command", "timeout"]);
}
