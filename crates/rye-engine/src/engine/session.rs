//! An open session.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rye_protocol::{
    Batch, Entry, EntryId, Event, EventKind, Gate, Op, Phase, PromptId, QueueMode, QueuedPrompt,
    Session as SessionData, SessionId, SessionStatus, StatusKind, Thread, ThreadId, ThreadStatus,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::lifecycle::SessionParts;
use super::{Budget, Inner, ParentBudget, Prompt, Shared, ThreadChange, ThreadView};
use crate::audit;
use crate::bus::{Bus, Notice, Subscription};
use crate::machine::Machine;
use crate::runner::{Runner, ThreadCommand};
use crate::sandbox::Sandbox;
use crate::store::{CommandKind, InboxMessage, Lease, SessionSnapshot, StoreError};

/// Key of the thread for prompts that name none.
pub(crate) const DEFAULT: &str = "default";

/// An open session. Cheap to clone; all clones share one session.
#[derive(Clone)]
pub struct Session {
    pub(super) inner: Arc<OpenSession>,
}

pub(super) struct OpenSession {
    pub(super) shared: Arc<Shared>,
    threads: Mutex<HashMap<String, ThreadHandle>>,
    /// Locked while a thread is created, so that each is started once.
    pub(super) creating_thread: tokio::sync::Mutex<()>,
    /// Locked while the inbox is drained, so that each command is applied once.
    pub(super) draining_inbox: tokio::sync::Mutex<()>,
}

/// Handle of a running thread.
#[derive(Clone)]
pub(super) struct ThreadHandle {
    id: ThreadId,
    /// Queue mode of prompts that set none.
    mode: QueueMode,
    /// Whether it accepts no prompts.
    archived: bool,
    commands: mpsc::UnboundedSender<ThreadCommand>,
    status: Arc<Mutex<StatusKind>>,
}

impl ThreadHandle {
    pub(super) fn id(&self) -> &ThreadId {
        &self.id
    }

    /// The published status.
    pub(super) fn status(&self) -> StatusKind {
        *self.status.lock()
    }
}

impl Session {
    /// Commits a new session and opens it.
    pub(super) async fn create(
        inner: &Arc<Inner>,
        lease: Lease,
        data: SessionData,
        parts: SessionParts,
        parent: Option<ParentBudget>,
    ) -> Result<Self, StoreError> {
        let session = Self::new(inner, lease, data.clone(), parts, parent);
        let mut batch = Batch::default();
        batch.push(Op::PutSession(Arc::new(data)));
        let shared = &session.inner.shared;
        batch.ops.extend(shared.seal_rows(&batch));
        shared.store.commit(&shared.lease, batch).await?;
        Ok(session)
    }

    /// Seals everything that was committed before the engine had a key.
    async fn seal_unsealed(&self) -> Result<(), StoreError> {
        let shared = self.shared();
        let Some(key) = &shared.key else {
            return Ok(());
        };
        let Some(archive) = shared.store.archive(self.id()).await? else {
            return Ok(());
        };
        let mut events = archive.events.iter();
        if events.any(|event| matches!(event.kind, EventKind::Sealed { .. })) {
            return Ok(());
        }
        let kind = audit::seal_archive(&archive, shared.clock.now(), key);
        let ops = vec![Op::Event(None, Arc::new(kind))];
        let last = shared.store.commit(&shared.lease, Batch { ops }).await?;
        shared.bus.set_last_sequence(last);
        Ok(())
    }

    /// Starts the stored threads.
    pub(super) async fn restore(&self, record: SessionSnapshot) -> Result<(), StoreError> {
        self.inner.shared.bus.set_last_sequence(record.sequence);
        let signed = record.threads.iter().filter(|it| !it.seal.is_empty());
        if let Some(last) = signed.max_by_key(|thread| thread.updated_at) {
            self.inner.shared.set_last_seal(&last.seal);
        } else {
            self.seal_unsealed().await?;
        }
        for thread in record.threads {
            let own = record
                .prompts
                .iter()
                .filter(|prompt| prompt.thread == thread.id);
            // Prompts posted while no host ran have no position in the queue yet.
            let (mut posted, prompts): (Vec<_>, Vec<_>) =
                own.cloned().partition(QueuedPrompt::needs_position);
            posted.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
            let turn = thread.turn.as_ref();
            let belongs_to_turn = |gate: &&Gate| {
                let origin = &gate.origin;
                origin.thread == thread.id && turn.is_some_and(|turn| turn.prompt == origin.prompt)
            };
            let gates = record
                .gates
                .iter()
                .filter(belongs_to_turn)
                .cloned()
                .collect();
            let running = self.start_thread(thread, prompts, gates).await?;
            for prompt in posted {
                self.send(&running, ThreadCommand::PostedPrompt(Box::new(prompt)))?;
            }
        }
        // Return when the threads are running, not about to.
        for running in self.all_threads() {
            self.barrier(&running).await?;
        }
        Ok(())
    }

    /// Creates the session state without starting threads.
    pub(super) fn new(
        inner: &Arc<Inner>,
        lease: Lease,
        data: SessionData,
        parts: SessionParts,
        parent: Option<ParentBudget>,
    ) -> Self {
        let SessionParts {
            setup,
            compaction,
            opened,
        } = parts;
        let sandbox = opened.sandbox;
        let tools = setup.tools(&data.settings).for_sandbox(&*sandbox);
        let model = data.model.clone();
        let shared = Shared {
            store: Arc::clone(&inner.store),
            lease,
            tools: Arc::new(tools),
            sandbox,
            clock: Arc::clone(&inner.clock),
            collect_window: inner.collect_window,
            compaction,
            role: data.role.clone(),
            model: model.unwrap_or_else(|| setup.models.default_name()),
            setup,
            bus: Bus::new(inner.events_tx.clone(), data.user_id.as_deref()),
            closed: CancellationToken::new(),
            failure: Mutex::new(None),
            paused: AtomicBool::new(data.status == SessionStatus::Paused),
            budget: Arc::new(Budget::new(data.limits, data.usage, parent)),
            data: Mutex::new(Arc::new(data)),
            writing: tokio::sync::Mutex::default(),
            engine: Arc::downgrade(inner),
            metrics: Arc::clone(&inner.metrics),
            key: inner.key.clone(),
            last_seal: Mutex::default(),
            background: Mutex::default(),
        };
        Self {
            inner: Arc::new(OpenSession {
                shared: Arc::new(shared),
                threads: Mutex::default(),
                creating_thread: tokio::sync::Mutex::default(),
                draining_inbox: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// Id of the session.
    pub fn id(&self) -> &SessionId {
        &self.inner.shared.lease.session
    }

    /// Stored status of the session.
    pub fn status(&self) -> SessionStatus {
        self.data().status
    }

    /// The sandbox of the session's tools.
    pub fn sandbox(&self) -> &Arc<dyn Sandbox> {
        &self.inner.shared.sandbox
    }

    pub(crate) fn data(&self) -> Arc<SessionData> {
        self.inner.shared.data()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Prevents threads from starting new work.
    pub(super) fn suspend(&self) {
        self.inner.shared.paused.store(true, Ordering::Release);
    }

    /// Lets threads start new work again, unless the session is paused.
    pub(super) fn end_suspension(&self) -> Result<(), StoreError> {
        let is_paused = self.status() == SessionStatus::Paused;
        let shared = &self.inner.shared;
        shared.paused.store(is_paused, Ordering::Release);
        for running in self.all_threads() {
            self.send(&running, ThreadCommand::Wake)?;
        }
        Ok(())
    }

    /// Queues a prompt and returns its id once it is committed.
    pub async fn prompt(&self, prompt: impl Into<Prompt>) -> Result<PromptId, StoreError> {
        let prompt = prompt.into();
        let key = prompt.thread.as_deref().unwrap_or(DEFAULT);
        let running = self.thread_for(key).await?;
        if running.archived {
            return Err(StoreError::Archived(key.to_owned()));
        }
        let has_id = prompt.id.is_some();
        let prompt = self.queued_prompt(prompt, &running);
        if has_id {
            return self.post(&running, prompt).await;
        }
        let (reply, answer) = oneshot::channel();
        let prompt = Box::new(prompt);
        self.send(&running, ThreadCommand::Prompt { prompt, reply })?;
        answer.await.map_err(|_| self.close_reason())?
    }

    /// Posts a prompt with an id chosen by the caller; sending it again has no effect.
    async fn post(
        &self,
        running: &ThreadHandle,
        prompt: QueuedPrompt,
    ) -> Result<PromptId, StoreError> {
        let id = prompt.id.clone();
        let shared = &self.inner.shared;
        let post = InboxMessage::prompt(prompt);
        shared.store.post(self.id(), post).await?;
        self.drain_inbox().await?;
        self.barrier(running).await?;
        Ok(id)
    }

    /// Waits until a thread has processed all earlier commands.
    async fn barrier(&self, running: &ThreadHandle) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(running, ThreadCommand::Barrier(reply))?;
        answer.await.map_err(|_| self.close_reason())
    }

    /// Aborts the turn and clears the queue of one thread, or of all.
    pub async fn abort(&self, thread: Option<&str>) -> Result<(), StoreError> {
        self.command(thread, CommandKind::Abort).await
    }

    /// Pauses one thread, or the whole session: nothing new is started.
    pub async fn pause(&self, thread: Option<&str>) -> Result<(), StoreError> {
        match thread {
            Some(_) => self.command(thread, CommandKind::Pause).await,
            None => self.set_status_recursive(SessionStatus::Paused).await,
        }
    }

    /// Resumes one thread, or the whole session.
    pub async fn resume(&self, thread: Option<&str>) -> Result<(), StoreError> {
        match thread {
            Some(_) => self.command(thread, CommandKind::Resume).await,
            None => self.set_status_recursive(SessionStatus::Running).await,
        }
    }

    /// Events after a sequence number; 0 for all.
    pub fn subscribe(&self, after: u64) -> Subscription {
        let shared = &self.inner.shared;
        let store = Arc::clone(&shared.store);
        let closed = shared.closed.clone();
        shared
            .bus
            .subscribe(store, self.id().clone(), after, closed)
    }

    /// The threads and what they do.
    pub fn threads(&self) -> Vec<ThreadView> {
        let threads = self.inner.threads.lock();
        let view = |(key, running): (&String, &ThreadHandle)| ThreadView {
            id: running.id.clone(),
            key: key.clone(),
            status: running.status(),
        };
        let mut all: Vec<_> = threads.iter().map(view).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// An entry; `None` if it does not exist.
    pub async fn entry(&self, id: &EntryId) -> Result<Option<Entry>, StoreError> {
        self.shared().store.entry(self.id(), id).await
    }

    /// Entries of a thread, in commit order. An unreadable entry fails the session before the error
    /// is returned.
    pub async fn entries(
        &self,
        thread: &ThreadId,
        after: Option<&EntryId>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let shared = &self.inner.shared;
        let read = shared.store.entries(self.id(), thread, after, limit).await;
        if let Err(error @ (StoreError::Unreadable(_) | StoreError::Damaged(_))) = &read {
            shared.fail(Some(thread), error).await;
        }
        read
    }

    /// Stops all threads and releases the session.
    pub async fn close(&self) -> Result<(), StoreError> {
        let shared = &self.inner.shared;
        shared.closed.cancel();
        let engine = shared.engine.upgrade();
        if let Some(engine) = &engine {
            engine.workspaces.forget(self.id());
            for child in engine.open_children(self.id()) {
                Box::pin(child.close()).await?;
            }
        }
        let released = shared.store.release(&shared.lease).await;
        if let Some(engine) = &engine {
            engine.forget(shared);
        }
        released
    }

    pub(crate) fn is_open(&self) -> bool {
        let shared = &self.inner.shared;
        !shared.closed.is_cancelled() && shared.check_failure().is_ok()
    }

    /// Sets the status of this session and its open children.
    async fn set_status_recursive(&self, status: SessionStatus) -> Result<(), StoreError> {
        self.set_status(status, None).await?;
        self.set_status_of_children(status).await
    }

    /// Sets the status of the open children of this session.
    pub(super) async fn set_status_of_children(
        &self,
        status: SessionStatus,
    ) -> Result<(), StoreError> {
        let engine = self.inner.shared.engine.upgrade();
        for child in engine
            .map(|engine| engine.open_children(self.id()))
            .unwrap_or_default()
        {
            Box::pin(child.set_status_recursive(status)).await?;
        }
        Ok(())
    }

    /// Changes the stored session in one commit.
    pub(super) async fn change_data(
        &self,
        change: impl FnOnce(&mut SessionData),
    ) -> Result<(), StoreError> {
        self.change_data_with([], change).await
    }

    /// The same, together with other operations.
    pub(super) async fn change_data_with(
        &self,
        ops: impl IntoIterator<Item = Op>,
        change: impl FnOnce(&mut SessionData),
    ) -> Result<(), StoreError> {
        let shared = &self.inner.shared;
        let _guard = shared.writing.lock().await;
        let mut data = Arc::unwrap_or_clone(shared.data());
        change(&mut data);
        data.updated_at = shared.clock.now();
        let data = Arc::new(data);
        let mut batch = Batch::default();
        batch.push(Op::PutSession(Arc::clone(&data)));
        batch.ops.extend(ops);
        batch.ops.extend(shared.seal_rows(&batch));
        shared.store.commit(&shared.lease, batch).await?;
        shared.set_data(data);
        Ok(())
    }

    /// Sets the status, and applies an operation in the same commit.
    pub(super) async fn set_status(
        &self,
        status: SessionStatus,
        op: Option<Op>,
    ) -> Result<(), StoreError> {
        let shared = &self.inner.shared;
        self.change_data_with(op, |data| data.status = status)
            .await?;
        let paused = status == SessionStatus::Paused;
        shared.paused.store(paused, Ordering::Release);
        for running in self.all_threads() {
            self.send(&running, ThreadCommand::Wake)?;
        }
        Ok(())
    }

    /// The thread with a key, created if it does not exist.
    pub(super) async fn thread_for(&self, key: &str) -> Result<ThreadHandle, StoreError> {
        let _guard = self.inner.creating_thread.lock().await;
        if let Ok(running) = self.thread_by_key(key) {
            return Ok(running);
        }
        let shared = &self.inner.shared;
        let now = shared.clock.now();
        let thread = Thread::new(self.id().clone(), key, now);
        let mut batch = Batch::default();
        batch.push(Op::PutThread(Arc::new(thread.clone())));
        let kind = EventKind::ThreadStart {
            key: key.to_owned(),
        };
        batch.push_event(&thread.id, kind.clone());
        let committed = shared.store.commit(&shared.lease, batch).await;
        if let Err(StoreError::Conflict { .. }) = committed {
            // A posted prompt has created it.
            let record = shared.store.snapshot(self.id()).await?;
            let threads = record.map(|record| record.threads).unwrap_or_default();
            if let Some(thread) = threads.into_iter().find(|it| it.key == key) {
                return self.start_thread(thread, Vec::new(), Vec::new()).await;
            }
        }
        let number = committed?;
        let event = Event {
            sequence: Some(number),
            session: self.id().clone(),
            thread: Some(thread.id.clone()),
            at: now,
            kind,
        };
        shared.bus.publish(Notice { event, entry: None });
        self.start_thread(thread, Vec::new(), Vec::new()).await
    }

    /// Starts a thread's runner.
    pub(super) async fn start_thread(
        &self,
        thread: Thread,
        prompts: Vec<QueuedPrompt>,
        gates: Vec<Gate>,
    ) -> Result<ThreadHandle, StoreError> {
        let shared = &self.inner.shared;
        let calls = thread.turn.as_ref().and_then(|turn| match &turn.phase {
            Phase::Tools { entry, calls } => Some((entry.clone(), calls.clone())),
            Phase::Model => None,
        });
        let mut calls_entry = None;
        if let Some((entry, calls)) = calls {
            // Kill what a dead host left running before anything else starts.
            for process in calls.iter().flat_map(|call| &call.processes) {
                shared.sandbox.kill(&process.0).await;
            }
            calls_entry = shared.store.entry(self.id(), &entry).await?;
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let running = ThreadHandle {
            id: thread.id.clone(),
            mode: thread.mode,
            archived: thread.status == ThreadStatus::Archived,
            commands: sender.clone(),
            status: Arc::new(Mutex::new(StatusKind::Idle)),
        };
        let key = thread.key.clone();
        let machine = Machine::new(thread, prompts, gates, calls_entry.as_ref());
        let status = Arc::clone(&running.status);
        let runner = Runner::new(Arc::clone(shared), machine, (sender, receiver), status);
        tokio::spawn(runner.run());
        let mut threads = self.inner.threads.lock();
        threads.insert(key, running.clone());
        Ok(running)
    }

    fn queued_prompt(&self, prompt: Prompt, running: &ThreadHandle) -> QueuedPrompt {
        let (session, thread) = (self.id().clone(), running.id.clone());
        let now = self.inner.shared.clock.now();
        let new = QueuedPrompt::new(session, thread, String::new(), now);
        prompt.into_queued(new, running.mode)
    }

    /// Updates the handle after a committed change.
    pub(super) fn update_handle(&self, key: &str, change: &ThreadChange) {
        let mut threads = self.inner.threads.lock();
        if let Some(running) = threads.get_mut(key) {
            running.mode = change.mode.unwrap_or(running.mode);
            running.archived = change.archived.unwrap_or(running.archived);
        }
    }

    /// The running thread with a key.
    pub(super) fn thread_by_key(&self, key: &str) -> Result<ThreadHandle, StoreError> {
        let threads = self.inner.threads.lock();
        let running = threads.get(key).cloned();
        running.ok_or_else(|| StoreError::NotFound {
            kind: "thread",
            id: key.to_owned(),
        })
    }

    /// The running thread with an id.
    pub(super) fn thread_by_id(&self, id: &ThreadId) -> Option<ThreadHandle> {
        self.all_threads()
            .into_iter()
            .find(|running| running.id == *id)
    }

    pub(super) fn all_threads(&self) -> Vec<ThreadHandle> {
        let threads = self.inner.threads.lock();
        threads.values().cloned().collect()
    }

    pub(super) fn send(
        &self,
        running: &ThreadHandle,
        command: ThreadCommand,
    ) -> Result<(), StoreError> {
        self.inner.shared.check_failure()?;
        // Its threads may still be stopping.
        if !self.is_open() {
            return Err(self.close_reason());
        }
        running
            .commands
            .send(command)
            .map_err(|_| self.close_reason())
    }

    /// The error that stopped the session, if one did.
    pub(super) fn failure(&self) -> Option<StoreError> {
        self.inner.shared.check_failure().err()
    }

    /// Why the session is closed; meaningful once its events have ended.
    pub fn close_reason(&self) -> StoreError {
        match self.inner.shared.check_failure() {
            Err(error) => error,
            Ok(()) => StoreError::NotFound {
                kind: "open session",
                id: self.id().to_string(),
            },
        }
    }
}
