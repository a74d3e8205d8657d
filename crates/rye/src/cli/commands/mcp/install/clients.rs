//! Clients, and where and how each keeps its servers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::failure::Failure;

/// A client.
pub(super) struct Client {
    pub(super) name: &'static str,
    /// Its file, below the person's home.
    home: &'static str,
    /// Its file in a project, if it has one there.
    project: Option<&'static str>,
    pub(super) form: Form,
    /// What the person does next.
    pub(super) then: &'static str,
}

/// How a client writes servers down.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// Under a key of a JSON object.
    Json {
        key: &'static str,
        entry: fn(&[String]) -> Value,
    },
    /// As a table of a TOML file.
    Toml { table: &'static str },
}

const SERVERS: Form = Form::Json {
    key: "mcpServers",
    entry: command_and_args,
};

pub(super) const CLIENTS: &[Client] = &[
    Client {
        name: "claude-code",
        home: ".claude.json",
        project: Some(".mcp.json"),
        form: Form::Json {
            key: "mcpServers",
            entry: typed,
        },
        then: "next: start `claude`; /mcp shows the server",
    },
    Client {
        name: "claude-desktop",
        home: if cfg!(target_os = "macos") {
            "Library/Application Support/Claude/claude_desktop_config.json"
        } else {
            ".config/Claude/claude_desktop_config.json"
        },
        project: None,
        form: SERVERS,
        then: "next: quit Claude and start it again",
    },
    Client {
        name: "codex",
        home: ".codex/config.toml",
        project: None,
        form: Form::Toml {
            table: "mcp_servers",
        },
        then: "next: start `codex`; /mcp shows the server",
    },
    Client {
        name: "cursor",
        home: ".cursor/mcp.json",
        project: Some(".cursor/mcp.json"),
        form: SERVERS,
        then: "next: Cursor Settings, MCP: switch the server on",
    },
    Client {
        name: "gemini",
        home: ".gemini/settings.json",
        project: Some(".gemini/settings.json"),
        form: SERVERS,
        then: "next: start `gemini`; /mcp shows the server",
    },
    Client {
        name: "opencode",
        home: ".config/opencode/opencode.json",
        project: Some("opencode.json"),
        form: Form::Json {
            key: "mcp",
            entry: local,
        },
        then: "next: start `opencode`",
    },
    Client {
        name: "vscode",
        home: if cfg!(target_os = "macos") {
            "Library/Application Support/Code/User/mcp.json"
        } else {
            ".config/Code/User/mcp.json"
        },
        project: Some(".vscode/mcp.json"),
        form: Form::Json {
            key: "servers",
            entry: typed,
        },
        then: "next: MCP: List Servers, and start it",
    },
    Client {
        name: "windsurf",
        home: ".codeium/windsurf/mcp_config.json",
        project: None,
        form: SERVERS,
        then: "next: refresh the servers in Cascade",
    },
    Client {
        name: "zed",
        home: ".config/zed/settings.json",
        project: Some(".zed/settings.json"),
        form: Form::Json {
            key: "context_servers",
            entry: custom,
        },
        then: "next: the agent panel's settings show the server",
    },
];

impl Client {
    /// The file: the project's where a project was chosen and the client has one there.
    pub(super) fn file(
        &self,
        project: Option<&Path>,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<PathBuf, Failure> {
        if let (Some(folder), Some(file)) = (project, self.project) {
            return Ok(folder.join(file));
        }
        let home = variable("HOME").ok_or_else(|| Failure::usage("HOME is not set"))?;
        Ok(PathBuf::from(home).join(self.home))
    }
}

fn split(call: &[String]) -> (&str, &[String]) {
    call.split_first()
        .map_or(("", call), |(command, rest)| (command.as_str(), rest))
}

fn command_and_args(call: &[String]) -> Value {
    let (command, args) = split(call);
    json!({ "command": command, "args": args })
}

fn typed(call: &[String]) -> Value {
    let (command, args) = split(call);
    json!({ "type": "stdio", "command": command, "args": args })
}

fn local(call: &[String]) -> Value {
    json!({ "type": "local", "command": call, "enabled": true })
}

fn custom(call: &[String]) -> Value {
    let (command, args) = split(call);
    json!({ "source": "custom", "command": command, "args": args })
}
