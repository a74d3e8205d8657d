//! Import of the `mcpServers` JSON files of other MCP clients. No I/O.

use std::collections::BTreeMap;

use lillux::template::{Segment, VARIABLE};
use rye_executor::redact::is_secret_name;
use rye_items::vault::SecretName;
use serde_json::{Map, Value};

use super::config::{ServerConfig, Transport};
use super::jsonc;
use super::value::ConfigValue;

/// Variables that only the client which owns the file can resolve.
const CLIENT_VARIABLES: [&str; 8] = [
    "workspaceFolderBasename",
    "userHome",
    "pathSeparator",
    "cwd",
    "file",
    "fileDirname",
    "fileWorkspaceFolder",
    "execPath",
];

/// A server in an imported file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedServer {
    /// Name of the server.
    pub name: String,
    /// Configuration, or the reason why the server cannot be imported.
    pub config: Result<ServerConfig, String>,
    /// Secrets to store in the vault.
    pub secrets: Vec<(SecretName, String)>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Parses a file, which may contain comments and trailing commas. Variables for the project
/// directory are replaced by `project_dir`. The error is a message for the user.
pub fn parse(text: &str, project_dir: &str) -> Result<Vec<ImportedServer>, String> {
    let file: Value = serde_json::from_str(&jsonc::to_json(text))
        .map_err(|error| format!("invalid JSON: {error}"))?;
    let candidates = [
        file.get("mcpServers"),
        file.get("servers"),
        file.get("mcp").and_then(|mcp| mcp.get("servers")),
    ];
    let servers = candidates.into_iter().flatten().find_map(Value::as_object);
    let servers = servers.ok_or("no `mcpServers` or `servers` in the file")?;
    Ok(servers
        .iter()
        .map(|(name, fields)| parse_entry(name, fields, project_dir))
        .collect())
}

/// Name of a server's secret in the vault; `None` if it would be too long.
pub fn secret_name(server: &str, variable: &str) -> Option<SecretName> {
    let identifier = |text: &str| -> String {
        let replace = |c: char| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        };
        text.chars().map(replace).collect()
    };
    let (server, variable) = (identifier(server), identifier(variable));
    let starts_with_digit = server.starts_with(|c: char| c.is_ascii_digit());
    let prefix = if starts_with_digit { "_" } else { "" };
    format!("{prefix}{server}_{variable}").parse().ok()
}

/// Parses one entry and collects its secrets and notes.
struct EntryParser<'a> {
    server: &'a str,
    project_dir: &'a str,
    secrets: Vec<(SecretName, String)>,
    notes: Vec<String>,
}

fn parse_entry(name: &str, fields: &Value, project_dir: &str) -> ImportedServer {
    let mut parser = EntryParser {
        server: name,
        project_dir,
        secrets: Vec::new(),
        notes: Vec::new(),
    };
    let config = parser.config(fields);
    let EntryParser { secrets, notes, .. } = parser;
    let secrets = if config.is_ok() { secrets } else { Vec::new() };
    ImportedServer {
        name: name.to_owned(),
        config,
        secrets,
        notes,
    }
}

impl EntryParser<'_> {
    fn config(&mut self, fields: &Value) -> Result<ServerConfig, String> {
        let fields = fields.as_object().ok_or("the entry is not an object")?;
        if fields.get("disabled").and_then(Value::as_bool) == Some(true) {
            return Err("the server is disabled in the file".to_owned());
        }
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        if let Some(command) = text("command") {
            let args = match fields.get("args") {
                None => Vec::new(),
                Some(Value::Array(args)) => {
                    let args = args.iter().map(|arg| self.parse_value("args", arg));
                    args.collect::<Result<_, _>>()?
                }
                Some(_) => return Err("`args` is not a list".to_owned()),
            };
            return Ok(ServerConfig::new(Transport::Stdio {
                command: self.resolve_client_variables(command),
                args,
                env: self.parse_values(fields, "env")?,
                cwd: text("cwd").map(|cwd| self.resolve_client_variables(cwd)),
            }));
        }
        let url = ["url", "serverUrl", "httpUrl"].into_iter().find_map(text);
        let url = url.ok_or("`command` or `url` is required")?;
        Ok(ServerConfig::new(Transport::Http {
            url: self.parse_text("url", url)?,
            headers: self.parse_values(fields, "headers")?,
            oauth: BTreeMap::new(),
        }))
    }

    fn parse_values(
        &mut self,
        fields: &Map<String, Value>,
        key: &str,
    ) -> Result<BTreeMap<String, ConfigValue>, String> {
        match fields.get(key) {
            None | Some(Value::Null) => Ok(BTreeMap::new()),
            Some(Value::Object(all)) => all
                .iter()
                .map(|(name, value)| Ok((name.clone(), self.parse_value(name, value)?)))
                .collect(),
            Some(_) => Err(format!("`{key}` is not an object")),
        }
    }

    fn parse_value(&mut self, name: &str, value: &Value) -> Result<ConfigValue, String> {
        match value {
            Value::String(text) => self.parse_text(name, text),
            Value::Number(_) | Value::Bool(_) => Ok(ConfigValue::Text(value.to_string())),
            _ => Err(format!("the value of {name} is not a string")),
        }
    }

    /// Parses a string and converts its variables; a secret moves to the vault.
    fn parse_text(&mut self, name: &str, text: &str) -> Result<ConfigValue, String> {
        let text = text.replace("${env:", "${");
        let text = self.resolve_client_variables(&text);
        if let Some((before, rest)) = text.split_once("${input:") {
            let (input, after) = rest.split_once('}').unwrap_or((rest, ""));
            let secret = self.secret_name(input)?;
            if !after.is_empty() {
                return Err(format!(
                    "the value of {name} has text after an input, which is not supported"
                ));
            }
            self.notes
                .push(format!("set the input {input}: rye vault set {secret}"));
            let prefix = before.to_owned();
            return Ok(ConfigValue::Vault {
                prefix,
                name: secret,
            });
        }
        if !is_secret_name(name) || text.contains("${") || text.is_empty() {
            return Ok(ConfigValue::Text(text));
        }
        let (prefix, value) = match text.split_once(' ') {
            Some((scheme, value)) if scheme == "Bearer" || scheme == "Basic" => {
                (format!("{scheme} "), value.to_owned())
            }
            _ => (String::new(), text),
        };
        let name = self.secret_name(name)?;
        self.secrets.push((name.clone(), value));
        Ok(ConfigValue::Vault { prefix, name })
    }

    /// Replaces variables for the project directory. Adds a note for each other variable that
    /// only the owning client can resolve.
    fn resolve_client_variables(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for name in ["${workspaceFolder}", "${workspaceRoot}"] {
            text = text.replace(name, self.project_dir);
        }
        for segment in VARIABLE.segments(&text, Some) {
            let Segment::Placeholder { value: name, .. } = segment else {
                continue;
            };
            let is_known = name.starts_with("input:") || name.contains(":-");
            let is_client_variable = name.contains([':', '.']) || CLIENT_VARIABLES.contains(&name);
            if is_client_variable && !is_known {
                let note = format!(
                    "${{{name}}} is specific to another client and is not replaced: edit the item"
                );
                self.notes.push(note);
            }
        }
        text
    }

    fn secret_name(&self, variable: &str) -> Result<SecretName, String> {
        let name = secret_name(self.server, variable);
        name.ok_or_else(|| "a name is too long for a vault secret".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse_one(fields: &Value) -> ImportedServer {
        let file = json!({"mcpServers": {"my server": fields}});
        parse(&file.to_string(), "/work").unwrap().remove(0)
    }

    #[test]
    fn common_file_layouts_are_parsed() {
        let server = json!({"command": "npx", "args": ["-y", "x", 1], "env": {"HOST": "a"}});
        for file in [
            json!({"mcpServers": {"x": server}}),
            json!({"servers": {"x": server}, "inputs": []}),
            json!({"mcp": {"servers": {"x": server}}}),
        ] {
            let servers = parse(&file.to_string(), "/work").unwrap();
            let config = servers[0].config.as_ref().unwrap().to_value();
            let expected =
                json!({"command": "npx", "args": ["-y", "x", "1"], "env": {"HOST": "a"}});
            assert_eq!(config, expected);
        }
        assert!(parse("{}", "/").unwrap_err().contains("mcpServers"));
        assert!(parse("[", "/").unwrap_err().contains("JSON"));
    }

    #[test]
    fn comments_and_trailing_commas_are_accepted() {
        let file = "// mine\n{\n  /* all */ \"servers\": { \"x\": { // one\n    \"url\": \
                    \"https://example.org/a//b,}\", },\n  },\n}\n";
        let servers = parse(file, "/work").unwrap();
        let config = servers[0].config.as_ref().unwrap().to_value();
        assert_eq!(config, json!({"url": "https://example.org/a//b,}"}));
    }

    #[test]
    fn project_dir_is_substituted_and_unknown_variables_are_noted() {
        let server = parse_one(&json!({
            "command": "${workspaceFolder}/bin/x",
            "args": ["--root=${workspaceFolder}", "${userHome}/y", "${PORT:-80}", "${HOST}"],
            "cwd": "${workspaceFolder}",
        }));
        let config = server.config.unwrap().to_value();
        assert_eq!(config["command"], "/work/bin/x");
        let args = json!(["--root=/work", "${userHome}/y", "${PORT:-80}", "${HOST}"]);
        assert_eq!(config["args"], args);
        assert_eq!(config["cwd"], "/work");
        assert_eq!(server.notes.len(), 1, "{:?}", server.notes);
        assert!(server.notes[0].contains("${userHome}"));
    }

    #[test]
    fn secrets_move_to_the_vault_and_variables_stay() {
        let server = parse_one(&json!({
            "url": "https://example.org/mcp",
            "headers": {"Authorization": "Bearer abc", "X-Api-Key": "${env:KEY}", "X-Token": "${input:token}"},
        }));
        let config = server.config.unwrap().to_value();
        assert_eq!(
            config["headers"],
            json!({
                "Authorization": {"vault": "MY_SERVER_AUTHORIZATION", "prefix": "Bearer "},
                "X-Api-Key": "${KEY}",
                "X-Token": {"vault": "MY_SERVER_TOKEN"},
            })
        );
        let secrets: Vec<_> = server
            .secrets
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        assert_eq!(secrets, [("MY_SERVER_AUTHORIZATION", "abc")]);
        assert!(server.notes[0].contains("rye vault set MY_SERVER_TOKEN"));
    }

    #[test]
    fn unsupported_entry_gives_a_reason() {
        for (fields, expected) in [
            (json!({"command": "x", "disabled": true}), "disabled"),
            (json!({}), "`command`"),
            (json!({"command": "x", "args": "y"}), "`args`"),
            (json!({"command": "x", "env": {"A": []}}), "A"),
            (json!("x"), "object"),
        ] {
            let error = parse_one(&fields).config.unwrap_err();
            assert!(error.contains(expected), "{fields}: {error}");
        }
    }
}
