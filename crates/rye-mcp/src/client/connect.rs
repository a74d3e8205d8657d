//! Making a connection: secrets are opened, the server is started or reached, and
//! the conversation begins, all within the time that a start may take.

mod remote;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use lillux::Hash;
use lillux::envelope::Secret;
use lillux::process::{Command, Environment, Supervisor};
use rmcp::service::{ClientInitializeError, serve_client_with_lifecycle_and_ct};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rye_executor::environment::minimal_variables;
use rye_executor::redact::Redactor;
use rye_items::vault::Vault;
use tokio_util::sync::CancellationToken;

use super::ask::Asks;
use super::config::{Protocol, ServerConfig, Transport};
use super::connection::{Client, Connection, Parts, does_not_know, lifecycle};
use super::error::{ClientError, ClientErrorKind};
use super::process::{End, Process};
use super::said::Heard;
use super::source::ConfigValue;
use super::stdio::Stdio;
use super::wire::Wire;
pub(super) use remote::log_out;

/// A server that can be called: its verified configuration, and what it is used with.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// What people know it by: the id of its configuration.
    pub id: String,
    /// The hash of the verified bytes of its configuration.
    pub hash: Hash,
    /// The configuration.
    pub config: ServerConfig,
    /// The folder of the project.
    pub project: PathBuf,
    /// The variables that its values may take.
    pub environment: BTreeMap<String, String>,
    /// Where its secrets are.
    pub vault: Option<Vault>,
}

/// What makes a connection the same: the configuration, the project, and the
/// values of the variables that the configuration takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key(String);

impl ServerSpec {
    pub(super) fn key(&self) -> Key {
        let mut text = format!("{}\0{}\0{}", self.id, self.hash, self.project.display());
        for (_, source) in self.config.sources() {
            for name in source.variables() {
                let value = self.environment.get(name).map_or("", String::as_str);
                text.extend(["\0", name, "=", value]);
            }
        }
        // Values may be secrets; of a hash nothing can be read.
        Key(Hash::digest(text).to_hex())
    }

    fn error(&self, kind: ClientErrorKind) -> ClientError {
        ClientError::new(&self.id, kind)
    }
}

/// Makes connections.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) supervisor: Supervisor,
    /// Made when it is first needed: it reads the machine's certificates.
    pub(super) http: OnceLock<Result<reqwest::Client, String>>,
    /// Who is asked what a server wants to know.
    pub(super) asks: Asks,
}

/// The values of a configuration, opened.
struct Values {
    args: Vec<String>,
    named: BTreeMap<String, String>,
    url: String,
    oauth: BTreeMap<String, String>,
    redactor: Redactor,
}

impl Connector {
    /// Connects to a server within the time that its start may take.
    pub(super) async fn connect(&self, server: &ServerSpec) -> Result<Connection, ClientError> {
        let values = open(server)?;
        let heard = Heard::new(values.redactor.clone());
        let limit = server.config.start_timeout;
        let is_modern = server.config.protocol == Protocol::Discover;
        let connected = async {
            match self.attempt(server, &values, &heard, is_modern).await {
                Err(Attempt::OtherRevision) => {
                    self.attempt(server, &values, &heard, !is_modern).await
                }
                outcome => outcome,
            }
        };
        let outcome = tokio::time::timeout(limit, connected).await;
        let kind = match outcome {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(Attempt::OtherRevision)) => ClientErrorKind::Handshake(
                "it knows neither `initialize` nor `server/discover`".to_owned(),
            ),
            Ok(Err(Attempt::Failed(kind))) => kind,
            Err(_) => ClientErrorKind::StartTimeout(limit),
        };
        Err(server.error(kind).with(heard.said()))
    }

    async fn attempt(
        &self,
        server: &ServerSpec,
        values: &Values,
        heard: &Heard,
        is_modern: bool,
    ) -> Result<Connection, Attempt> {
        match &server.config.transport {
            Transport::Stdio { command, cwd, .. } => {
                let mut process = Command::new(command.as_str())
                    .args(values.args.iter().map(String::as_str))
                    .cwd(match cwd {
                        Some(cwd) => server.project.join(cwd),
                        None => server.project.clone(),
                    })
                    .environment(Environment::Exact);
                for (name, value) in minimal_variables(&server.environment) {
                    process = process.env(name, value);
                }
                for (name, value) in &values.named {
                    process = process.env(name, value);
                }
                self.stdio(server, process, heard, is_modern).await
            }
            Transport::Http { .. } => self.http(server, values, heard, is_modern).await,
        }
    }

    async fn stdio(
        &self,
        server: &ServerSpec,
        command: Command<'static>,
        heard: &Heard,
        is_modern: bool,
    ) -> Result<Connection, Attempt> {
        let started = Process::start(&self.supervisor, command, heard.clone());
        let (process, output, input) =
            started.map_err(|error| Attempt::Failed(ClientErrorKind::Launch(error.to_string())))?;
        let process = Arc::new(process);
        let wire = Arc::new(Wire::default());
        let limit = server.config.max_message;
        let streams = Stdio::new(output, input, limit, Arc::clone(&wire), heard.clone());
        let client = Arc::new(Client::new(&server.id, &self.asks, heard.redactor()));
        let closing = CancellationToken::new();
        let served = serve_client_with_lifecycle_and_ct(
            Arc::clone(&client),
            streams,
            lifecycle(is_modern),
            // The SDK cancels what it is given when it ends for whatever reason.
            closing.child_token(),
        );
        match served.await {
            Ok(running) => Ok(Connection::keep(
                running,
                closing,
                parts(server, wire, heard, client, Some(process)),
            )),
            Err(error) if does_not_know(&error) => Err(Attempt::OtherRevision),
            Err(error) => {
                // Its streams are closed: it ends, and says how.
                let kind = match (wire.fault(), error) {
                    (Some(fault), _) => fault,
                    (
                        None,
                        ClientInitializeError::ConnectionClosed(_)
                        | ClientInitializeError::TransportError { .. },
                    ) => match process.ended().await {
                        Some(End::NotStarted(why)) => ClientErrorKind::Launch(why),
                        Some(End::Ended(how)) => ClientErrorKind::ExitedDuringStart(how),
                        Some(End::Stopped) | None => ClientErrorKind::ExitedDuringStart(
                            "closed its standard output".to_owned(),
                        ),
                    },
                    (None, error) => ClientErrorKind::Handshake(
                        heard.redactor().redact(&words(&error)).into_owned(),
                    ),
                };
                process.stop();
                Err(Attempt::Failed(kind))
            }
        }
    }
}

/// Why there is no connection.
enum Attempt {
    /// The server does not know this revision; it may know the other.
    OtherRevision,
    Failed(ClientErrorKind),
}

fn parts(
    server: &ServerSpec,
    wire: Arc<Wire>,
    heard: &Heard,
    client: Arc<Client>,
    process: Option<Arc<Process>>,
) -> Parts {
    Parts {
        server: server.id.clone(),
        wire,
        heard: heard.clone(),
        client,
        process,
        limit: server.config.max_message,
        idle: server.config.idle_timeout,
    }
}

/// Opens all values of a configuration, secrets among them.
fn open(server: &ServerSpec) -> Result<Values, ClientError> {
    let mut secrets = Vec::new();
    let mut open = |name: &str, source: &ConfigValue| {
        let opened = source.open(name, &server.environment, server.vault.as_ref());
        let opened = opened
            .map_err(|why| server.error(ClientErrorKind::Config(format!("`{name}`: {why}"))))?;
        secrets.extend(opened.secrets);
        Ok::<_, ClientError>(opened.text)
    };
    let mut values = Values {
        args: Vec::new(),
        named: BTreeMap::new(),
        url: String::new(),
        oauth: BTreeMap::new(),
        redactor: Redactor::default(),
    };
    match &server.config.transport {
        Transport::Stdio { args, env, .. } => {
            for source in args {
                values.args.push(open("args", source)?);
            }
            for (name, source) in env {
                values.named.insert(name.clone(), open(name, source)?);
            }
        }
        Transport::Http {
            url,
            headers,
            oauth,
        } => {
            values.url = open("url", url)?;
            for (name, source) in headers {
                values.named.insert(name.clone(), open(name, source)?);
            }
            for (name, source) in oauth {
                values.oauth.insert(name.clone(), open(name, source)?);
            }
        }
    }
    let texts = secrets.iter().map(Secret::expose);
    values.redactor = Redactor::new(texts.filter_map(|it| std::str::from_utf8(it).ok()));
    Ok(values)
}

/// An error with its causes, each once.
pub(super) fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// What a transport says, without the names of types.
pub(super) fn transport_words(error: &DynamicTransportError) -> String {
    match of_http_client(error) {
        Some(error) => words(error),
        None => words(&*error.error),
    }
}

/// The error of the HTTP client, if that is what it was. The SDK names it as no cause.
pub(super) fn of_http_client(error: &DynamicTransportError) -> Option<&reqwest::Error> {
    match error.error.downcast_ref()? {
        StreamableHttpError::Client(error) => Some(error),
        _ => None,
    }
}
