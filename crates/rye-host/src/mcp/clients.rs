//! The known MCP clients, and the location and format of their configuration files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::failure::Failure;

/// An MCP client.
pub struct Client {
    /// Its name.
    pub name: &'static str,
    /// Path of its file below the home directory.
    home: &'static str,
    /// Path of its file in a project, if it has one.
    project: Option<&'static str>,
    pub(super) form: Form,
    /// What the user does next.
    pub next_step: &'static str,
}

/// Format of a client's configuration.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// An entry below a key of a JSON object.
    Json {
        key: &'static str,
        entry: fn(&[String]) -> Value,
    },
    /// A table in a TOML file.
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
        next_step: "next: start `claude`; /mcp shows the server",
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
        next_step: "next: restart Claude",
    },
    Client {
        name: "codex",
        home: ".codex/config.toml",
        project: None,
        form: Form::Toml {
            table: "mcp_servers",
        },
        next_step: "next: start `codex`; /mcp shows the server",
    },
    Client {
        name: "cursor",
        home: ".cursor/mcp.json",
        project: Some(".cursor/mcp.json"),
        form: SERVERS,
        next_step: "next: enable the server in Cursor Settings, MCP",
    },
    Client {
        name: "gemini",
        home: ".gemini/settings.json",
        project: Some(".gemini/settings.json"),
        form: SERVERS,
        next_step: "next: start `gemini`; /mcp shows the server",
    },
    Client {
        name: "opencode",
        home: ".config/opencode/opencode.json",
        project: Some("opencode.json"),
        form: Form::Json {
            key: "mcp",
            entry: local,
        },
        next_step: "next: start `opencode`",
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
        next_step: "next: run `MCP: List Servers` and start it",
    },
    Client {
        name: "windsurf",
        home: ".codeium/windsurf/mcp_config.json",
        project: None,
        form: SERVERS,
        next_step: "next: refresh the servers in Cascade",
    },
    Client {
        name: "zed",
        home: ".config/zed/settings.json",
        project: Some(".zed/settings.json"),
        form: Form::Json {
            key: "context_servers",
            entry: custom,
        },
        next_step: "next: see the settings of the agent panel",
    },
];

impl Client {
    /// The file of the project, if one was chosen and the client has a file there; else the user's.
    pub(super) fn file(
        &self,
        project: Option<&Path>,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<PathBuf, Failure> {
        if let (Some(dir), Some(file)) = (project, self.project) {
            return Ok(dir.join(file));
        }
        let home = variable("HOME").ok_or_else(|| Failure::usage("HOME is not set"))?;
        Ok(PathBuf::from(home).join(self.home))
    }
}

fn split(command: &[String]) -> (&str, &[String]) {
    command
        .split_first()
        .map_or(("", command), |(first, rest)| (first.as_str(), rest))
}

fn command_and_args(command: &[String]) -> Value {
    let (program, args) = split(command);
    json!({ "command": program, "args": args })
}

fn typed(command: &[String]) -> Value {
    let (program, args) = split(command);
    json!({ "type": "stdio", "command": program, "args": args })
}

fn local(command: &[String]) -> Value {
    json!({ "type": "local", "command": command, "enabled": true })
}

fn custom(command: &[String]) -> Value {
    let (program, args) = split(command);
    json!({ "source": "custom", "command": program, "args": args })
}
