//! Configuration of a server, as its signed item holds it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use super::value::ConfigValue;

/// Default limit for the start of a server including `initialize`.
pub const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(10);
/// Default limit for a start that may download and install the server.
pub const DEFAULT_INSTALL_TIMEOUT: Duration = Duration::from_secs(90);
/// Programs that download a server before they run it.
const INSTALLERS: [&str; 13] = [
    "npx", "npm", "pnpm", "yarn", "bunx", "bun", "deno", "uvx", "uv", "pipx", "docker", "podman",
    "nix",
];
/// Default limit for a call.
pub const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// Default time after which an unused connection is closed.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_mins(5);
/// Default maximum size of one message of a server, in bytes.
pub const DEFAULT_MAX_MESSAGE: usize = 16 << 20;
/// Keys of the `oauth` section. Without a client id, the client registers itself.
pub const OAUTH_KEYS: [&str; 5] = [
    "client_id",
    "client_secret",
    "client_metadata_url",
    "redirect_port",
    "scope",
];
/// Longer durations could overflow an `Instant`.
const MAX_DURATION: Duration = Duration::from_hours(24 * 365);

/// Transport and limits of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// How to connect to the server.
    pub transport: Transport,
    /// Limit for the start including `initialize`; see [`start_timeout`](Self::start_timeout).
    pub start_timeout: Option<Duration>,
    /// Limit for a call that sets none.
    pub call_timeout: Duration,
    /// Time after which an unused connection is closed.
    pub idle_timeout: Duration,
    /// Maximum size of one message of the server, in bytes.
    pub max_message: usize,
    /// Protocol revision to try first.
    pub protocol: Protocol,
}

/// Protocol revision to try first. If the server does not support it, the client falls back to
/// the other one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Start with `initialize`. The default, because older servers may not answer anything else.
    #[default]
    Initialize,
    /// Start with `server/discover`, introduced in revision 2026-07-28.
    Discover,
}

impl Protocol {
    /// Name of the revision in configurations.
    pub fn revision(self) -> &'static str {
        match self {
            Self::Initialize => "2025-11-25",
            Self::Discover => "2026-07-28",
        }
    }

    fn parse(fields: &Map<String, Value>) -> Result<Self, String> {
        let Some(given) = fields.get("protocol") else {
            return Ok(Self::default());
        };
        let all = [Self::Initialize, Self::Discover];
        let found = all.into_iter().find(|one| *given == one.revision());
        found.ok_or_else(|| {
            let names = all.map(Self::revision).join(" or ");
            format!("`protocol` is {given}, expected {names}")
        })
    }
}

/// How to connect to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// Start a process and use its standard input and output.
    Stdio {
        /// Program to run.
        command: String,
        /// Command-line arguments.
        args: Vec<ConfigValue>,
        /// Environment variables, in addition to a minimal environment.
        env: BTreeMap<String, ConfigValue>,
        /// Working directory, relative to the project; by default, the project directory.
        cwd: Option<String>,
    },
    /// Use streamable HTTP.
    Http {
        /// URL of the MCP endpoint.
        url: ConfigValue,
        /// Headers to send with each request.
        headers: BTreeMap<String, ConfigValue>,
        /// OAuth client settings, with keys from [`OAUTH_KEYS`].
        oauth: BTreeMap<String, ConfigValue>,
    },
}

impl Transport {
    /// Name of the transport, which is also the name of its runtime item.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
        }
    }
}

impl ServerConfig {
    /// Creates a configuration with the default limits.
    pub fn new(transport: Transport) -> Self {
        Self {
            transport,
            start_timeout: None,
            call_timeout: DEFAULT_CALL_TIMEOUT,
            idle_timeout: DEFAULT_IDLE_TIMEOUT,
            max_message: DEFAULT_MAX_MESSAGE,
            protocol: Protocol::default(),
        }
    }

    /// Limit for the start including `initialize`. A start that may install the server has more
    /// time.
    pub fn start_timeout(&self) -> Duration {
        self.start_timeout.unwrap_or(if self.may_install() {
            DEFAULT_INSTALL_TIMEOUT
        } else {
            DEFAULT_START_TIMEOUT
        })
    }

    /// Whether the command downloads and installs the server before it runs it.
    pub(super) fn may_install(&self) -> bool {
        let Transport::Stdio { command, .. } = &self.transport else {
            return false;
        };
        let name = Path::new(command).file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| INSTALLERS.contains(&name))
    }

    /// Parses the `config` of a server's item. The error is a message for the user.
    pub fn parse(config: &Value) -> Result<Self, String> {
        let fields = config.as_object().ok_or("`config` is not a mapping")?;
        let own = match (fields.contains_key("command"), fields.contains_key("url")) {
            (true, false) => ["command", "args", "env", "cwd"].as_slice(),
            (false, true) => ["url", "headers", "oauth"].as_slice(),
            (true, true) => return Err("`command` and `url` exclude each other".to_owned()),
            (false, false) => return Err("`command` or `url` is required".to_owned()),
        };
        let shared = [
            "start_timeout",
            "call_timeout",
            "idle_timeout",
            "max_message",
            "protocol",
        ];
        let known = |key: &&String| own.contains(&key.as_str()) || shared.contains(&key.as_str());
        if let Some(other) = fields.keys().find(|key| !known(key)) {
            let known = [own, &shared].concat().join(", ");
            return Err(format!("unknown key `{other}`; known keys: {known}"));
        }
        let transport = if fields.contains_key("command") {
            Transport::Stdio {
                command: required_string(fields, "command")?,
                args: parse_args(fields)?,
                env: parse_values(fields, "env")?,
                cwd: fields
                    .get("cwd")
                    .map(|_| required_string(fields, "cwd"))
                    .transpose()?,
            }
        } else {
            let url = fields.get("url").unwrap_or(&Value::Null);
            Transport::Http {
                url: parse_url(url).map_err(|why| format!("`url`: {why}"))?,
                headers: parse_values(fields, "headers")?,
                oauth: parse_oauth(fields)?,
            }
        };
        Ok(Self {
            transport,
            start_timeout: parse_seconds(fields, "start_timeout")?,
            call_timeout: parse_seconds(fields, "call_timeout")?.unwrap_or(DEFAULT_CALL_TIMEOUT),
            idle_timeout: parse_seconds(fields, "idle_timeout")?.unwrap_or(DEFAULT_IDLE_TIMEOUT),
            max_message: parse_max_message(fields)?,
            protocol: Protocol::parse(fields)?,
        })
    }

    /// Formats the configuration as the `config` of a server's item.
    pub fn to_value(&self) -> Value {
        let mut fields = Map::new();
        match &self.transport {
            Transport::Stdio {
                command,
                args,
                env,
                cwd,
            } => {
                fields.insert("command".into(), command.as_str().into());
                let args: Vec<_> = args.iter().map(ConfigValue::to_value).collect();
                insert_unless_empty(&mut fields, "args", Value::Array(args));
                insert_unless_empty(&mut fields, "env", to_object(env));
                if let Some(cwd) = cwd {
                    fields.insert("cwd".into(), cwd.as_str().into());
                }
            }
            Transport::Http {
                url,
                headers,
                oauth,
            } => {
                fields.insert("url".into(), url.to_value());
                insert_unless_empty(&mut fields, "headers", to_object(headers));
                insert_unless_empty(&mut fields, "oauth", to_object(oauth));
            }
        }
        if let Some(timeout) = self.start_timeout {
            fields.insert("start_timeout".into(), timeout.as_secs_f64().into());
        }
        for (key, value, default) in [
            ("call_timeout", self.call_timeout, DEFAULT_CALL_TIMEOUT),
            ("idle_timeout", self.idle_timeout, DEFAULT_IDLE_TIMEOUT),
        ] {
            if value != default {
                fields.insert(key.into(), value.as_secs_f64().into());
            }
        }
        if self.max_message != DEFAULT_MAX_MESSAGE {
            fields.insert("max_message".into(), self.max_message.into());
        }
        if self.protocol != Protocol::default() {
            fields.insert("protocol".into(), self.protocol.revision().into());
        }
        Value::Object(fields)
    }

    /// All values that may refer to variables or secrets, with their keys.
    pub(super) fn values(&self) -> Vec<(&str, &ConfigValue)> {
        match &self.transport {
            Transport::Stdio { args, env, .. } => {
                let args = args.iter().map(|value| ("args", value));
                args.chain(with_keys(env)).collect()
            }
            Transport::Http {
                url,
                headers,
                oauth,
            } => {
                let named = with_keys(headers).chain(with_keys(oauth));
                [("url", url)].into_iter().chain(named).collect()
            }
        }
    }
}

fn with_keys(all: &BTreeMap<String, ConfigValue>) -> impl Iterator<Item = (&str, &ConfigValue)> {
    all.iter().map(|(name, value)| (name.as_str(), value))
}

/// Parses a URL and checks its scheme unless that comes from a variable.
fn parse_url(value: &Value) -> Result<ConfigValue, String> {
    let value = ConfigValue::parse(value)?;
    let ConfigValue::Text(text) = &value else {
        return Ok(value);
    };
    let begins = |scheme: &str| {
        let begin = text.get(..scheme.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    if text.starts_with("${") || begins("http://") || begins("https://") {
        return Ok(value);
    }
    Err(format!("`{text}` does not start with http:// or https://"))
}

fn required_string(fields: &Map<String, Value>, key: &str) -> Result<String, String> {
    match fields.get(key).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("`{key}` must be a non-empty string")),
    }
}

fn parse_args(fields: &Map<String, Value>) -> Result<Vec<ConfigValue>, String> {
    match fields.get("args") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| ConfigValue::parse(item).map_err(|why| format!("`args`: {why}")))
            .collect(),
        Some(_) => Err("`args` is not a list".to_owned()),
    }
}

fn parse_values(
    fields: &Map<String, Value>,
    key: &str,
) -> Result<BTreeMap<String, ConfigValue>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(all)) => all
            .iter()
            .map(|(name, value)| match ConfigValue::parse(value) {
                Ok(value) => Ok((name.clone(), value)),
                Err(why) => Err(format!("`{key}.{name}`: {why}")),
            })
            .collect(),
        Some(_) => Err(format!("`{key}` is not a mapping")),
    }
}

fn parse_oauth(fields: &Map<String, Value>) -> Result<BTreeMap<String, ConfigValue>, String> {
    let all = parse_values(fields, "oauth")?;
    match all.keys().find(|key| !OAUTH_KEYS.contains(&key.as_str())) {
        Some(other) => {
            let known = OAUTH_KEYS.join(", ");
            Err(format!("unknown key `oauth.{other}`; known keys: {known}"))
        }
        None => Ok(all),
    }
}

fn parse_seconds(fields: &Map<String, Value>, key: &str) -> Result<Option<Duration>, String> {
    let Some(value) = fields.get(key).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let seconds = value.as_f64().filter(|seconds| *seconds > 0.0);
    let seconds = seconds.map(|seconds| seconds.min(MAX_DURATION.as_secs_f64()));
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match duration {
        Some(duration) => Ok(Some(duration)),
        None => Err(format!("`{key}` must be a positive number of seconds")),
    }
}

fn parse_max_message(fields: &Map<String, Value>) -> Result<usize, String> {
    let Some(value) = fields.get("max_message").filter(|value| !value.is_null()) else {
        return Ok(DEFAULT_MAX_MESSAGE);
    };
    let bytes = value.as_u64().filter(|bytes| *bytes > 0);
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| "`max_message` must be a positive number of bytes".to_owned())
}

fn to_object(all: &BTreeMap<String, ConfigValue>) -> Value {
    let all = all.iter();
    Value::Object(
        all.map(|(name, value)| (name.clone(), value.to_value()))
            .collect(),
    )
}

fn insert_unless_empty(fields: &mut Map<String, Value>, key: &str, value: Value) {
    let is_empty = match &value {
        Value::Array(items) => items.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    };
    if !is_empty {
        fields.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn configuration_round_trips() {
        for config in [
            json!({"command": "server"}),
            json!({"command": "npx", "args": ["-y", {"vault": "A"}], "env": {"K": {"vault": "B", "prefix": "x"}}, "cwd": "sub"}),
            json!({"url": "https://${HOST}/mcp", "headers": {"Authorization": {"vault": "T", "prefix": "Bearer "}}, "call_timeout": 2.5, "max_message": 1024}),
            json!({"url": "https://x/mcp", "oauth": {"client_id": "me", "client_secret": {"vault": "S"}}}),
        ] {
            let read = ServerConfig::parse(&config).unwrap();
            assert_eq!(read.to_value(), config);
        }
        let read =
            ServerConfig::parse(&json!({"url": "http://x", "start_timeout": 1e300})).unwrap();
        assert_eq!(read.start_timeout(), MAX_DURATION);
    }

    #[test]
    fn start_that_may_install_the_server_has_more_time() {
        for (config, expected) in [
            (json!({"command": "server"}), DEFAULT_START_TIMEOUT),
            (json!({"command": "npx"}), DEFAULT_INSTALL_TIMEOUT),
            (
                json!({"command": "/usr/bin/docker"}),
                DEFAULT_INSTALL_TIMEOUT,
            ),
            (json!({"url": "https://x/npx"}), DEFAULT_START_TIMEOUT),
            (
                json!({"command": "uvx", "start_timeout": 3}),
                Duration::from_secs(3),
            ),
        ] {
            let read = ServerConfig::parse(&config).unwrap();
            assert_eq!(read.start_timeout(), expected, "{config}");
        }
    }

    #[test]
    fn parse_error_names_the_key() {
        for (config, expected) in [
            (json!([]), "`config`"),
            (json!({}), "`url`"),
            (json!({"command": "a", "url": "b"}), "`command`"),
            (json!({"command": ""}), "`command`"),
            (json!({"command": "a", "args": "b"}), "`args`"),
            (json!({"command": "a", "headers": {}}), "`headers`"),
            (json!({"command": "a", "env": {"B": [1]}}), "`env.B`"),
            (json!({"command": "a", "time_limit": 1}), "`time_limit`"),
            (json!({"url": "ftp://a"}), "`url`"),
            (
                json!({"url": "http://a", "call_timeout": 0}),
                "`call_timeout`",
            ),
            (
                json!({"url": "http://a", "call_timeout": "1"}),
                "`call_timeout`",
            ),
            (
                json!({"url": "http://a", "max_message": -1}),
                "`max_message`",
            ),
            (json!({"url": "http://a", "protocol": "2024"}), "`protocol`"),
            (
                json!({"url": "http://a", "oauth": {"user": "x"}}),
                "`oauth.user`",
            ),
        ] {
            let error = ServerConfig::parse(&config).unwrap_err();
            assert!(error.contains(expected), "{config}: {error}");
        }
    }
}
