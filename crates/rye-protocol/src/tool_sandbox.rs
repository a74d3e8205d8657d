//! The `sandbox` declaration of a tool: what its process can use.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Limits that a tool declares for its own process. The kernel enforces them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolSandbox {
    /// What the process can do with the files of the project.
    pub filesystem: ProjectAccess,
    /// What the process can reach over the network.
    pub network: ToolNetwork,
}

/// What a confined process can do with the files of the project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProjectAccess {
    /// Read and write them, except protected files, which it can only read.
    #[default]
    Workspace,
    /// Read them.
    ReadOnly,
    /// Nothing; it does not see them.
    None,
}

/// What a confined process can reach over the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolNetwork {
    /// No network.
    #[default]
    None,
}

impl ToolSandbox {
    /// Parses a declaration: `confined` for the defaults, or a mapping.
    pub fn parse(declaration: &Value) -> Result<Self, String> {
        match declaration {
            Value::String(text) if text == "confined" => Ok(Self::default()),
            Value::Object(_) => {
                serde_json::from_value(declaration.clone()).map_err(|error| error.to_string())
            }
            _ => {
                Err("expected `confined`, or a mapping with `filesystem` and `network`".to_owned())
            }
        }
    }
}

impl fmt::Display for ToolSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let project = match self.filesystem {
            ProjectAccess::Workspace => "writes to the project",
            ProjectAccess::ReadOnly => "reads the project",
            ProjectAccess::None => "does not see the project",
        };
        write!(f, "confined: {project}, no network")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn declaration_is_a_name_or_a_strict_mapping() {
        let read_only = ToolSandbox {
            filesystem: ProjectAccess::ReadOnly,
            ..ToolSandbox::default()
        };
        for (declaration, expected) in [
            (json!("confined"), ToolSandbox::default()),
            (json!({}), ToolSandbox::default()),
            (
                json!({"filesystem": "read_only", "network": "none"}),
                read_only,
            ),
            (json!({"filesystem": "read_only"}), read_only),
        ] {
            assert_eq!(ToolSandbox::parse(&declaration), Ok(expected));
        }
        for invalid in [
            json!("local"),
            json!(true),
            json!(["confined"]),
            json!({"filesystem": "everything"}),
            json!({"network": "host"}),
            json!({"fs": "none"}),
        ] {
            assert!(ToolSandbox::parse(&invalid).is_err(), "{invalid}");
        }
    }
}
