//! The network policy: which hosts commands may connect to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Ports of a rule in `allow` that names no port.
const WEB_PORTS: [u16; 2] = [80, 443];

/// Port of an [`Injection`] that names none.
const HTTPS: u16 = 443;

/// Which hosts commands may connect to. Without entries, commands have no network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkPolicy {
    /// Hosts that commands may connect to; without a port, to 80 and 443.
    pub allow: Vec<HostRule>,
    /// Hosts that they may not connect to, whatever `allow` and people say; without a port, to
    /// none.
    pub deny: Vec<HostRule>,
    /// Whether an agent's command that connects to another host waits for approval [default: true
    /// if `allow` or `inject` has an entry].
    pub ask: Option<bool>,
    /// Addresses with ports that may be used although they are not on the public internet.
    pub private: Vec<SocketAddr>,
    /// Secrets that the proxy adds to requests.
    pub inject: Vec<Injection>,
}

/// A header with a secret that the proxy adds to requests for `http://HOST`, which it sends on as
/// HTTPS. The command never has the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// The host, and its port for HTTPS [default: 443].
    pub host: String,
    /// Name of the header.
    pub header: String,
    /// Value of the header; `${vault:NAME}` is a secret of the vault.
    pub value: String,
}

impl Injection {
    /// Where requests are sent; `None` if the host is invalid.
    pub(super) fn target(&self) -> Option<Target> {
        Target::parse(&self.host, Some(HTTPS)).ok()
    }
}

/// What the policy says about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// A person decides.
    Ask,
    /// Not listed, and the policy does not ask.
    NotAllowed,
    Denied,
}

impl NetworkPolicy {
    /// Whether commands have a network at all.
    pub fn is_enabled(&self) -> bool {
        self.asks() || !self.allow.is_empty() || !self.inject.is_empty()
    }

    /// Whether an agent's command waits for approval of other hosts.
    pub fn asks(&self) -> bool {
        let is_used = !self.allow.is_empty() || !self.inject.is_empty();
        self.ask.unwrap_or(is_used)
    }

    /// Adds the entries of a less specific policy.
    pub(crate) fn merge(&mut self, other: Self) {
        self.allow.extend(other.allow);
        self.deny.extend(other.deny);
        self.ask = self.ask.or(other.ask);
        self.private.extend(other.private);
        self.inject.extend(other.inject);
    }

    /// The part of the policy that only restricts commands further.
    pub(crate) fn tightening(self) -> Self {
        Self {
            deny: self.deny,
            ask: self.ask.filter(|ask| !ask),
            ..Self::default()
        }
    }

    /// Allows more hosts, without a change of who is asked about others.
    pub(crate) fn grant(&mut self, hosts: Vec<HostRule>) {
        self.ask = Some(self.asks());
        self.allow.extend(hosts);
    }

    pub(super) fn verdict(&self, target: &Target) -> Verdict {
        let is_denied = |rule: &HostRule| rule.matches(target, |_| true);
        let is_allowed = |rule: &HostRule| rule.matches(target, |port| WEB_PORTS.contains(&port));
        if self.deny.iter().any(is_denied) {
            Verdict::Denied
        } else if self.allow.iter().any(is_allowed) {
            Verdict::Allowed
        } else if self.asks() {
            Verdict::Ask
        } else {
            Verdict::NotAllowed
        }
    }
}

/// A host and port that a command wants to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) host: Host,
    pub(super) port: u16,
}

/// A normalised host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Host {
    /// Lower-case, without a final dot.
    Name(String),
    Address(IpAddr),
}

impl Target {
    /// Parses `HOST` or `HOST:PORT`.
    pub(super) fn parse(text: &str, default_port: Option<u16>) -> Result<Self, InvalidHost> {
        let invalid = || InvalidHost(text.to_owned());
        let (host, port) = split_port(text).ok_or_else(invalid)?;
        Ok(Self {
            host: Host::parse(host).ok_or_else(invalid)?,
            port: match port {
                Some(port) => port.parse().map_err(|_| invalid())?,
                None => default_port.ok_or_else(invalid)?,
            },
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        if let Some(address) = text.strip_prefix('[') {
            let address = address.strip_suffix(']')?.parse().ok()?;
            return Some(Self::Address(IpAddr::V6(address)));
        }
        if let Ok(address) = text.parse() {
            return Some(Self::Address(IpAddr::V4(address)));
        }
        is_name(text).then(|| Self::Name(normalised(text)))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Whether a text is a host name. A name that ends in a number, such as `0x7f.1`, could be read as
/// an address.
fn is_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=63).contains(&label.len()) && label.bytes().all(is_letter)
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last
            .get(..2)
            .is_some_and(|it| it.eq_ignore_ascii_case("0x"));
    text.len() <= 253 && text.split('.').all(is_label) && !is_number
}

fn normalised(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Splits `HOST:PORT`; an IPv6 address is in brackets.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if text.starts_with('[') {
        let (host, rest) = text.split_at(text.find(']')? + 1);
        return match rest {
            "" => Some((host, None)),
            rest => Some((host, Some(rest.strip_prefix(':')?))),
        };
    }
    Some(match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    })
}

/// The text is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid host `{0}`: write `crates.io`, `*.npmjs.org`, `github.com:443`, `192.0.2.1:443` or \
     `db.example.com:*`"
)]
pub struct InvalidHost(String);

/// A rule about hosts: `crates.io`, `*.npmjs.org` (every name below it), `*` (every name), or an
/// address; with `:PORT` or `:*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostRule {
    pattern: Pattern,
    port: PortRule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Host(Host),
    /// Names below this one.
    Below(String),
    AnyName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PortRule {
    Unspecified,
    Any,
    Is(u16),
}

impl HostRule {
    fn matches(&self, target: &Target, is_default_port: impl Fn(u16) -> bool) -> bool {
        let is_host = match (&self.pattern, &target.host) {
            (Pattern::Host(host), other) => host == other,
            (Pattern::Below(parent), Host::Name(name)) => name
                .strip_suffix(parent.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            (Pattern::AnyName, Host::Name(_)) => true,
            (Pattern::Below(_) | Pattern::AnyName, Host::Address(_)) => false,
        };
        is_host
            && match self.port {
                PortRule::Unspecified => is_default_port(target.port),
                PortRule::Any => true,
                PortRule::Is(port) => port == target.port,
            }
    }
}

impl FromStr for HostRule {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        let invalid = || InvalidHost(text.to_owned());
        let (host, port) = split_port(text).ok_or_else(invalid)?;
        let pattern = match host.strip_prefix("*.") {
            _ if host == "*" => Pattern::AnyName,
            Some(parent) if is_name(parent) => Pattern::Below(normalised(parent)),
            _ => Pattern::Host(Host::parse(host).ok_or_else(invalid)?),
        };
        let port = match port {
            None => PortRule::Unspecified,
            Some("*") => PortRule::Any,
            Some(port) => PortRule::Is(port.parse().map_err(|_| invalid())?),
        };
        Ok(Self { pattern, port })
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Pattern::Host(host) => host.fmt(f)?,
            Pattern::Below(parent) => write!(f, "*.{parent}")?,
            Pattern::AnyName => f.write_str("*")?,
        }
        match self.port {
            PortRule::Unspecified => Ok(()),
            PortRule::Any => f.write_str(":*"),
            PortRule::Is(port) => write!(f, ":{port}"),
        }
    }
}

impl TryFrom<String> for HostRule {
    type Error = InvalidHost;

    fn try_from(text: String) -> Result<Self, InvalidHost> {
        text.parse()
    }
}

impl From<HostRule> for String {
    fn from(rule: HostRule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<HostRule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn rule_matches_the_hosts_it_names() {
        for (rule, target, expected) in [
            ("crates.io", "crates.io:443", true),
            ("crates.io", "CRATES.IO.:80", true),
            ("crates.io", "crates.io:22", false),
            ("crates.io", "static.crates.io:443", false),
            ("crates.io:22", "crates.io:22", true),
            ("crates.io:22", "crates.io:443", false),
            ("crates.io:*", "crates.io:1", true),
            ("*.crates.io", "static.crates.io:443", true),
            ("*.crates.io", "a.b.crates.io:443", true),
            ("*.crates.io", "crates.io:443", false),
            ("*.crates.io", "evilcrates.io:443", false),
            ("*", "crates.io:443", true),
            ("*", "192.0.2.1:443", false),
            ("192.0.2.1", "192.0.2.1:443", true),
            ("[2001:db8::1]:443", "[2001:db8:0::1]:443", true),
        ] {
            let policy = NetworkPolicy {
                allow: rules(&[rule]),
                ask: Some(false),
                ..NetworkPolicy::default()
            };
            let verdict = policy.verdict(&Target::parse(target, None).unwrap());
            assert_eq!(verdict == Verdict::Allowed, expected, "{rule} {target}");
        }
    }

    #[test]
    fn denial_wins_and_covers_all_ports() {
        let policy = NetworkPolicy {
            allow: rules(&["*:*"]),
            deny: rules(&["bad.example", "*.bad.example", "half.example:22"]),
            ..NetworkPolicy::default()
        };
        for (target, expected) in [
            ("bad.example:8080", Verdict::Denied),
            ("www.bad.example:443", Verdict::Denied),
            ("half.example:22", Verdict::Denied),
            ("half.example:443", Verdict::Allowed),
            ("192.0.2.1:443", Verdict::Ask),
        ] {
            let target = Target::parse(target, None).unwrap();
            assert_eq!(policy.verdict(&target), expected, "{target}");
        }
    }

    #[test]
    fn invalid_hosts_are_rejected() {
        for text in [
            "",
            ".",
            "a..b",
            "a b",
            "*.",
            "a*.b",
            "**",
            "http://a",
            "a:b",
            "a:70000",
            "1.2.3",
            "0x7f.1",
            "2130706433",
            "a.0x1",
            "a/b",
            "[::1",
            "[a]",
            "a@b",
            "ex\u{e4}mple.org",
        ] {
            assert!(text.parse::<HostRule>().is_err(), "{text}");
        }
        for text in [
            "crates.io",
            "*.npmjs.org",
            "github.com:443",
            "[::1]:8080",
            "*:*",
        ] {
            assert_eq!(text.parse::<HostRule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn asking_is_the_default_where_something_is_allowed() {
        let none = NetworkPolicy::default();
        assert!(!none.is_enabled() && !none.asks());
        let mut some = NetworkPolicy {
            allow: rules(&["a.example"]),
            ..NetworkPolicy::default()
        };
        assert!(some.is_enabled() && some.asks());
        some.ask = Some(false);
        assert!(some.is_enabled() && !some.asks());

        let mut granted = NetworkPolicy::default();
        granted.grant(rules(&["a.example"]));
        assert!(granted.is_enabled() && !granted.asks());
    }

    #[test]
    fn tightening_only_restricts() {
        let policy = NetworkPolicy {
            allow: rules(&["*"]),
            deny: rules(&["bad.example"]),
            ask: Some(true),
            private: vec!["127.0.0.1:80".parse().unwrap()],
            inject: Vec::new(),
        };
        let expected = NetworkPolicy {
            deny: rules(&["bad.example"]),
            ..NetworkPolicy::default()
        };
        assert_eq!(policy.tightening(), expected);
        assert!(!expected.is_enabled());
    }
}
