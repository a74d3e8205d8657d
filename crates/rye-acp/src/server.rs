//! Serves the editor that started this process.

use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    AuthenticateRequest, CancelNotification, CloseSessionRequest, CloseSessionResponse,
    DeleteSessionRequest, DeleteSessionResponse, InitializeRequest, ListSessionsRequest,
    ListSessionsResponse, LoadSessionRequest, NewSessionRequest, PromptRequest,
    ResumeSessionRequest, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
    SetSessionModeRequest, SetSessionModeResponse,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{
    Agent as AgentRole, Client, ConnectTo, Error, ErrorCode, JsonRpcResponse, UntypedMessage,
};
use lillux::process::ShutdownSignals;
use rye_engine::Engine;
use rye_host::engine::{EngineOptions, start_supervisor};
use rye_host::projects::{Projects, Served, with_projects};
use rye_host::{Context, Failure, SandboxKind, settings};
use tokio::sync::mpsc;

use crate::agent::{Agent, Opened};
use crate::caller::{Caller, Reach};
use crate::failure::invalid;
use crate::transport::{TOO_LONG, channels, stdio};

/// How to serve an editor.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where the tools of new sessions run.
    pub sandbox: Option<SandboxKind>,
    /// The default model.
    pub model: Option<String>,
}

/// Serves an editor on standard input and output until it closes them, or SIGINT or SIGTERM.
/// Unfinished work continues when the session is opened again.
pub fn run(
    context: &Context,
    settings: &settings::Options,
    options: Options,
) -> Result<(), Failure> {
    // It forks, so it must start before any threads.
    let supervisor = start_supervisor()?;
    let mut signals = ShutdownSignals::listen().map_err(|error| {
        Failure::failed("acp", format_args!("cannot wait for signals: {error}"))
    })?;
    let engine_options = EngineOptions {
        runs_sessions: true,
        sandbox: options.sandbox,
        model: options.model.clone(),
        ..EngineOptions::default()
    };
    with_projects(
        context,
        settings,
        engine_options,
        Served::All,
        supervisor,
        async |engine, projects| {
            let reach = Reach {
                engine: engine.clone(),
                projects: Arc::clone(projects),
                caller: None,
            };
            let agent = Arc::new(Agent::new(reach, options.model));
            tokio::select! {
                ended = serve(Arc::clone(&agent), stdio()) => {
                    if let Err(error) = ended {
                        // The editor is gone, so nobody can be told.
                        tracing::debug!(%error, "the connection has failed");
                    }
                }
                _ = signals.next() => {}
            }
            agent.stop();
            Ok(())
        },
    )
}

/// Serves a client of a server until its messages end. Sessions work in the project of the server.
pub async fn serve_remote(
    engine: Engine,
    projects: Arc<Projects>,
    caller: Caller,
    incoming: mpsc::Receiver<String>,
    outgoing: mpsc::Sender<String>,
) {
    let reach = Reach {
        engine,
        projects,
        caller: Some(caller),
    };
    let agent = Arc::new(Agent::new(reach, None));
    let ended = serve(Arc::clone(&agent), channels(incoming, outgoing)).await;
    if let Err(error) = ended {
        tracing::debug!(%error, "the connection has failed");
    }
    agent.stop();
}

/// Handles a request in a task of its own. Messages of other sessions are handled meanwhile.
macro_rules! in_task {
    ($builder:expr, $agent:expr, $request:ty, $work:expr) => {{
        let agent = Arc::clone(&$agent);
        $builder.on_receive_request(
            async move |request: $request, responder, connection: ConnectionTo<Client>| {
                let agent = Arc::clone(&agent);
                let work = async move { $work(&agent, request, connection).await };
                respond_later(responder, work);
                Ok(())
            },
            agent_client_protocol::on_receive_request!(),
        )
    }};
}

/// Serves a connection until it ends.
async fn serve(
    agent: Arc<Agent>,
    transport: impl ConnectTo<AgentRole> + 'static,
) -> Result<(), Error> {
    let [initialize, authenticate, prompt, cancel] = std::array::from_fn(|_| Arc::clone(&agent));
    let builder = AgentRole.v1().name("rye");
    let builder = in_task!(builder, agent, NewSessionRequest, Agent::new_session);
    let builder = in_task!(builder, agent, LoadSessionRequest, Agent::load_session);
    let builder = in_task!(builder, agent, ResumeSessionRequest, Agent::resume_session);
    let builder = in_task!(builder, agent, ListSessionsRequest, Agent::list_sessions);
    let builder = in_task!(builder, agent, SetSessionModeRequest, Agent::set_mode);
    let builder = in_task!(
        builder,
        agent,
        SetSessionConfigOptionRequest,
        Agent::set_option
    );
    let builder = in_task!(builder, agent, CloseSessionRequest, Agent::close_session);
    let builder = in_task!(builder, agent, DeleteSessionRequest, Agent::delete_session);
    builder
        .on_receive_request(
            async move |request: InitializeRequest, responder, _: ConnectionTo<Client>| {
                responder.respond_with_result(initialize.initialize(request))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: AuthenticateRequest, responder, _: ConnectionTo<Client>| {
                responder.respond_with_result(authenticate.authenticate(&request))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, _: ConnectionTo<Client>| {
                prompt.prompt(request, responder)
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |request: CancelNotification, _: ConnectionTo<Client>| {
                cancel.cancel(&request);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: UntypedMessage, responder, _: ConnectionTo<Client>| {
                let error = match request.method() {
                    TOO_LONG => invalid("the message is too long: the maximum is 64 MiB"),
                    other => Error::new(
                        ErrorCode::METHOD_NOT_FOUND,
                        format!("unknown method {other}"),
                    ),
                };
                responder.respond_with_error(error)
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_to(transport)
        .await
}

/// A result that becomes a response.
trait Outcome: Send {
    type Response: JsonRpcResponse;

    fn respond(self, responder: Responder<Self::Response>) -> Result<(), Error>;
}

/// The session begins after the response.
impl<T: JsonRpcResponse> Outcome for Opened<T> {
    type Response = T;

    fn respond(self, responder: Responder<T>) -> Result<(), Error> {
        responder.respond(self.response)?;
        drop(self.begin);
        Ok(())
    }
}

macro_rules! plain_outcomes {
    ($($response:ty),*) => {$(
        impl Outcome for $response {
            type Response = Self;

            fn respond(self, responder: Responder<Self>) -> Result<(), Error> {
                responder.respond(self)
            }
        }
    )*};
}

plain_outcomes!(
    ListSessionsResponse,
    CloseSessionResponse,
    DeleteSessionResponse,
    SetSessionModeResponse,
    SetSessionConfigOptionResponse
);

/// Responds when `work` has ended.
fn respond_later<T: Outcome>(
    responder: Responder<T::Response>,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) {
    tokio::spawn(async move {
        let responded = match work.await {
            Ok(outcome) => outcome.respond(responder),
            Err(error) => responder.respond_with_error(error),
        };
        if let Err(error) = responded {
            tracing::debug!(%error, "the response could not be sent");
        }
    });
}
