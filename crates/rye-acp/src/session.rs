//! The task of an open session: sends what the editor wants to the engine, and what happens in the
//! session to the editor. It is the only one that does, so updates arrive in order.

mod commands;
mod events;
mod permissions;
mod prompts;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    AvailableCommandsUpdate, ClientCapabilities, ConfigOptionUpdate, PromptResponse,
    SessionId as AcpSessionId, SessionNotification, SessionUpdate,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Client, Error};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use rye_engine::protocol::{EventKind, GateId, SessionId, ThreadId};
use rye_engine::store::{CommandKind, StoreError};
use rye_engine::{Engine, EventStream};
use rye_host::projects::Project;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::caller::Caller;
use crate::content::PromptContent;
use crate::editor_files::editor_files;
use crate::failure::{invalid, store_error};
use crate::history::THREAD;
use crate::settings::{Choice, Settings};
use crate::slash_command;
use crate::transcript::{Transcript, note};
use commands::EndedCommand;
use permissions::{AskedGate, PermissionAnswer, Question};
use prompts::PendingPrompt;

/// How often the output of running tools is sent.
const OUTPUT_INTERVAL: Duration = Duration::from_millis(250);

/// How long a session is kept open after something has happened in it.
const IDLE_TIME: Duration = Duration::from_secs(2);

/// Delay before events are read again after an error.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// How often in a row reading events may fail.
const MAX_FAILURES: u32 = 10;

/// What an editor asks of an open session.
pub(crate) enum Command {
    /// Works on a prompt, and responds when it has ended.
    Prompt {
        content: PromptContent,
        responder: Box<Responder<PromptResponse>>,
    },
    /// Stops the work.
    Cancel,
    /// Changes a setting, and tells what is chosen then.
    Set {
        choice: Choice,
        done: oneshot::Sender<Result<Settings, Error>>,
    },
    /// Stops the work, and releases the session.
    Close(oneshot::Sender<Result<(), StoreError>>),
}

/// An open session of a connection.
#[derive(Clone)]
pub(crate) struct SessionHandle {
    commands: UnboundedSender<Command>,
}

impl SessionHandle {
    /// Sends a command. It is dropped if the session has just ended.
    pub(crate) fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

/// What the task of a session works with.
pub(crate) struct SessionTask {
    /// The id, as the editor knows it.
    name: AcpSessionId,
    id: SessionId,
    engine: Engine,
    project: Arc<Project>,
    connection: ConnectionTo<Client>,
    client: Arc<ClientCapabilities>,
    /// Who uses a remote connection.
    caller: Option<Caller>,
    transcript: Transcript,
    /// Key of the thread that the editor shows.
    thread_key: String,
    /// The thread, once it exists.
    thread: Option<ThreadId>,
    prompts: Vec<PendingPrompt>,
    /// Gates that the editor is or was asked about.
    asked: HashMap<GateId, AskedGate>,
    permissions: FuturesUnordered<BoxFuture<'static, PermissionAnswer>>,
    /// The question that the next prompt answers.
    question: Option<Question>,
    settings: Settings,
    /// Role of the next prompts, if the user chose one.
    role: Option<String>,
    /// Running slash commands, and what cancels them.
    commands: FuturesUnordered<BoxFuture<'static, EndedCommand>>,
    commands_cancelled: CancellationToken,
    /// Forwards what happens in running tasks.
    tasks: HashMap<SessionId, AbortOnDropHandle<()>>,
    task_events: (UnboundedSender<EventKind>, UnboundedReceiver<EventKind>),
    /// When to send the output of running tools.
    output_due: Option<Instant>,
    /// When to release the session, unless something happens before.
    release_due: Option<Instant>,
}

/// The other side of a connection.
pub(crate) struct Editor {
    pub(crate) connection: ConnectionTo<Client>,
    pub(crate) client: Arc<ClientCapabilities>,
    /// Who uses a remote connection.
    pub(crate) caller: Option<Caller>,
}

/// What a session is opened with.
pub(crate) struct OpenedSession {
    pub(crate) id: SessionId,
    pub(crate) engine: Engine,
    pub(crate) project: Arc<Project>,
    pub(crate) transcript: Transcript,
    pub(crate) settings: Settings,
    /// Key of the thread that the editor shows, and its id if it exists.
    pub(crate) thread: Option<(String, ThreadId)>,
    /// Number of the last event that the editor has seen.
    pub(crate) after: u64,
}

impl SessionTask {
    /// Starts the task, which begins when the sender of `begin` is dropped. `stop` ends it without
    /// touching the session.
    pub(crate) async fn start(
        opened: OpenedSession,
        editor: Editor,
        stop: CancellationToken,
        begin: oneshot::Receiver<()>,
    ) -> Result<SessionHandle, StoreError> {
        let Editor {
            connection,
            client,
            caller,
        } = editor;
        let OpenedSession {
            id,
            engine,
            project,
            transcript,
            settings,
            thread,
            after,
        } = opened;
        let events = engine.follow(&id, after).await?.keep_running();
        let (thread_key, thread) = match thread {
            Some((key, id)) => (key, Some(id)),
            None => (THREAD.to_owned(), None),
        };
        let task = Self {
            name: AcpSessionId::new(id.as_str()),
            id,
            engine,
            project,
            connection,
            client,
            caller,
            transcript,
            thread_key,
            thread,
            prompts: Vec::new(),
            asked: HashMap::new(),
            permissions: FuturesUnordered::new(),
            question: None,
            settings,
            role: None,
            commands: FuturesUnordered::new(),
            commands_cancelled: CancellationToken::new(),
            tasks: HashMap::new(),
            task_events: mpsc::unbounded_channel(),
            output_due: None,
            release_due: Some(Instant::now() + IDLE_TIME),
        };
        let (commands, receiver) = mpsc::unbounded_channel();
        // The files of a remote editor are not those of this machine.
        let files = editor_files(&task.connection, &task.name, &task.client);
        let files = files.filter(|_| task.caller.is_none());
        let editor = files.map(|files| task.engine().attach_editor(&task.id, files));
        let work = Box::pin(async move {
            let _attached = editor;
            let _ = begin.await;
            Box::pin(task.run(receiver, events)).await;
        });
        tokio::spawn(async move { stop.run_until_cancelled(work).await });
        Ok(SessionHandle { commands })
    }

    async fn run(mut self, mut commands: UnboundedReceiver<Command>, mut events: EventStream) {
        let available = AvailableCommandsUpdate::new(slash_command::available());
        self.send(SessionUpdate::AvailableCommandsUpdate(available));
        self.ask_pending_gates().await;
        let mut failures = 0;
        loop {
            let output = sleep_until(self.output_due);
            let release = sleep_until(self.release_due);
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::Close(done)) => {
                        let _ = done.send(self.close().await);
                        return;
                    }
                    Some(command) => self.on_command(command).await,
                    None => return,
                },
                Some(answer) = self.permissions.next() => self.on_answer(answer).await,
                Some(ended) = self.commands.next() => self.on_command_ended(ended).await,
                Some(kind) = self.task_events.1.recv() => self.on_gate_event(kind).await,
                notice = events.next() => match notice {
                    Ok(Some(notice)) => {
                        failures = 0;
                        self.on_event(notice).await;
                    }
                    // The session was deleted, or the engine shuts down.
                    Ok(None) => return self.cancel_prompts(),
                    Err(error) if failures < MAX_FAILURES => {
                        tracing::warn!(session = self.id.as_str(), %error, "cannot read events");
                        failures += 1;
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                    Err(error) => return self.fail_prompts(&error),
                },
                () = output => self.send_output(),
                () = release => {
                    self.release().await;
                    continue;
                }
            }
            self.release_due = Some(Instant::now() + IDLE_TIME);
        }
    }

    async fn on_command(&mut self, command: Command) {
        match command {
            Command::Prompt { content, responder } => self.prompt(content, *responder).await,
            Command::Cancel => self.abort().await,
            Command::Set { choice, done } => {
                let chosen = self.choose(choice).await;
                let _ = done.send(chosen.map(|()| self.settings.clone()));
            }
            Command::Close(_) => {}
        }
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Sends an update to the editor. If it is gone, the connection ends by itself.
    fn send(&self, update: SessionUpdate) {
        let notification = SessionNotification::new(self.name.clone(), update);
        let _ = self.connection.send_notification(notification);
    }

    fn send_all(&self, updates: impl IntoIterator<Item = SessionUpdate>) {
        for update in updates {
            self.send(update);
        }
    }

    /// Sends the new output of running tools.
    fn send_output(&mut self) {
        self.output_due = None;
        let updates = self.transcript.take_output();
        self.send_all(updates);
    }

    async fn choose(&mut self, choice: Choice) -> Result<(), Error> {
        match choice {
            Choice::Model(name) => self.choose_model(&name).map_err(invalid),
            Choice::Mode(mode) => {
                let kind = CommandKind::SetPermissionMode { mode };
                let changed = self.engine().command(&self.id, None, kind).await;
                changed.map_err(store_error)?;
                // The event may follow later.
                self.settings.mode = mode;
                Ok(())
            }
        }
    }

    /// Tells the editor what is chosen.
    fn send_settings(&self) {
        let options = self.settings.options(&self.project.models);
        self.send(SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(
            options,
        )));
    }

    /// Stops the work of the thread, and clears its queue.
    async fn abort(&mut self) {
        self.question = None;
        std::mem::take(&mut self.commands_cancelled).cancel();
        let aborted = self
            .engine()
            .command(&self.id, Some(&self.thread_key), CommandKind::Abort)
            .await;
        match aborted {
            Ok(()) => {}
            // Nothing has ever run.
            Err(StoreError::NotFound { .. }) => self.cancel_prompts(),
            Err(error) => self.send(note(&format!("**Error:** cannot cancel: {error}"))),
        }
    }

    /// Lets other processes open the session if nothing goes on in it. The next prompt opens it
    /// here again, unless another process has it; then that one works on the prompt.
    async fn release(&mut self) {
        self.release_due = None;
        let is_waited_for =
            !self.prompts.is_empty() || !self.commands.is_empty() || !self.permissions.is_empty();
        if is_waited_for {
            return;
        }
        if let Err(error) = self.engine().release_if_idle(&self.id).await {
            tracing::warn!(session = self.id.as_str(), %error, "cannot release the session");
        }
    }

    /// Stops the work and closes the session, so that another process can open it.
    async fn close(&mut self) -> Result<(), StoreError> {
        self.abort().await;
        self.cancel_prompts();
        match self.engine().session(&self.id) {
            Some(open) => open.close().await,
            None => Ok(()),
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
