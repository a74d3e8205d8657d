//! A session that is open here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rye_protocol::{
    Batch, Entry, EntryId, Event, EventKind, Gate, Millis, Op, Phase, PromptId, PromptStatus,
    QueueMode, QueuedPrompt, Session as SessionData, SessionId, SessionStatus, StatusKind, Thread,
    ThreadId, ThreadStatus, Usage,
};
use serde_json::Map;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Above, Budget, Inner, Prompt, Shared, ThreadChange, ThreadView};
use crate::audit;
use crate::bus::{Bus, Notice, Subscription};
use crate::machine::{Machine, PostedOrder};
use crate::result::SCHEMA;
use crate::runner::{Mail, ROLE, Runner};
use crate::store::{CommandKind, InboxMessage, Lease, SessionCommand, SessionSnapshot, StoreError};

/// The key of the thread that prompts go to where they name none.
pub(crate) const DEFAULT: &str = "default";

/// A session that is open here. Cheap to clone: all clones are one session.
#[derive(Clone)]
pub struct Session {
    open: Arc<Open>,
}

struct Open {
    shared: Arc<Shared>,
    threads: Mutex<HashMap<String, Running>>,
    /// Held while a thread is made, so that a key has one.
    making: tokio::sync::Mutex<()>,
    /// Held while what others have posted is taken in, so that each order is given once.
    looking: tokio::sync::Mutex<()>,
}

/// A thread that is being moved.
#[derive(Clone)]
pub(super) struct Running {
    id: ThreadId,
    /// What becomes of prompts that do not say.
    mode: QueueMode,
    /// Whether it takes none.
    archived: bool,
    mail: mpsc::UnboundedSender<Mail>,
    status: Arc<Mutex<StatusKind>>,
}

impl Running {
    pub(super) fn id(&self) -> &ThreadId {
        &self.id
    }

    /// What it is doing.
    pub(super) fn status(&self) -> StatusKind {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Writes a new one down and opens it.
    pub(super) async fn create(
        inner: &Arc<Inner>,
        lease: Lease,
        data: SessionData,
        above: Option<Above>,
    ) -> Result<Self, StoreError> {
        let session = Self::new(inner, lease, data.clone(), above);
        let mut batch = Batch::default();
        batch.push(Op::PutSession(Arc::new(data)));
        let shared = &session.open.shared;
        batch.ops.extend(shared.seal_rows(&batch));
        shared.store.commit(&shared.lease, batch).await?;
        Ok(session)
    }

    /// Seals all that was written before there was a key.
    async fn seal_first(&self) -> Result<(), StoreError> {
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
        shared.bus.go_on(last);
        Ok(())
    }

    /// Lets the threads go on that were written down.
    pub(super) async fn restore(&self, record: SessionSnapshot) -> Result<(), StoreError> {
        self.open.shared.bus.go_on(record.sequence);
        let signed = record.threads.iter().filter(|it| !it.seal.is_empty());
        if let Some(last) = signed.max_by_key(|thread| thread.updated_at) {
            self.open.shared.sealed(&last.seal);
        } else {
            self.seal_first().await?;
        }
        for thread in record.threads {
            let own = record
                .prompts
                .iter()
                .filter(|prompt| prompt.thread == thread.id);
            // What was posted while no host was there has no place in the queue yet.
            let (mut posted, prompts): (Vec<_>, Vec<_>) =
                own.cloned().partition(QueuedPrompt::needs_position);
            posted.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
            let turn = thread.turn.as_ref();
            let of_turn = |gate: &&Gate| {
                let origin = &gate.origin;
                origin.thread == thread.id && turn.is_some_and(|turn| turn.prompt == origin.prompt)
            };
            let gates = record.gates.iter().filter(of_turn).cloned().collect();
            let running = self.move_thread(thread, prompts, gates).await?;
            for prompt in posted {
                self.send(&running, Mail::Posted(Box::new(prompt)))?;
            }
        }
        // Whoever has it finds its threads at work, not about to be.
        for running in self.all_running() {
            self.read(&running).await?;
        }
        Ok(())
    }

    /// One whose threads do not move yet.
    pub(super) fn new(
        inner: &Arc<Inner>,
        lease: Lease,
        data: SessionData,
        above: Option<Above>,
    ) -> Self {
        let model = data.model.clone();
        let shared = Shared {
            store: Arc::clone(&inner.store),
            lease,
            models: Arc::clone(&inner.models),
            tools: Arc::clone(&inner.tools),
            sandbox: Arc::clone(&inner.sandbox),
            clock: Arc::clone(&inner.clock),
            calls: inner.calls,
            collect: inner.collect,
            compaction: Arc::clone(&inner.compaction),
            guides: inner.guides.clone(),
            system: inner.system.clone(),
            role: data
                .metadata
                .get(ROLE)
                .and_then(|role| role.as_str())
                .map(str::to_owned),
            model: model.unwrap_or_else(|| inner.models.default_name()),
            bus: Bus::new(inner.told.clone(), data.user_id.as_deref()),
            closed: CancellationToken::new(),
            lost: Mutex::new(None),
            paused: AtomicBool::new(data.status == SessionStatus::Paused),
            budget: Arc::new(Budget::new(data.limits, data.usage, above)),
            redactor: inner.redactor.clone(),
            asks_for_more: inner.asks_for_more,
            data: Mutex::new(Arc::new(data)),
            writing: tokio::sync::Mutex::default(),
            engine: Arc::downgrade(inner),
            metrics: Arc::clone(&inner.metrics),
            key: inner.key.clone(),
            last_seal: Mutex::default(),
        };
        Self {
            open: Arc::new(Open {
                shared: Arc::new(shared),
                threads: Mutex::default(),
                making: tokio::sync::Mutex::default(),
                looking: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// Its id.
    pub fn id(&self) -> &SessionId {
        &self.open.shared.lease.session
    }

    /// How it stands.
    pub fn status(&self) -> SessionStatus {
        self.data().status
    }

    pub(crate) fn data(&self) -> Arc<SessionData> {
        self.open.shared.data()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.open.shared
    }

    /// Begins nothing from now on.
    pub(super) fn halt(&self) {
        self.open.shared.paused.store(true, Ordering::Release);
    }

    /// Asks something, and gives the id of what waits: it is written down by then.
    pub async fn prompt(&self, prompt: impl Into<Prompt>) -> Result<PromptId, StoreError> {
        let prompt = prompt.into();
        let key = prompt.thread.as_deref().unwrap_or(DEFAULT);
        let running = self.thread_for(key).await?;
        if running.archived {
            return Err(StoreError::Archived(key.to_owned()));
        }
        let named = prompt.id.is_some();
        let prompt = self.queued_prompt(prompt, &running);
        if named {
            return self.post(&running, prompt).await;
        }
        let (reply, answer) = oneshot::channel();
        let prompt = Box::new(prompt);
        self.send(&running, Mail::Prompt { prompt, reply })?;
        answer.await.map_err(|_| self.close_reason())?
    }

    /// A prompt with an id of the caller's is asked once, however often it is sent.
    async fn post(&self, running: &Running, prompt: QueuedPrompt) -> Result<PromptId, StoreError> {
        let id = prompt.id.clone();
        let shared = &self.open.shared;
        let post = InboxMessage::Prompt(Box::new(prompt));
        shared.store.post(self.id(), post).await?;
        self.look().await?;
        self.read(running).await?;
        Ok(id)
    }

    /// Waits until a thread has taken in all that was said to it so far.
    async fn read(&self, running: &Running) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(running, Mail::Read(reply))?;
        answer.await.map_err(|_| self.close_reason())
    }

    /// Ends what a thread does, and forgets what waits; of all threads where none is named.
    pub async fn abort(&self, thread: Option<&str>) -> Result<(), StoreError> {
        self.order(thread, CommandKind::Abort).await
    }

    /// Lets a thread begin nothing more, or the whole session.
    pub async fn pause(&self, thread: Option<&str>) -> Result<(), StoreError> {
        match thread {
            Some(_) => self.order(thread, CommandKind::Pause).await,
            None => self.set_status_of_all(SessionStatus::Paused).await,
        }
    }

    /// Lets it begin again.
    pub async fn resume(&self, thread: Option<&str>) -> Result<(), StoreError> {
        match thread {
            Some(_) => self.order(thread, CommandKind::Resume).await,
            None => self.set_status_of_all(SessionStatus::Running).await,
        }
    }

    /// Its events from behind a number on; from 0, all that ever were.
    pub fn subscribe(&self, after: u64) -> Subscription {
        let shared = &self.open.shared;
        let store = Arc::clone(&shared.store);
        let closed = shared.closed.clone();
        shared
            .bus
            .subscribe(store, self.id().clone(), after, closed)
    }

    /// Its threads.
    pub fn threads(&self) -> Vec<ThreadView> {
        let threads = self.open.threads.lock();
        let threads = threads.unwrap_or_else(PoisonError::into_inner);
        let view = |(key, running): (&String, &Running)| ThreadView {
            id: running.id.clone(),
            key: key.clone(),
            status: running.status(),
        };
        let mut all: Vec<_> = threads.iter().map(view).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// Entries of a thread, in the order in which they were written. A session whose entries
    /// cannot be read cannot go on, and that is written down before it is told.
    pub async fn entries(
        &self,
        thread: &ThreadId,
        after: Option<&EntryId>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let shared = &self.open.shared;
        let read = shared.store.entries(self.id(), thread, after, limit).await;
        if let Err(error @ StoreError::Unreadable(_)) = &read {
            shared.break_down(Some(thread), error).await;
        }
        read
    }

    /// Stops all threads where they are, and gives the session back.
    pub async fn close(&self) -> Result<(), StoreError> {
        let shared = &self.open.shared;
        shared.closed.cancel();
        let engine = shared.engine.upgrade();
        for child in engine
            .map(|engine| engine.open_children(self.id()))
            .unwrap_or_default()
        {
            Box::pin(child.close()).await?;
        }
        shared.store.release(&shared.lease).await
    }

    pub(crate) fn is_open(&self) -> bool {
        let shared = &self.open.shared;
        !shared.closed.is_cancelled() && shared.check().is_ok()
    }

    /// Takes in what others have posted.
    pub(super) async fn look(&self) -> Result<(), StoreError> {
        let shared = &self.open.shared;
        let _alone = self.open.looking.lock().await;
        let controls = shared.store.pending_commands(&shared.lease).await?;
        let record = shared.store.snapshot(self.id()).await?;
        let Some(record) = record else {
            return Ok(());
        };
        // What they wrote is told before what comes of it.
        shared.bus.others_wrote();
        for gate in record
            .gates
            .into_iter()
            .filter(|gate| !gate.status.is_pending())
        {
            if let Some(running) = self.running(&gate.origin.thread) {
                self.send(&running, Mail::Decided(Box::new(gate)))?;
            }
        }
        for prompt in record
            .prompts
            .into_iter()
            .filter(QueuedPrompt::needs_position)
        {
            if let Some(running) = self.running(&prompt.thread) {
                self.send(&running, Mail::Posted(Box::new(prompt)))?;
            }
        }
        for control in controls {
            self.carry_out(control).await?;
        }
        Ok(())
    }

    /// Gives an order to those whom it is for. It stands in the record until all of them
    /// have carried it out.
    async fn carry_out(&self, control: SessionCommand) -> Result<(), StoreError> {
        let named = control.thread.as_ref();
        let mut threads = self.all_running();
        threads.retain(|it| named.is_none_or(|id| it.id == *id));
        let alone = threads.len() == 1;
        let posted = PostedOrder {
            id: control.id.clone(),
            alone,
        };
        self.give(threads, control.kind, Some(&posted)).await?;
        if alone {
            return Ok(());
        }
        let shared = &self.open.shared;
        let mut batch = Batch::default();
        batch.push(Op::CompleteCommand(control.id));
        shared.store.commit(&shared.lease, batch).await.map(drop)
    }

    async fn order(&self, thread: Option<&str>, order: CommandKind) -> Result<(), StoreError> {
        let threads = match thread {
            Some(key) => vec![self.named(key)?],
            None => self.all_running(),
        };
        self.give(threads, order, None).await
    }

    /// Gives an order to threads, and waits until it is carried out.
    async fn give(
        &self,
        threads: Vec<Running>,
        order: CommandKind,
        posted: Option<&PostedOrder>,
    ) -> Result<(), StoreError> {
        let mut answers = Vec::new();
        for running in threads {
            let (reply, answer) = oneshot::channel();
            let posted = posted.cloned();
            let mail = Mail::CommandKind {
                order,
                posted,
                reply,
            };
            self.send(&running, mail)?;
            answers.push(answer);
        }
        for answer in answers {
            answer.await.map_err(|_| self.close_reason())??;
        }
        Ok(())
    }

    /// With its children.
    async fn set_status_of_all(&self, status: SessionStatus) -> Result<(), StoreError> {
        self.set_status(status).await?;
        let engine = self.open.shared.engine.upgrade();
        for child in engine
            .map(|engine| engine.open_children(self.id()))
            .unwrap_or_default()
        {
            Box::pin(child.set_status_of_all(status)).await?;
        }
        Ok(())
    }

    pub(super) async fn set_status(&self, status: SessionStatus) -> Result<(), StoreError> {
        let shared = &self.open.shared;
        let alone = shared.writing.lock().await;
        let data = Arc::new(SessionData {
            status,
            updated_at: shared.clock.now(),
            ..Arc::unwrap_or_clone(shared.data())
        });
        let mut batch = Batch::default();
        batch.push(Op::PutSession(Arc::clone(&data)));
        batch.ops.extend(shared.seal_rows(&batch));
        shared.store.commit(&shared.lease, batch).await?;
        shared.put(data);
        drop(alone);
        let paused = status == SessionStatus::Paused;
        shared.paused.store(paused, Ordering::Release);
        for running in self.all_running() {
            self.send(&running, Mail::Look)?;
        }
        Ok(())
    }

    /// The thread of a key, made if it is not there.
    pub(super) async fn thread_for(&self, key: &str) -> Result<Running, StoreError> {
        let _making = self.open.making.lock().await;
        if let Ok(running) = self.named(key) {
            return Ok(running);
        }
        let shared = &self.open.shared;
        let now = shared.clock.now();
        let thread = thread(self.id(), key, now);
        let mut batch = Batch::default();
        batch.push(Op::PutThread(Arc::new(thread.clone())));
        let key = key.to_owned();
        let kind = EventKind::ThreadStart { key };
        batch.push_event(&thread.id, kind.clone());
        let number = shared.store.commit(&shared.lease, batch).await?;
        let event = Event {
            sequence: Some(number),
            session: self.id().clone(),
            thread: Some(thread.id.clone()),
            at: now,
            kind,
        };
        shared.bus.tell(Notice { event, entry: None });
        self.move_thread(thread, Vec::new(), Vec::new()).await
    }

    async fn move_thread(
        &self,
        thread: Thread,
        prompts: Vec<QueuedPrompt>,
        gates: Vec<Gate>,
    ) -> Result<Running, StoreError> {
        let shared = &self.open.shared;
        let calls = thread.turn.as_ref().and_then(|turn| match &turn.phase {
            Phase::Tools { entry, calls } => Some((entry.clone(), calls.clone())),
            Phase::Model => None,
        });
        let mut of_calls = None;
        if let Some((entry, calls)) = calls {
            // What a dead host left running is ended before anything goes on.
            for process in calls.iter().flat_map(|call| &call.processes) {
                shared.sandbox.kill(&process.0).await;
            }
            let path = shared.store.path(self.id(), &entry).await?;
            of_calls = path.into_iter().next_back();
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let running = Running {
            id: thread.id.clone(),
            mode: thread.mode,
            archived: thread.status == ThreadStatus::Archived,
            mail: sender.clone(),
            status: Arc::new(Mutex::new(StatusKind::Idle)),
        };
        let key = thread.key.clone();
        let machine = Machine::new(thread, prompts, gates, of_calls.as_ref());
        let status = Arc::clone(&running.status);
        let runner = Runner::new(Arc::clone(shared), machine, (sender, receiver), status);
        tokio::spawn(runner.run());
        let threads = self.open.threads.lock();
        let mut threads = threads.unwrap_or_else(PoisonError::into_inner);
        threads.insert(key, running.clone());
        Ok(running)
    }

    fn queued_prompt(&self, prompt: Prompt, running: &Running) -> QueuedPrompt {
        let mut metadata = Map::new();
        if let Some(schema) = prompt.schema {
            metadata.insert(SCHEMA.to_owned(), schema);
        }
        QueuedPrompt {
            id: prompt.id.unwrap_or_else(PromptId::new),
            session: self.id().clone(),
            thread: running.id.clone(),
            order: 0,
            content: prompt.content,
            attachments: prompt.attachments,
            author: prompt.author,
            reply_to: prompt.reply_to,
            model: prompt.model,
            role: prompt.role,
            limits: prompt.limits,
            mode: prompt.mode.unwrap_or(running.mode),
            status: PromptStatus::Waiting,
            collect_until: None,
            metadata,
            created_at: self.open.shared.clock.now(),
        }
    }

    /// A thread is otherwise now, and that is written down.
    pub(super) fn changed(&self, key: &str, change: &ThreadChange) {
        let threads = self.open.threads.lock();
        let mut threads = threads.unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = threads.get_mut(key) {
            running.mode = change.mode.unwrap_or(running.mode);
            running.archived = change.archived.unwrap_or(running.archived);
        }
    }

    pub(super) fn named(&self, key: &str) -> Result<Running, StoreError> {
        let threads = self.open.threads.lock();
        let threads = threads.unwrap_or_else(PoisonError::into_inner);
        let running = threads.get(key).cloned();
        running.ok_or_else(|| StoreError::NotFound {
            kind: "thread",
            id: key.to_owned(),
        })
    }

    pub(super) fn running(&self, id: &ThreadId) -> Option<Running> {
        self.all_running()
            .into_iter()
            .find(|running| running.id == *id)
    }

    fn all_running(&self) -> Vec<Running> {
        let threads = self.open.threads.lock();
        let threads = threads.unwrap_or_else(PoisonError::into_inner);
        threads.values().cloned().collect()
    }

    pub(super) fn send(&self, running: &Running, mail: Mail) -> Result<(), StoreError> {
        self.open.shared.check()?;
        // Its threads may still be on their way out.
        if !self.is_open() {
            return Err(self.close_reason());
        }
        running.mail.send(mail).map_err(|_| self.close_reason())
    }

    /// Why nothing more is heard of it, once that is so.
    pub fn close_reason(&self) -> StoreError {
        match self.open.shared.check() {
            Err(error) => error,
            Ok(()) => StoreError::NotFound {
                kind: "open session",
                id: self.id().to_string(),
            },
        }
    }
}

pub(super) fn thread(session: &SessionId, key: &str, now: Millis) -> Thread {
    Thread {
        id: ThreadId::new(),
        session: session.clone(),
        key: key.to_owned(),
        status: ThreadStatus::Active,
        leaf: None,
        leaf_hash: String::new(),
        events_hash: String::new(),
        usage: Usage::default(),
        seal: String::new(),
        mode: QueueMode::default(),
        model: None,
        summary: None,
        tokens: 0,
        compaction: None,
        turn: None,
        last_command: None,
        metadata: Map::new(),
        created_at: now,
        updated_at: now,
    }
}
