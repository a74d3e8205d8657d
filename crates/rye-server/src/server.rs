//! Starts and stops the server.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lillux::process::ShutdownSignals;
use rye_engine::documents::DocumentStore;
use rye_engine::protocol::Gate;
use rye_engine::{Engine, Upkeep};
use rye_host::automation::{ProjectGraphs, documents, sealer};
use rye_host::engine::{EngineOptions, database, runtime, start_supervisor};
use rye_host::gateway::ItemGateway;
use rye_host::projects::{Projects, Served, with_projects};
use rye_host::{Context, Failure, SandboxKind, settings};
use rye_mcp::ApprovalChannel;
use rye_mcp::server::http::connections::{self, Limits};
use rye_store::{Scope, TokenKind};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::access::Sessions;
use crate::api::{self, Readiness};
use crate::automation::Automation;
use crate::browser_keys::BrowserKeys;
use crate::guard::Guard;
use crate::login::LINK_LIFETIME;
use crate::metrics::StreamMetrics;
use crate::oidc::{Oidc, OidcOptions};
use crate::rates::Rates;
use crate::tokens::{NewToken, Tokens};
use crate::usage::UsageLedger;

/// Limit for the head of a request, for each part of its body, and for an idle connection.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of open connections, most of which are event streams.
const MAX_CONNECTIONS: usize = 10_000;

/// How to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address to listen on.
    pub address: SocketAddr,
    /// URL under which clients reach the server, if a proxy is in front of it.
    pub public_url: Option<String>,
    /// Accepted `Host` names, in addition to loopback and the address.
    pub hosts: Vec<String>,
    /// Accepted `Origin`s of web pages on other hosts.
    pub origins: Vec<String>,
    /// Maximum size of a request body, in bytes.
    pub max_body: usize,
    /// How long a shutdown waits for running model calls and tools.
    pub drain_timeout: Duration,
    /// How sessions are kept.
    pub upkeep: Upkeep,
    /// Requests of a token in a second.
    pub max_rate: u32,
    /// Directories in which sessions may have their project, in addition to the server's own.
    pub projects: Vec<PathBuf>,
    /// Where the tools of new sessions run by default.
    pub sandbox: Option<SandboxKind>,
    /// The default model.
    pub model: Option<String>,
    /// The issuer whose tokens are accepted too.
    pub oidc: Option<OidcOptions>,
}

/// A server that accepts requests.
#[derive(Debug, Clone)]
pub struct Ready {
    /// URL of the server.
    pub url: String,
    /// Link that logs a browser in, once and within a minute.
    pub login: String,
}

/// State of the server that handlers share.
#[derive(Clone)]
pub(crate) struct App(Arc<State>);

pub(crate) struct State {
    pub(crate) sessions: Sessions,
    pub(crate) tokens: Tokens,
    pub(crate) browser_keys: BrowserKeys,
    /// Which session a chat completion continues.
    pub(crate) documents: Arc<dyn DocumentStore>,
    /// Verifies tokens of an issuer.
    pub(crate) oidc: Option<Oidc>,
    pub(crate) usage: UsageLedger,
    pub(crate) stream_metrics: StreamMetrics,
    pub(crate) readiness: Readiness,
    /// Limits how many requests callers send.
    pub(crate) rates: Rates,
    pub(crate) address: SocketAddr,
    pub(crate) options: Options,
    /// The project of new sessions.
    pub(crate) project: PathBuf,
    /// The projects that sessions may have.
    pub(crate) projects: Arc<Projects>,
    /// Settings and keys of the user, and the items of the project.
    pub(crate) context: Context,
    /// Searches, reads and executes items.
    pub(crate) gateway: Arc<ItemGateway>,
    /// Schedules, and what fires them.
    pub(crate) automation: Automation,
    /// Cancelled when the server stops: event streams end.
    pub(crate) draining: CancellationToken,
}

impl Deref for App {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl State {
    /// The engine.
    pub(crate) fn engine(&self) -> &Engine {
        &self.sessions.engine
    }

    /// URL under which clients reach the server.
    pub(crate) fn url(&self) -> String {
        let url = self.options.public_url.clone();
        let url = url.unwrap_or_else(|| format!("http://{}", reachable(self.address)));
        url.trim_end_matches('/').to_owned()
    }

    /// The page of the console on which someone can decide a gate.
    pub(crate) fn gate_url(&self, gate: &Gate) -> String {
        format!("{}/#/inbox/{}", self.url(), gate.id)
    }

    /// Whether clients use TLS, which ends at a proxy.
    pub(crate) fn is_https(&self) -> bool {
        let url = self.options.public_url.as_deref();
        url.is_some_and(|url| url.starts_with("https://"))
    }
}

/// Serves until SIGINT or SIGTERM. Calls `on_ready` when the server accepts requests.
pub fn run(
    context: &Context,
    settings: &settings::Options,
    options: Options,
    on_ready: impl FnOnce(&Ready),
) -> Result<(), Failure> {
    // It forks, so it must start before any threads.
    let supervisor = Arc::new(start_supervisor()?);
    let mut signals =
        ShutdownSignals::listen().map_err(|error| unable("wait for signals", error))?;
    let engine_options = EngineOptions {
        runs_sessions: true,
        sandbox: options.sandbox,
        model: options.model.clone(),
        keeps_sandboxes: true,
        ..EngineOptions::default()
    };
    let tokens = tokens(context)?;
    let browser_keys = BrowserKeys::new(context)?;
    let documents = documents(context)?;
    let oidc = options.oidc.clone().map(Oidc::new).transpose()?;
    let project = context.settings.project().to_owned();
    let name = context.user_name()?;
    let own_context = Context::open(settings)?;
    let gateway = ItemGateway::new(
        settings,
        context,
        Arc::clone(&supervisor),
        ApprovalChannel::Terminal,
        |_| String::new(),
    );
    let gateway = Arc::new(gateway);
    let sealer = sealer(context);
    let served = Served::Permitted(options.projects.clone());
    let work = async |engine: &Engine, projects: &Arc<Projects>| {
        let wanted = options.address;
        let listener = TcpListener::bind(wanted).await;
        let listener = listener.map_err(|error| unable(&format!("listen on {wanted}"), error))?;
        let address = listener
            .local_addr()
            .map_err(|error| unable("serve", error))?;
        let automation = Automation::new(
            Arc::clone(&documents),
            engine.clone(),
            ProjectGraphs::new(Arc::clone(&gateway), &project),
            sealer,
            project.display().to_string(),
        );
        let app = App(Arc::new(State {
            sessions: Sessions {
                engine: engine.clone(),
            },
            tokens,
            browser_keys,
            documents,
            oidc,
            usage: UsageLedger::default(),
            stream_metrics: StreamMetrics::default(),
            readiness: Readiness::default(),
            rates: Rates::new(options.max_rate),
            address,
            options,
            project,
            projects: Arc::clone(projects),
            context: own_context,
            gateway,
            automation,
            draining: CancellationToken::new(),
        }));
        on_ready(&ready(&app, name).await?);
        let mut tasks = app.automation.start(&app.draining)?;
        let (upkeep, stop) = (app.options.upkeep, app.draining.clone());
        let own = engine.clone();
        tasks.spawn(async move { own.run_upkeep(upkeep, stop).await });
        let serving = serve(listener, app.clone());
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => return Ok(()),
            _ = signals.next() => app.draining.cancel(),
        }
        // Clients continue at another server, which continues each session that is released.
        let drained = async {
            let tasks = async { while tasks.join_next().await.is_some() {} };
            tokio::join!(serving, engine.drain(), tasks);
        };
        // A second signal or the timeout ends what is still busy.
        tokio::select! {
            () = drained => {}
            _ = signals.next() => {}
            () = tokio::time::sleep(app.options.drain_timeout) => {}
        }
        Ok(())
    };
    with_projects(context, settings, engine_options, served, supervisor, work)
}

/// Works with the tokens of the user's session database.
pub fn with_tokens<T>(
    context: &Context,
    work: impl AsyncFnOnce(&Tokens) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let tokens = tokens(context)?;
    runtime()?.block_on(work(&tokens))
}

/// A link to a server that logs a browser in, once and within a minute.
pub fn login_link(context: &Context, url: &str) -> Result<String, Failure> {
    let name = context.user_name()?;
    with_tokens(context, async |tokens| {
        new_login_link(tokens, name, url).await
    })
}

/// Opens the tokens, after the store has checked and prepared the database.
fn tokens(context: &Context) -> Result<Tokens, Failure> {
    let path = database(context)?;
    drop(rye_host::store(&path)?);
    Ok(Tokens::open(&path)?)
}

/// The URL of a server, and a link to log in.
async fn ready(app: &App, name: String) -> Result<Ready, Failure> {
    let url = app.url();
    let login = new_login_link(&app.tokens, name, &url).await?;
    Ok(Ready { url, login })
}

async fn new_login_link(tokens: &Tokens, name: String, url: &str) -> Result<String, Failure> {
    let link = NewToken {
        name,
        scopes: [Scope::Admin].into(),
        user: None,
        org: None,
        project: None,
        lifetime: Some(LINK_LIFETIME),
        created_by: None,
    };
    let (_, secret) = tokens.create_as(TokenKind::Login, link).await?;
    let url = url.trim_end_matches('/');
    Ok(format!("{url}/login?token={secret}"))
}

/// An address that a browser on this machine can open.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(it) if it.ip().is_unspecified() => ([127, 0, 0, 1], it.port()).into(),
        SocketAddr::V6(it) if it.ip().is_unspecified() => {
            (std::net::Ipv6Addr::LOCALHOST, it.port()).into()
        }
        other => other,
    }
}

/// Serves a listener until the server drains and all requests have ended.
async fn serve(listener: TcpListener, app: App) {
    let options = &app.options;
    let mut hosts = options.hosts.clone();
    let mut origins = options.origins.clone();
    if let Some(url) = &options.public_url {
        let origin = url.trim_end_matches('/');
        origins.push(origin.to_owned());
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        hosts.push(host.split([':', '/']).next().unwrap_or(host).to_owned());
    }
    let guard = Arc::new(Guard::new(app.address, &hosts, &origins));
    let limits = Limits::new(MAX_CONNECTIONS, READ_TIMEOUT);
    let draining = app.draining.clone();
    connections::serve(listener, api::router(app, guard), limits, draining).await;
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn unable(what: &str, error: io::Error) -> Failure {
    Failure::failed("server", format_args!("cannot {what}: {error}"))
}
