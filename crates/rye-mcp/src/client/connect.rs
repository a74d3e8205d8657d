//! Connecting to a server: resolves secrets, starts or contacts the server, and performs the
//! handshake, all within the start timeout.

mod remote;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lillux::envelope::Secret;
use lillux::process::{Command, Environment, Supervisor};
use lillux::{Hash, error_chain};
use parking_lot::RwLock;
use rmcp::RoleClient;
use rmcp::service::{ClientInitializeError, serve_client_with_lifecycle_and_ct};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rye_executor::OutputListener;
use rye_executor::environment::minimal_variables;
use rye_executor::redact::{Redactor, redacting_listener};
use rye_items::vault::Vault;
use tokio_util::sync::CancellationToken;

use super::config::{Protocol, ServerConfig, Transport};
use super::connection::{Client, Connection, is_unsupported_revision, lifecycle_mode};
use super::diagnostics::DiagnosticsLog;
use super::elicitation::ElicitationSettings;
use super::error::{ClientError, ClientErrorKind};
use super::in_flight::InFlightRequests;
use super::process::{ProcessEnd, ServerProcess};
use super::stdio::StdioTransport;
use super::value::ConfigValue;
pub(super) use remote::log_out;

/// How long a program that may install a server has to end after `SIGTERM`: a killed installer leaves
/// a broken cache behind.
const INSTALL_GRACE: Duration = Duration::from_secs(5);

/// A server to call: its verified configuration and the context to use it in.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// Item id of its configuration.
    pub id: String,
    /// Hash of the verified bytes of its configuration.
    pub hash: Hash,
    /// Transport and limits.
    pub config: ServerConfig,
    /// Project directory.
    pub project: PathBuf,
    /// Environment variables that `${VAR}` in the configuration refers to.
    pub environment: BTreeMap<String, String>,
    /// Vault with the secrets of the configuration.
    pub vault: Option<Vault>,
}

/// Identity of a connection: a hash of the configuration, the project, and the values of the
/// variables that the configuration uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ConnectionKey(String);

impl ServerSpec {
    pub(super) fn key(&self) -> ConnectionKey {
        let mut text = format!("{}\0{}\0{}", self.id, self.hash, self.project.display());
        for (_, value) in self.config.values() {
            for name in value.variables() {
                let value = self.environment.get(name).map_or("", String::as_str);
                text.extend(["\0", name, "=", value]);
            }
        }
        // Hashed because the values may be secrets.
        ConnectionKey(Hash::digest(text).to_hex())
    }

    fn error(&self, kind: ClientErrorKind) -> ClientError {
        ClientError::new(&self.id, kind)
    }
}

/// Opens connections to servers.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) supervisor: Supervisor,
    /// Created on first use, because that reads the system's certificates.
    pub(super) http: OnceLock<Result<reqwest::Client, String>>,
    /// How to answer elicitations.
    pub(super) elicitation: ElicitationSettings,
    /// Receives the output of servers that start.
    pub(super) start_listener: RwLock<Option<OutputListener>>,
}

/// Values of a configuration with variables and secrets filled in.
struct ResolvedValues {
    args: Vec<String>,
    named: BTreeMap<String, String>,
    url: String,
    oauth: BTreeMap<String, String>,
    redactor: Redactor,
}

impl Connector {
    /// Connects to a server within its start timeout, trying both protocol revisions.
    pub(super) async fn connect(&self, server: &ServerSpec) -> Result<Connection, ClientError> {
        let values = resolve_values(server)?;
        let log = DiagnosticsLog::new(values.redactor.clone());
        let listener = self.start_listener.read().clone();
        log.set_listener(listener.map(|it| redacting_listener(log.redactor(), it)));
        let limit = server.config.start_timeout();
        let use_discover = server.config.protocol == Protocol::Discover;
        let connected = async {
            match Box::pin(self.try_connect(server, &values, &log, use_discover)).await {
                Err(ConnectError::UnsupportedRevision) => {
                    Box::pin(self.try_connect(server, &values, &log, !use_discover)).await
                }
                outcome => outcome,
            }
        };
        let outcome = tokio::time::timeout(limit, connected).await;
        log.set_listener(None);
        let kind = match outcome {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(ConnectError::UnsupportedRevision)) => ClientErrorKind::Handshake(
                "it supports neither `initialize` nor `server/discover`".to_owned(),
            ),
            Ok(Err(ConnectError::Failed(kind))) => kind,
            Err(_) => ClientErrorKind::StartTimeout(limit),
        };
        Err(server.error(kind).with_diagnostics(log.snapshot()))
    }

    async fn try_connect(
        &self,
        server: &ServerSpec,
        values: &ResolvedValues,
        log: &DiagnosticsLog,
        use_discover: bool,
    ) -> Result<Connection, ConnectError> {
        match &server.config.transport {
            Transport::Stdio { command, cwd, .. } => {
                let mut process = Command::new(command.as_str())
                    .args(values.args.iter().map(String::as_str))
                    .cwd(match cwd {
                        Some(cwd) => server.project.join(cwd),
                        None => server.project.clone(),
                    })
                    .environment(Environment::Exact);
                if server.config.may_install() {
                    process = process.grace(INSTALL_GRACE);
                }
                for (name, value) in minimal_variables(&server.environment) {
                    process = process.env(name, value);
                }
                for (name, value) in &values.named {
                    process = process.env(name, value);
                }
                self.connect_stdio(server, process, log, use_discover).await
            }
            Transport::Http { .. } => self.connect_http(server, values, log, use_discover).await,
        }
    }

    async fn connect_stdio(
        &self,
        server: &ServerSpec,
        command: Command<'static>,
        log: &DiagnosticsLog,
        use_discover: bool,
    ) -> Result<Connection, ConnectError> {
        let started = ServerProcess::start(&self.supervisor, command, log.clone());
        let (process, output, input) = started
            .map_err(|error| ConnectError::Failed(ClientErrorKind::Launch(error.to_string())))?;
        let process = Arc::new(process);
        let in_flight = Arc::new(InFlightRequests::default());
        let limit = server.config.max_message;
        let streams =
            StdioTransport::new(output, input, limit, Arc::clone(&in_flight), log.clone());
        let (known, started) = (Arc::clone(&in_flight), Some(Arc::clone(&process)));
        let connected = self.handshake(server, streams, log, use_discover, known, started);
        match connected.await {
            Ok(connection) => Ok(connection),
            Err(error) if is_unsupported_revision(&error) => Err(ConnectError::UnsupportedRevision),
            Err(error) => {
                // Its streams are closed, so the process exits and the exit can be reported.
                let kind = match (in_flight.fault(), error) {
                    (Some(fault), _) => fault,
                    (
                        None,
                        ClientInitializeError::ConnectionClosed(_)
                        | ClientInitializeError::TransportError { .. },
                    ) => match process.wait_end().await {
                        Some(ProcessEnd::NotStarted(why)) => ClientErrorKind::Launch(why),
                        Some(ProcessEnd::Exited(how)) => ClientErrorKind::ExitedDuringStart(how),
                        Some(ProcessEnd::Stopped) | None => ClientErrorKind::ExitedDuringStart(
                            "closed its standard output".to_owned(),
                        ),
                    },
                    (None, error) => ClientErrorKind::Handshake(
                        log.redactor().redact(&error_chain(&error)).into_owned(),
                    ),
                };
                process.stop();
                Err(ConnectError::Failed(kind))
            }
        }
    }
}

impl Connector {
    /// Performs the handshake over a transport.
    async fn handshake(
        &self,
        server: &ServerSpec,
        transport: impl rmcp::transport::Transport<RoleClient> + 'static,
        log: &DiagnosticsLog,
        use_discover: bool,
        in_flight: Arc<InFlightRequests>,
        process: Option<Arc<ServerProcess>>,
    ) -> Result<Connection, ClientInitializeError> {
        let client = Arc::new(Client::new(&server.id, &self.elicitation, log.redactor()));
        let closing = CancellationToken::new();
        let running = serve_client_with_lifecycle_and_ct(
            Arc::clone(&client),
            transport,
            lifecycle_mode(use_discover),
            // A child token, because the SDK cancels its token whenever it ends.
            closing.child_token(),
        )
        .await?;
        let connection = Connection {
            server: server.id.clone(),
            peer: running.peer().clone(),
            in_flight,
            log: log.clone(),
            client,
            tools: tokio::sync::Mutex::default(),
            max_message: server.config.max_message,
            process,
            usage: Arc::default(),
            closing,
            closed: CancellationToken::new(),
        };
        connection.watch(running, server.config.idle_timeout);
        Ok(connection)
    }
}

/// Why an attempt to connect failed.
enum ConnectError {
    /// The server does not support this protocol revision; it may support the other.
    UnsupportedRevision,
    Failed(ClientErrorKind),
}

/// Resolves the variables and secrets of a configuration.
fn resolve_values(server: &ServerSpec) -> Result<ResolvedValues, ClientError> {
    let mut secrets = Vec::new();
    let mut resolve = |name: &str, value: &ConfigValue| {
        let resolved = value.resolve(name, &server.environment, server.vault.as_ref());
        let resolved = resolved
            .map_err(|why| server.error(ClientErrorKind::Config(format!("`{name}`: {why}"))))?;
        secrets.extend(resolved.secrets);
        Ok::<_, ClientError>(resolved.text)
    };
    let mut values = ResolvedValues {
        args: Vec::new(),
        named: BTreeMap::new(),
        url: String::new(),
        oauth: BTreeMap::new(),
        redactor: Redactor::default(),
    };
    match &server.config.transport {
        Transport::Stdio { args, env, .. } => {
            for value in args {
                values.args.push(resolve("args", value)?);
            }
            for (name, value) in env {
                values.named.insert(name.clone(), resolve(name, value)?);
            }
        }
        Transport::Http {
            url,
            headers,
            oauth,
        } => {
            values.url = resolve("url", url)?;
            for (name, value) in headers {
                values.named.insert(name.clone(), resolve(name, value)?);
            }
            for (name, value) in oauth {
                values.oauth.insert(name.clone(), resolve(name, value)?);
            }
        }
    }
    let texts = secrets.iter().map(Secret::expose);
    values.redactor = Redactor::new(texts.filter_map(|text| std::str::from_utf8(text).ok()));
    Ok(values)
}

/// Formats a transport error without the SDK's type names.
pub(super) fn describe_transport_error(error: &DynamicTransportError) -> String {
    match http_client_error(error) {
        Some(error) => error_chain(error),
        None => error_chain(&*error.error),
    }
}

/// The error of the HTTP client in a transport error. The SDK does not expose it as a source.
pub(super) fn http_client_error(error: &DynamicTransportError) -> Option<&reqwest::Error> {
    match error.error.downcast_ref()? {
        StreamableHttpError::Client(error) => Some(error),
        _ => None,
    }
}
