//! The `mcpServers` JSON that other clients use, read. No I/O.

use std::collections::BTreeMap;

use rye_executor::redact::is_secret_name;
use rye_items::vault::SecretName;
use serde_json::{Map, Value};

use super::config::{ServerConfig, Transport};
use super::jsonc;
use super::source::ConfigValue;

/// What stands for something only in the client that the file is of.
const CLIENTS_OWN: [&str; 8] = [
    "workspaceFolderBasename",
    "userHome",
    "pathSeparator",
    "cwd",
    "file",
    "fileDirname",
    "fileWorkspaceFolder",
    "execPath",
];

/// A server of such a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedServer {
    /// Its name.
    pub name: String,
    /// Its configuration, or why there is none.
    pub config: Result<ServerConfig, String>,
    /// What goes to the vault.
    pub secrets: Vec<(SecretName, String)>,
    /// What somebody should know or do.
    pub notes: Vec<String>,
}

/// Reads a file; comments in it are let pass, as its clients let them. Where it means the
/// folder of the project, that is this one. The error is a sentence.
pub fn parse(text: &str, folder: &str) -> Result<Vec<ImportedServer>, String> {
    let file: Value = serde_json::from_str(&jsonc::plain(text))
        .map_err(|error| format!("it is not JSON: {error}"))?;
    let places = [
        file.get("mcpServers"),
        file.get("servers"),
        file.get("mcp").and_then(|mcp| mcp.get("servers")),
    ];
    let servers = places.into_iter().flatten().find_map(Value::as_object);
    let servers = servers.ok_or("it has neither `mcpServers` nor `servers`")?;
    Ok(servers
        .iter()
        .map(|(name, about)| entry(name, about, folder))
        .collect())
}

/// The name under which a server's secret is kept.
pub fn secret_name(server: &str, variable: &str) -> Option<SecretName> {
    let word = |text: &str| -> String {
        let good = |c: char| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        };
        text.chars().map(good).collect()
    };
    let (server, variable) = (word(server), word(variable));
    let begins = server.starts_with(|c: char| c.is_ascii_digit());
    let begin = if begins { "_" } else { "" };
    format!("{begin}{server}_{variable}").parse().ok()
}

/// What is found out about a server on the way.
struct Reading<'a> {
    server: &'a str,
    folder: &'a str,
    secrets: Vec<(SecretName, String)>,
    notes: Vec<String>,
}

fn entry(name: &str, about: &Value, folder: &str) -> ImportedServer {
    let mut reading = Reading {
        server: name,
        folder,
        secrets: Vec::new(),
        notes: Vec::new(),
    };
    let config = reading.config(about);
    let Reading { secrets, notes, .. } = reading;
    let secrets = if config.is_ok() { secrets } else { Vec::new() };
    ImportedServer {
        name: name.to_owned(),
        config,
        secrets,
        notes,
    }
}

impl Reading<'_> {
    fn config(&mut self, about: &Value) -> Result<ServerConfig, String> {
        let about = about.as_object().ok_or("it is no object")?;
        if about.get("disabled").and_then(Value::as_bool) == Some(true) {
            return Err("it is disabled there".to_owned());
        }
        if about.get("type").and_then(Value::as_str) == Some("sse") {
            return Err("it speaks the SSE transport of 2024, not streamable HTTP".to_owned());
        }
        let text = |key: &str| about.get(key).and_then(Value::as_str);
        if let Some(command) = text("command") {
            let args = match about.get("args") {
                None => Vec::new(),
                Some(Value::Array(args)) => {
                    let args = args.iter().map(|arg| self.value("args", arg));
                    args.collect::<Result<_, _>>()?
                }
                Some(_) => return Err("`args` is no list".to_owned()),
            };
            return Ok(ServerConfig::new(Transport::Stdio {
                command: self.places(command),
                args,
                env: self.values(about, "env")?,
                cwd: text("cwd").map(|cwd| self.places(cwd)),
            }));
        }
        let url = ["url", "serverUrl", "httpUrl"].into_iter().find_map(text);
        let url = url.ok_or("it has neither `command` nor `url`")?;
        Ok(ServerConfig::new(Transport::Http {
            url: self.text("url", url)?,
            headers: self.values(about, "headers")?,
            oauth: BTreeMap::new(),
        }))
    }

    fn values(
        &mut self,
        about: &Map<String, Value>,
        key: &str,
    ) -> Result<BTreeMap<String, ConfigValue>, String> {
        match about.get(key) {
            None | Some(Value::Null) => Ok(BTreeMap::new()),
            Some(Value::Object(all)) => all
                .iter()
                .map(|(name, value)| Ok((name.clone(), self.value(name, value)?)))
                .collect(),
            Some(_) => Err(format!("`{key}` is no object")),
        }
    }

    fn value(&mut self, name: &str, value: &Value) -> Result<ConfigValue, String> {
        match value {
            Value::String(text) => self.text(name, text),
            Value::Number(_) | Value::Bool(_) => Ok(ConfigValue::Text(value.to_string())),
            _ => Err(format!("the value of {name} is no text")),
        }
    }

    /// A text, in our way of writing variables; a secret goes to the vault.
    fn text(&mut self, name: &str, text: &str) -> Result<ConfigValue, String> {
        let text = text.replace("${env:", "${");
        let text = self.places(&text);
        if let Some((before, rest)) = text.split_once("${input:") {
            let (input, after) = rest.split_once('}').unwrap_or((rest, ""));
            let secret = self.secret(input)?;
            if !after.is_empty() {
                return Err(format!(
                    "the value of {name} has text after an input, which no reference can"
                ));
            }
            self.notes
                .push(format!("it asks for {input}: rye vault set {secret}"));
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
        let name = self.secret(name)?;
        self.secrets.push((name.clone(), value));
        Ok(ConfigValue::Vault { prefix, name })
    }

    /// A text in which what its client calls the project's folder is that. What else only
    /// that client knows stays as it is, and is told.
    fn places(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for name in ["${workspaceFolder}", "${workspaceRoot}"] {
            text = text.replace(name, self.folder);
        }
        let mut rest = text.as_str();
        while let Some((_, after)) = rest.split_once("${") {
            let Some((name, later)) = after.split_once('}') else {
                break;
            };
            let is_known = name.starts_with("input:") || name.contains(":-");
            let is_theirs = name.contains([':', '.']) || CLIENTS_OWN.contains(&name);
            if is_theirs && !is_known {
                let note = format!(
                    "${{{name}}} means nothing here and is passed on as it is: write what it stands for"
                );
                self.notes.push(note);
            }
            rest = later;
        }
        text
    }

    fn secret(&self, variable: &str) -> Result<SecretName, String> {
        let name = secret_name(self.server, variable);
        name.ok_or_else(|| "a name in it is too long for a secret's".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(about: &Value) -> ImportedServer {
        let file = json!({"mcpServers": {"my server": about}});
        parse(&file.to_string(), "/work").unwrap().remove(0)
    }

    #[test]
    fn the_files_of_the_usual_clients_are_read() {
        let server = json!({"command": "npx", "args": ["-y", "x", 1], "env": {"HOST": "a"}});
        for file in [
            json!({"mcpServers": {"x": server}}),
            json!({"servers": {"x": server}, "inputs": []}),
            json!({"mcp": {"servers": {"x": server}}}),
        ] {
            let read = parse(&file.to_string(), "/work").unwrap();
            let config = read[0].config.as_ref().unwrap().to_value();
            let expected =
                json!({"command": "npx", "args": ["-y", "x", "1"], "env": {"HOST": "a"}});
            assert_eq!(config, expected);
        }
        assert!(parse("{}", "/").unwrap_err().contains("mcpServers"));
        assert!(parse("[", "/").unwrap_err().contains("not JSON"));
    }

    #[test]
    fn a_file_with_comments_and_one_comma_too_many_is_read() {
        let file = "// mine\n{\n  /* all */ \"servers\": { \"x\": { // one\n    \"url\": \
                    \"https://example.org/a//b,}\", },\n  },\n}\n";
        let read = parse(file, "/work").unwrap();
        let config = read[0].config.as_ref().unwrap().to_value();
        assert_eq!(config, json!({"url": "https://example.org/a//b,}"}));
    }

    #[test]
    fn the_folder_of_the_project_is_filled_in_and_what_nobody_knows_is_told() {
        let read = one(&json!({
            "command": "${workspaceFolder}/bin/x",
            "args": ["--root=${workspaceFolder}", "${userHome}/y", "${PORT:-80}", "${HOST}"],
            "cwd": "${workspaceFolder}",
        }));
        let config = read.config.unwrap().to_value();
        assert_eq!(config["command"], "/work/bin/x");
        let args = json!(["--root=/work", "${userHome}/y", "${PORT:-80}", "${HOST}"]);
        assert_eq!(config["args"], args);
        assert_eq!(config["cwd"], "/work");
        assert_eq!(read.notes.len(), 1, "{:?}", read.notes);
        assert!(read.notes[0].contains("${userHome}"));
    }

    #[test]
    fn what_looks_secret_goes_to_the_vault_and_variables_stay_variables() {
        let read = one(&json!({
            "url": "https://example.org/mcp",
            "headers": {"Authorization": "Bearer abc", "X-Api-Key": "${env:KEY}", "X-Token": "${input:token}"},
        }));
        let config = read.config.unwrap().to_value();
        assert_eq!(
            config["headers"],
            json!({
                "Authorization": {"vault": "MY_SERVER_AUTHORIZATION", "prefix": "Bearer "},
                "X-Api-Key": "${KEY}",
                "X-Token": {"vault": "MY_SERVER_TOKEN"},
            })
        );
        let secrets: Vec<_> = read
            .secrets
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        assert_eq!(secrets, [("MY_SERVER_AUTHORIZATION", "abc")]);
        assert!(read.notes[0].contains("rye vault set MY_SERVER_TOKEN"));
    }

    #[test]
    fn what_cannot_be_taken_says_why() {
        for (about, word) in [
            (json!({"command": "x", "disabled": true}), "disabled"),
            (json!({"url": "x", "type": "sse"}), "SSE"),
            (json!({}), "neither"),
            (json!({"command": "x", "args": "y"}), "`args`"),
            (json!({"command": "x", "env": {"A": []}}), "A"),
            (json!("x"), "no object"),
        ] {
            let error = one(&about).config.unwrap_err();
            assert!(error.contains(word), "{about}: {error}");
        }
    }
}
