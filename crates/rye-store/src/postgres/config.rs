//! The URL of a database.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use url::Url;

/// Time limit for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Default time limit for an operation.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Default for the maximum number of pooled connections.
const MAX_CONNECTIONS: usize = 8;

/// Where a PostgreSQL database is, and how to connect to it.
#[derive(Clone)]
pub struct PostgresUrl {
    pub(super) config: tokio_postgres::Config,
    /// Certificates to verify the server with, instead of those of the system.
    pub(super) root_certificates: Option<PathBuf>,
    pub(super) max_connections: usize,
    /// After this time, the connection of an operation counts as broken.
    pub(super) timeout: Duration,
    /// The URL without user, password and parameters.
    name: String,
}

/// Why a URL cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid PostgreSQL URL: {0}")]
pub struct PostgresUrlError(String);

impl FromStr for PostgresUrl {
    type Err = PostgresUrlError;

    /// Parses `postgres://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS`.
    ///
    /// A connection to another machine uses TLS and verifies the server's certificate, unless
    /// `sslmode=disable`. `sslrootcert=FILE` names the certificates to verify with, and
    /// `pool_max_conns` limits the number of connections. Errors do not contain the password.
    fn from_str(text: &str) -> Result<Self, PostgresUrlError> {
        let failed = |reason: &dyn fmt::Display| PostgresUrlError(reason.to_string());
        let mut url = Url::parse(text).map_err(|error| failed(&error))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(failed(&"it must start with postgres://"));
        }
        let (mut root_certificates, mut max_connections) = (None, MAX_CONNECTIONS);
        let mut has_ssl_mode = false;
        let mut rest = Vec::new();
        for (key, value) in url.query_pairs() {
            match &*key {
                "sslrootcert" => root_certificates = Some(PathBuf::from(&*value)),
                "pool_max_conns" => {
                    let number = value.parse().ok().filter(|number| *number > 0);
                    max_connections = number
                        .ok_or_else(|| failed(&"pool_max_conns must be a whole number above 0"))?;
                }
                // Certificates are always verified.
                "sslmode" if matches!(&*value, "verify-full" | "verify-ca") => {
                    rest.push((key.into_owned(), "require".to_owned()));
                    has_ssl_mode = true;
                }
                other => {
                    has_ssl_mode |= other == "sslmode";
                    rest.push((key.into_owned(), value.into_owned()));
                }
            }
        }
        url.set_query(None);
        if !rest.is_empty() {
            url.query_pairs_mut().extend_pairs(rest);
        }
        // Its errors name the parameter and not its value.
        let mut config: tokio_postgres::Config =
            url.as_str().parse().map_err(|error| failed(&error))?;
        if config.get_hosts().is_empty() {
            return Err(failed(&"it names no host"));
        }
        if !has_ssl_mode {
            let is_local = config.get_hosts().iter().all(is_local);
            config.ssl_mode(if is_local {
                SslMode::Disable
            } else {
                SslMode::Require
            });
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("rye");
        }
        // A broken connection must be noticed before other hosts take the sessions over.
        config
            .tcp_user_timeout(Duration::from_secs(10))
            .keepalives_idle(Duration::from_secs(5))
            .keepalives_interval(Duration::from_secs(2))
            .keepalives_retries(3);
        let name = name(&config);
        Ok(Self {
            config,
            root_certificates,
            max_connections,
            timeout: OPERATION_TIMEOUT,
            name,
        })
    }
}

impl PostgresUrl {
    /// Limits the time of an operation [default: 10 seconds].
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// Whether a host is this machine.
fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            let address = name.parse::<IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
    }
}

/// What messages call the database.
fn name(config: &tokio_postgres::Config) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let hosts: Vec<_> = hosts.collect();
    let database = config.get_dbname().or(config.get_user());
    format!(
        "postgres://{}/{}",
        hosts.join(","),
        database.unwrap_or_default()
    )
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresUrl").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> PostgresUrl {
        text.parse().unwrap()
    }

    #[test]
    fn another_machine_is_reached_with_tls_unless_disabled() {
        for (url, mode) in [
            ("postgres://ada@db.example/rye", SslMode::Require),
            (
                "postgres://ada@db.example/rye?sslmode=disable",
                SslMode::Disable,
            ),
            (
                "postgres://ada@db.example/rye?sslmode=verify-full",
                SslMode::Require,
            ),
            ("postgres://ada@localhost/rye", SslMode::Disable),
            (
                "postgres://ada@127.0.0.1/rye?sslmode=require",
                SslMode::Require,
            ),
            ("postgresql://ada@%2Frun%2Fpostgresql/rye", SslMode::Disable),
            ("postgres://localhost,db.example/rye", SslMode::Require),
        ] {
            assert_eq!(parse(url).config.get_ssl_mode(), mode, "{url}");
        }
    }

    #[test]
    fn own_parameters_are_not_sent_to_the_server() {
        let url =
            parse("postgres://a@h/d?sslrootcert=/etc/ca.pem&pool_max_conns=3&options=-cx%3Dy");
        assert_eq!(url.root_certificates, Some(PathBuf::from("/etc/ca.pem")));
        assert_eq!(url.max_connections, 3);
        assert_eq!(url.config.get_options(), Some("-cx=y"));
    }

    #[test]
    fn password_is_shown_nowhere() {
        let url = parse("postgres://ada:s3cret@db.example:99/rye?password=s3cret");
        assert_eq!(url.to_string(), "postgres://db.example/rye");
        assert!(!format!("{url:?}").contains("s3cret"));
        for invalid in [
            "postgres://ada:s3cret@db.example/rye?unknown=s3cret",
            "postgres://ada:s3cret@db.example:s3cret/rye",
            "mysql://ada:s3cret@db.example/rye",
            "postgres://ada:s3cret@db.example/rye?pool_max_conns=s3cret",
            "postgres:///rye?user=s3cret",
        ] {
            let error = invalid.parse::<PostgresUrl>().unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
