//! The configuration of a server: a signed item, read.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::source::ConfigValue;

/// How long a server may take to answer `initialize`.
pub const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call may take that says nothing about it.
pub const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a server is kept that nobody calls.
pub const IDLE_TIMEOUT: Duration = Duration::from_mins(5);
/// How long a message of a server may be.
pub const MAX_MESSAGE: usize = 16 << 20;
/// What may be said about a login. Without any of it, we register ourselves.
pub const OAUTH: [&str; 5] = [
    "client_id",
    "client_secret",
    "client_metadata_url",
    "redirect_port",
    "scope",
];
/// Beyond it a clock may overflow.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// How a server is reached, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// The way to it.
    pub transport: Transport,
    /// How long it may take to start and answer `initialize`.
    pub start_timeout: Duration,
    /// How long a call may take, unless the call says otherwise.
    pub call_timeout: Duration,
    /// How long it is kept when nobody calls it.
    pub idle_timeout: Duration,
    /// How many bytes one message of it may have.
    pub max_message: usize,
    /// How the conversation begins.
    pub protocol: Protocol,
}

/// The revision of the protocol in which a conversation begins. A server that does not
/// know it is spoken to in the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// With `initialize`, which every server has known: one that knows nothing else may
    /// stay silent to anything else.
    #[default]
    Initialize,
    /// With `server/discover`, as of 2026-07-28.
    Discover,
}

impl Protocol {
    /// The revision's name in a server's item.
    pub fn revision(self) -> &'static str {
        match self {
            Self::Initialize => "2025-11-25",
            Self::Discover => "2026-07-28",
        }
    }

    fn read(fields: &Map<String, Value>) -> Result<Self, String> {
        let Some(given) = fields.get("protocol") else {
            return Ok(Self::default());
        };
        let all = [Self::Initialize, Self::Discover];
        let found = all.into_iter().find(|one| *given == one.revision());
        found.ok_or_else(|| {
            let names = all.map(Self::revision).join(" or ");
            format!("`protocol` is {given} and not {names}")
        })
    }
}

/// The way to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A process that is started, and spoken to over its standard streams.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<ConfigValue>,
        /// Its variables, beside the few that every process needs.
        env: BTreeMap<String, ConfigValue>,
        /// Its folder; the project's unless given.
        cwd: Option<String>,
    },
    /// An address that is spoken to over streamable HTTP.
    Http {
        /// The address.
        url: ConfigValue,
        /// What is sent with each request.
        headers: BTreeMap<String, ConfigValue>,
        /// What is known to who lets us in, where a person logs in: some of [`OAUTH`].
        oauth: BTreeMap<String, ConfigValue>,
    },
}

impl Transport {
    /// Its name, which is that of the runtime, too.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
        }
    }
}

impl ServerConfig {
    /// A server with the usual limits.
    pub fn new(transport: Transport) -> Self {
        Self {
            transport,
            start_timeout: START_TIMEOUT,
            call_timeout: CALL_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            max_message: MAX_MESSAGE,
            protocol: Protocol::default(),
        }
    }

    /// Reads the `config` of a server's item. The error is a sentence.
    pub fn parse(config: &Value) -> Result<Self, String> {
        let fields = config.as_object().ok_or("`config` is no mapping")?;
        let own = match (fields.contains_key("command"), fields.contains_key("url")) {
            (true, false) => ["command", "args", "env", "cwd"].as_slice(),
            (false, true) => ["url", "headers", "oauth"].as_slice(),
            (true, true) => return Err("there are both `command` and `url`".to_owned()),
            (false, false) => return Err("there is neither `command` nor `url`".to_owned()),
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
            return Err(format!("there is no `{other}`; there are {known}"));
        }
        let transport = if fields.contains_key("command") {
            Transport::Stdio {
                command: text(fields, "command")?,
                args: args(fields)?,
                env: sources(fields, "env")?,
                cwd: fields.get("cwd").map(|_| text(fields, "cwd")).transpose()?,
            }
        } else {
            let url = fields.get("url").unwrap_or(&Value::Null);
            Transport::Http {
                url: address(url).map_err(|why| format!("`url`: {why}"))?,
                headers: sources(fields, "headers")?,
                oauth: oauth(fields)?,
            }
        };
        Ok(Self {
            transport,
            start_timeout: seconds(fields, "start_timeout", START_TIMEOUT)?,
            call_timeout: seconds(fields, "call_timeout", CALL_TIMEOUT)?,
            idle_timeout: seconds(fields, "idle_timeout", IDLE_TIMEOUT)?,
            max_message: bytes(fields)?,
            protocol: Protocol::read(fields)?,
        })
    }

    /// The `config` of a server's item.
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
                insert_unless_empty(&mut fields, "env", mapping(env));
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
                insert_unless_empty(&mut fields, "headers", mapping(headers));
                insert_unless_empty(&mut fields, "oauth", mapping(oauth));
            }
        }
        for (key, value, usual) in [
            ("start_timeout", self.start_timeout, START_TIMEOUT),
            ("call_timeout", self.call_timeout, CALL_TIMEOUT),
            ("idle_timeout", self.idle_timeout, IDLE_TIMEOUT),
        ] {
            if value != usual {
                fields.insert(key.into(), value.as_secs_f64().into());
            }
        }
        if self.max_message != MAX_MESSAGE {
            fields.insert("max_message".into(), self.max_message.into());
        }
        if self.protocol != Protocol::default() {
            fields.insert("protocol".into(), self.protocol.revision().into());
        }
        Value::Object(fields)
    }

    /// All its values that may come from elsewhere, with what each is the value of.
    pub(super) fn sources(&self) -> Vec<(&str, &ConfigValue)> {
        match &self.transport {
            Transport::Stdio { args, env, .. } => {
                let args = args.iter().map(|source| ("args", source));
                args.chain(named(env)).collect()
            }
            Transport::Http {
                url,
                headers,
                oauth,
            } => {
                let named = named(headers).chain(named(oauth));
                [("url", url)].into_iter().chain(named).collect()
            }
        }
    }
}

fn named(all: &BTreeMap<String, ConfigValue>) -> impl Iterator<Item = (&str, &ConfigValue)> {
    all.iter().map(|(name, source)| (name.as_str(), source))
}

/// An address that can be called, as far as it is known before its variables are.
fn address(value: &Value) -> Result<ConfigValue, String> {
    let source = ConfigValue::read(value)?;
    let ConfigValue::Text(text) = &source else {
        return Ok(source);
    };
    let begins = |scheme: &str| {
        let begin = text.get(..scheme.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    if text.starts_with("${") || begins("http://") || begins("https://") {
        return Ok(source);
    }
    Err(format!("`{text}` does not begin with http:// or https://"))
}

fn text(fields: &Map<String, Value>, key: &str) -> Result<String, String> {
    match fields.get(key).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("`{key}` is no text, or an empty one")),
    }
}

fn args(fields: &Map<String, Value>) -> Result<Vec<ConfigValue>, String> {
    match fields.get("args") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| ConfigValue::read(item).map_err(|why| format!("`args`: {why}")))
            .collect(),
        Some(_) => Err("`args` is no list".to_owned()),
    }
}

fn sources(
    fields: &Map<String, Value>,
    key: &str,
) -> Result<BTreeMap<String, ConfigValue>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(all)) => all
            .iter()
            .map(|(name, value)| match ConfigValue::read(value) {
                Ok(source) => Ok((name.clone(), source)),
                Err(why) => Err(format!("`{key}.{name}`: {why}")),
            })
            .collect(),
        Some(_) => Err(format!("`{key}` is no mapping")),
    }
}

fn oauth(fields: &Map<String, Value>) -> Result<BTreeMap<String, ConfigValue>, String> {
    let all = sources(fields, "oauth")?;
    match all.keys().find(|key| !OAUTH.contains(&key.as_str())) {
        Some(other) => {
            let known = OAUTH.join(", ");
            Err(format!("there is no `oauth.{other}`; there are {known}"))
        }
        None => Ok(all),
    }
}

fn seconds(fields: &Map<String, Value>, key: &str, usual: Duration) -> Result<Duration, String> {
    let Some(value) = fields.get(key).filter(|value| !value.is_null()) else {
        return Ok(usual);
    };
    let seconds = value.as_f64().filter(|seconds| *seconds > 0.0);
    let seconds = seconds.map(|seconds| seconds.min(LONGEST.as_secs_f64()));
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| format!("`{key}` is no number of seconds above 0"))
}

fn bytes(fields: &Map<String, Value>) -> Result<usize, String> {
    let Some(value) = fields.get("max_message").filter(|value| !value.is_null()) else {
        return Ok(MAX_MESSAGE);
    };
    let bytes = value.as_u64().filter(|bytes| *bytes > 0);
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| "`max_message` is no number of bytes above 0".to_owned())
}

fn mapping(all: &BTreeMap<String, ConfigValue>) -> Value {
    let all = all.iter();
    Value::Object(
        all.map(|(name, source)| (name.clone(), source.to_value()))
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
    fn what_is_written_is_what_is_read() {
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
        assert_eq!(read.start_timeout, LONGEST);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_key() {
        for (config, word) in [
            (json!([]), "no mapping"),
            (json!({}), "neither `command` nor `url`"),
            (json!({"command": "a", "url": "b"}), "both"),
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
            assert!(error.contains(word), "{config}: {error}");
        }
    }
}
