//! Runs: sessions that a graph or a single call drives, and the processes that execute them in the
//! background.
//!
//! A background run is recorded before its process starts: the first entry of its session is the
//! call. The process holds the lease of the session while it runs. Only the output of the process
//! is outside of the store, in a log that the user alone can read.

pub mod background;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lillux::durable;
use lillux::keys::SigningKey;
use lillux::process::Handle;
use lillux::watch::Watch;
use lillux::{PathContext as _, time};
use rye_engine::Decision;
use rye_engine::audit;
use rye_engine::protocol::{
    CallId, Entry, EntryKind, ErrorCode, ErrorInfo, EventKind, Gate, Message, Part, Purpose,
    Resolution, ResultStatus, Role, Run, RunStatus, Session, SessionId,
};
use rye_engine::record::{NewRecord, Recorder, now};
use rye_engine::store::{
    Claim, Holder, InboxMessage, PostOutcome, SessionFilter, SessionStore, StoreError,
};
use rye_graph::RunRecord;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::SqliteStore;
use crate::context::Context;
use crate::engine::{database, open_store, start_failure};
use crate::failure::Failure;
use crate::item_tools::model_text;
use crate::lookup::{find_id, not_found};

/// How long a run may be without a process before it counts as lost.
const STARTING: u64 = 10_000;

/// Number of sessions that are searched for runs.
const MAX_SESSIONS: usize = 10_000;

/// Id of the call and of the thread of a single call.
const CALL: &str = "call";

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// A process executes the run, or is about to.
    Running,
    /// The run waits for a decision.
    Waiting,
    /// The process died before the run ended.
    Lost,
    /// The run stopped.
    Ended(RunStatus),
}

impl RunState {
    /// Whether the run has not ended.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }
}

/// A run with the process that executes it.
#[derive(Debug, Clone)]
pub struct RunView {
    /// The session of the run.
    pub session: Session,
    /// What the run executes.
    pub run: Run,
    /// The process that executes it.
    pub holder: Option<Holder>,
    has_pending_gate: bool,
}

impl RunView {
    /// The run that a session records; `None` if it records none.
    pub fn of_session(session: &Session, holders: &[Holder], gates: &[Gate]) -> Option<Self> {
        let holder = holders.iter().find(|it| it.session == session.id);
        // A nested run belongs to the run whose id it continues.
        let nested = format!("{}.", session.id);
        let is_own = |gate: &SessionId| *gate == session.id || gate.as_str().starts_with(&nested);
        Some(Self {
            run: session.run.clone()?,
            holder: holder.cloned(),
            has_pending_gate: gates.iter().any(|gate| is_own(&gate.origin.session)),
            session: session.clone(),
        })
    }

    /// Id of the run.
    pub fn id(&self) -> &str {
        self.session.id.as_str()
    }

    /// Whether the run is a graph.
    pub fn is_graph(&self) -> bool {
        self.session.purpose == Purpose::Workflow
    }

    /// The project of the run.
    pub fn project(&self) -> &Path {
        Path::new(self.session.project.as_deref().unwrap_or_default())
    }

    /// The current state.
    pub fn state(&self) -> RunState {
        if self.run.status != RunStatus::Running {
            return RunState::Ended(self.run.status);
        }
        // The call of an MCP client waits without a process.
        let waits = self.has_pending_gate && (self.holder.is_some() || !self.is_graph());
        let is_new = self.run.node.is_none() && self.run.steps == 0;
        let age = now().0.saturating_sub(self.session.updated_at.0);
        match &self.holder {
            _ if waits => RunState::Waiting,
            Some(_) => RunState::Running,
            None if is_new && age < STARTING => RunState::Running,
            None => RunState::Lost,
        }
    }

    /// The name of the state, as used in JSON.
    pub fn state_name(&self) -> &'static str {
        match self.state() {
            RunState::Running => "running",
            RunState::Waiting => "waiting",
            RunState::Lost => "lost",
            RunState::Ended(status) => status.as_str(),
        }
    }

    /// The process that executes the run, if it is on this host.
    pub fn process(&self) -> Option<Handle> {
        self.holder.as_ref()?.process.as_ref()?.0.parse().ok()
    }
}

/// The runs of a user. All methods block.
pub struct Runs {
    store: Arc<SqliteStore>,
    key: Option<Arc<SigningKey>>,
    database: PathBuf,
    runtime: Runtime,
}

impl Runs {
    /// Opens the runs in the session store.
    pub fn open(context: &Context) -> Result<Self, Failure> {
        let database = database(context)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        Ok(Self {
            store: Arc::new(open_store(context)?),
            key: context.signing_key()?.cloned(),
            database,
            runtime: runtime.map_err(start_failure)?,
        })
    }

    /// The session store.
    pub fn store(&self) -> Arc<dyn SessionStore> {
        Arc::clone(&self.store) as Arc<dyn SessionStore>
    }

    /// Path of the output of a background run.
    pub fn log(&self, id: &str) -> PathBuf {
        self.logs().join(format!("{id}.log"))
    }

    fn logs(&self) -> PathBuf {
        self.database.with_file_name("runs")
    }

    /// Watches the commits to the session store and the output of a background run.
    pub fn watch(&self, id: &str) -> Result<Watch, Failure> {
        let mut write_ahead_log = self.database.clone().into_os_string();
        write_ahead_log.push("-wal");
        let paths = [self.database.clone(), write_ahead_log.into(), self.log(id)];
        // The directory of the logs exists only after the first background run.
        let existing = if self.logs().is_dir() {
            &paths[..]
        } else {
            &paths[..2]
        };
        Watch::new(existing).map_err(|error| Failure::failed("watch", error))
    }

    /// Records a run that a background process is about to execute, and creates its log. Returns
    /// its id, which begins with the time.
    pub fn create(
        &self,
        purpose: Purpose,
        item: &str,
        parameters: &Value,
        project: &Path,
    ) -> Result<String, Failure> {
        loop {
            let id = time::sortable_stamp();
            let session: SessionId = id
                .parse()
                .map_err(|error| Failure::failed("bad_run", error))?;
            // Otherwise another run has started in the same instant.
            if self.create_as(&session, purpose, item, parameters, project)? {
                return Ok(id);
            }
        }
    }

    /// Like [`create`](Self::create), with an id chosen by the caller. Returns whether there was no
    /// session with the id.
    pub fn create_as(
        &self,
        id: &SessionId,
        purpose: Purpose,
        item: &str,
        parameters: &Value,
        project: &Path,
    ) -> Result<bool, Failure> {
        durable::create_dir(&self.logs(), 0o700)?;
        let new = NewRecord {
            id: id.clone(),
            purpose,
            run: Run::new(item),
            project: project.to_string_lossy().into_owned(),
            parent: None,
            depth: 0,
            thread: if purpose == Purpose::Workflow {
                "graph"
            } else {
                CALL
            },
        };
        let call = Part::ToolCall {
            call_id: call_id(),
            tool: item.to_owned(),
            args: parameters.clone(),
        };
        let written = self.runtime.block_on(async {
            let mut recorder = Recorder::create(self.store(), new, self.key.clone()).await?;
            recorder.append(EntryKind::Message(Message::new(Role::User, vec![call])));
            recorder.commit().await?;
            recorder.release().await
        });
        match written {
            Err(StoreError::Conflict { .. } | StoreError::InUse { .. }) => Ok(false),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(true),
        }
    }

    /// Marks a stopped graph run as about to continue.
    pub fn restart(&self, id: &SessionId) -> Result<(), Failure> {
        durable::create_dir(&self.logs(), 0o700)?;
        let marked = self.runtime.block_on(async {
            let recorder = Recorder::open(self.store(), id, self.key.clone()).await?;
            if let Some(mut recorder) = recorder {
                recorder.set_run(|run| {
                    run.status = RunStatus::Running;
                    (run.node, run.steps) = (None, 0);
                });
                recorder.commit().await?;
                recorder.release().await?;
            }
            Ok::<_, StoreError>(())
        });
        Ok(marked?)
    }

    /// All runs, newest first, without nested ones.
    pub fn all(&self) -> Result<Vec<RunView>, Failure> {
        let filter = SessionFilter {
            limit: MAX_SESSIONS,
            ..SessionFilter::default()
        };
        let found = self.runtime.block_on(async {
            let sessions = self.store.sessions(filter).await?;
            let holders = self.store.holders(None).await?;
            let gates = self.store.pending_gates(None).await?;
            Ok::<_, StoreError>((sessions, holders, gates))
        });
        let (sessions, holders, gates) = found?;
        let sessions = sessions.into_iter().filter(|it| it.parent.is_none());
        let mut runs: Vec<_> = sessions
            .filter_map(|session| RunView::of_session(&session, &holders, &gates))
            .collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.session.created_at));
        Ok(runs)
    }

    /// Finds a run by its id, or a unique prefix or suffix.
    pub fn find(&self, part: &str) -> Result<RunView, Failure> {
        const LIST: &str = "rye run list";
        let all = self.all()?;
        let id = find_id(all.iter().map(RunView::id), part, "run", LIST)?.to_owned();
        let found = all.into_iter().find(|run| run.id() == id);
        found.ok_or_else(|| not_found("run", part, LIST))
    }

    /// The history of a graph run; `None` if it has not started yet.
    pub fn graph(&self, run: &RunView) -> Result<Option<RunRecord>, Failure> {
        let loaded = RunRecord::load(&*self.store, &run.session.id);
        Ok(self.runtime.block_on(loaded)?)
    }

    /// The call and, if it has ended, the result of a single call.
    pub fn call(&self, run: &RunView) -> Result<(Value, Option<Value>), Failure> {
        let entries = self.runtime.block_on(async {
            let snapshot = self.store.snapshot(&run.session.id).await?;
            let thread = snapshot.and_then(|it| it.threads.into_iter().next());
            match thread.and_then(|thread| thread.leaf) {
                Some(leaf) => self.store.path(&run.session.id, &leaf).await,
                None => Ok(Vec::new()),
            }
        });
        Ok(call_and_result(entries?))
    }

    /// Deletes a run, its nested runs and its log.
    pub fn remove(&self, run: &RunView) -> Result<(), Failure> {
        let removed = self.runtime.block_on(async {
            let mut ids = vec![run.session.id.clone()];
            let mut leases = Vec::new();
            while let Some(id) = ids.pop() {
                let children = SessionFilter {
                    parent: Some(id.clone()),
                    limit: MAX_SESSIONS,
                    ..SessionFilter::default()
                };
                let children = self.store.sessions(children).await?;
                ids.extend(children.into_iter().map(|it| it.id));
                leases.push(self.store.claim(&id, Claim::IfFree).await?);
            }
            self.store.remove(&leases).await
        });
        removed?;
        let log = self.log(run.id());
        match fs::remove_file(&log) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => Ok(removed.at("remove", &log)?),
        }
    }

    /// Decides about a gate of a run, signed with the user's key. The answer is valid only with a
    /// key.
    pub fn decide(&self, gate: &Gate, decision: Decision) -> Result<PostOutcome, Failure> {
        let mut resolution = Resolution {
            action: decision.action,
            value: decision.value,
            by: decision.by,
            at: now(),
            source: decision.source,
            receipt: None,
        };
        if let Some(key) = &self.key {
            resolution.receipt = Some(Box::new(audit::receipt(gate, &resolution, key)));
        }
        let message = InboxMessage::Resolve {
            gate: gate.id.clone(),
            resolution,
        };
        let posted = self.store.post(&gate.origin.session, message);
        Ok(self.runtime.block_on(posted)?)
    }

    /// Records the end of a single call whose process was killed.
    pub fn end_killed(&self, run: &RunView, result: &Value) -> Result<(), Failure> {
        let ended = self.runtime.block_on(async {
            let opened = CallRun::open(self.store(), &run.session.id, self.key.clone());
            match opened.await? {
                Some(call) => call.end(RunStatus::Cancelled, result).await,
                None => Ok(()),
            }
        });
        Ok(ended?)
    }

    /// Takes over a recorded call to execute it.
    pub fn start_call(&self, run: &RunView) -> Result<CallRun, Failure> {
        let opened = self.runtime.block_on(async {
            let opened = CallRun::open(self.store(), &run.session.id, self.key.clone());
            let Some(mut call) = opened.await? else {
                return Ok(None);
            };
            call.start().await?;
            Ok::<_, StoreError>(Some(call))
        });
        opened?.ok_or_else(|| not_found("run", run.id(), "rye run list"))
    }

    /// Runs a future to its end.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

/// A recorded call that this process executes.
#[derive(Debug)]
pub struct CallRun {
    recorder: Recorder,
    call: CallId,
    tool: String,
}

impl CallRun {
    async fn open(
        store: Arc<dyn SessionStore>,
        id: &SessionId,
        key: Option<Arc<SigningKey>>,
    ) -> Result<Option<Self>, StoreError> {
        let recorder = Recorder::open(store, id, key).await?;
        Ok(recorder.map(|recorder| Self::new(recorder, call_id())))
    }

    /// The call with this id in a claimed session.
    pub(crate) fn new(recorder: Recorder, call: CallId) -> Self {
        let run = recorder.session().run.as_ref();
        Self {
            tool: run.map(|run| run.item.clone()).unwrap_or_default(),
            call,
            recorder,
        }
    }

    /// Records that the call starts.
    pub(crate) async fn start(&mut self) -> Result<(), StoreError> {
        self.recorder.set_run(|run| run.steps = 1);
        self.recorder.event(EventKind::ToolStart {
            call: self.call.clone(),
            tool: self.tool.clone(),
        });
        self.recorder.commit().await
    }

    /// A future that ends when a cancellation of the run is requested.
    pub fn abort_requested(&self) -> impl Future<Output = ()> + Send + use<> {
        self.recorder.abort_requested()
    }

    /// Whether a cancellation of the run was requested.
    pub async fn is_aborted(&self) -> Result<bool, StoreError> {
        self.recorder.is_aborted().await
    }

    /// Records the result and releases the session.
    pub async fn end(mut self, status: RunStatus, result: &Value) -> Result<(), StoreError> {
        let outcome = match status {
            RunStatus::Completed => ResultStatus::Success,
            RunStatus::Cancelled | RunStatus::Interrupted => ResultStatus::Aborted,
            _ => ResultStatus::Error,
        };
        let error = result["error"]["message"].as_str();
        let part = Part::ToolResult {
            call_id: self.call.clone(),
            tool: self.tool.clone(),
            status: outcome,
            text: error.map_or_else(|| model_text(&result["data"]), str::to_owned),
            data: result.clone(),
            error: error.map(|message| ErrorInfo::new(ErrorCode::ToolFailed, message)),
            elided: false,
        };
        let message = Message::new(Role::Tool, vec![part]);
        self.recorder.append(EntryKind::Message(message));
        self.recorder.event(EventKind::ToolEnd {
            call: self.call.clone(),
            status: outcome,
        });
        self.recorder.set_run(|run| run.status = status);
        self.recorder.commit().await?;
        self.recorder.release().await
    }
}

fn call_id() -> CallId {
    CallId::try_from(CALL.to_owned()).unwrap_or_else(|_| CallId::new())
}

fn call_and_result(entries: Vec<Entry>) -> (Value, Option<Value>) {
    let (mut call, mut result) = (Value::Null, None);
    for entry in entries {
        let EntryKind::Message(message) = entry.kind else {
            continue;
        };
        for part in message.parts {
            match part {
                Part::ToolCall { args, .. } => call = args,
                Part::ToolResult { data, .. } => result = Some(data),
                _ => {}
            }
        }
    }
    (call, result)
}

/// How long a cancelled process has before it is killed.
pub const GRACE: Duration = Duration::from_secs(3);
