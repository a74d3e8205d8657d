//! Events of the session, and what they change in the editor.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    Cost, CurrentModeUpdate, Diff, Notice as AcpNotice, NoticeSeverity,
};
use agent_client_protocol::v1::schema::{SessionUpdate, UsageUpdate};
use rye_engine::changes::Contents;
use rye_engine::model::Models as _;
use rye_engine::protocol::{
    CallId, Entry, EntryId, Event, EventKind, FileChange, FileContent, SessionId, Usage,
};
use rye_engine::store::StoreError;
use rye_engine::{Engine, EventStream, Filter, Notice};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{OUTPUT_INTERVAL, SessionTask};
use crate::tool_call::absolute;
use crate::transcript::note;

/// Maximum size of a file whose change is shown, in bytes.
const MAX_DIFFED: u64 = 1024 * 1024;

/// How often to look whether another process has created a task.
const TASK_POLL: Duration = Duration::from_millis(200);

/// Maximum number of files whose changes are shown with one call.
const MAX_DIFFS: usize = 50;

impl SessionTask {
    /// Shows an event in the editor.
    pub(super) async fn on_event(&mut self, notice: Notice) {
        let Notice { event, entry } = notice;
        let Event {
            sequence,
            thread,
            kind,
            ..
        } = event;
        if let EventKind::ThreadStart { key } = &kind
            && *key == self.thread_key
        {
            self.thread.clone_from(&thread);
        }
        // Gates of other threads wait for those who work there.
        let is_own = thread.is_none() || thread == self.thread;
        if is_own {
            self.on_own_event(kind, entry, sequence).await;
            self.end_compacted_prompts(sequence).await;
        }
    }

    async fn on_own_event(
        &mut self,
        kind: EventKind,
        entry: Option<Arc<Entry>>,
        sequence: Option<u64>,
    ) {
        match kind {
            EventKind::MessageStart => self.transcript.on_message_start(),
            EventKind::TextDelta { text } => {
                let update = self.transcript.on_text(&text);
                self.send(update);
            }
            EventKind::ThinkingDelta { text } => {
                let update = self.transcript.on_thinking(&text);
                self.send(update);
            }
            EventKind::ToolCallDelta { call, tool, .. } => {
                let update = self.transcript.on_call_delta(&call, &tool);
                self.send_all(update);
            }
            EventKind::MessageEnd { entry: id } => {
                if let Some(entry) = self.entry(&id, entry).await {
                    self.on_entry(&entry);
                }
            }
            EventKind::ToolStart { call, .. } => {
                let update = self.transcript.on_call_start(&call);
                self.send_all(update);
            }
            EventKind::ToolOutput { call, text } => {
                let update = self.transcript.on_output(&call, &text);
                self.send_all(update);
                if self.transcript.has_output() {
                    let due = || Instant::now() + OUTPUT_INTERVAL;
                    self.output_due.get_or_insert_with(due);
                }
            }
            EventKind::FilesChanged {
                call: Some(call),
                changes,
                ..
            } => self.on_files_changed(&call, changes).await,
            EventKind::ModelRetry {
                model,
                wait_ms,
                reason,
                ..
            } => {
                let updates = self.transcript.on_retry();
                self.send_all(updates);
                #[expect(clippy::cast_precision_loss, reason = "for people")]
                let wait = wait_ms as f64 / 1000.0;
                self.notice(&format!("Retrying {model} in {wait} s: {reason}"));
            }
            EventKind::ModelSwitched { from, to, reason } => {
                self.notice(&format!("Switched from {from} to {to}: {reason}"));
            }
            EventKind::PermissionModeChanged { mode } => {
                self.settings.mode = mode;
                let update = CurrentModeUpdate::new(mode.as_str());
                self.send(SessionUpdate::CurrentModeUpdate(update));
                self.send_settings();
            }
            EventKind::Usage { usage } => self.on_usage(usage).await,
            EventKind::Error { error } => {
                let is_expected = self.on_prompt_error(&error);
                if !is_expected {
                    self.send(note(&format!("**Error:** {}", error.message)));
                }
            }
            EventKind::TurnEnd {
                prompt,
                reason,
                merged_into,
            } => {
                self.send_output();
                self.on_turn_end(&prompt, reason, merged_into, sequence)
                    .await;
            }
            EventKind::TaskStart { session } => self.follow_task(session),
            EventKind::TaskEnd { session } => drop(self.tasks.remove(&session)),
            gate => self.on_gate_event(gate).await,
        }
    }

    /// The entry that an event refers to.
    async fn entry(&mut self, id: &EntryId, entry: Option<Arc<Entry>>) -> Option<Arc<Entry>> {
        if entry.is_some() {
            return entry;
        }
        let stored = self.engine().store().entry(&self.id, id).await;
        stored.ok().flatten().map(Arc::new)
    }

    fn on_entry(&mut self, entry: &Entry) {
        self.on_prompt_entry(entry);
        let is_own = self.is_own_prompt(entry.prompt.as_ref());
        let updates = self.transcript.on_entry(entry, is_own);
        self.send_all(updates);
    }

    /// Shows what a call has changed in files.
    async fn on_files_changed(&mut self, call: &CallId, changes: Vec<FileChange>) {
        let (contents, workspace) = (self.engine().contents(), self.transcript.workspace());
        let mut diffs = Vec::new();
        for change in changes.into_iter().take(MAX_DIFFS) {
            diffs.extend(diff(&contents, workspace, &change).await);
        }
        if diffs.is_empty() {
            return;
        }
        let update = self.transcript.on_diffs(call, diffs);
        self.send_all(update);
    }

    /// Tells the user something that is not part of the conversation, if the editor can show it.
    pub(super) fn notice(&self, text: &str) {
        let session = self.client.session.as_ref();
        if session.is_some_and(|session| session.notices.is_some()) {
            let notice = AcpNotice::new(NoticeSeverity::Info, text);
            self.send(SessionUpdate::Notice(notice));
        }
    }

    /// Shows how full the context is, and what the session has cost.
    async fn on_usage(&mut self, usage: Usage) {
        let Ok(Some(model)) = self.engine().current_model(&self.id).await else {
            return;
        };
        let Ok(model) = self.project.models.get(&model) else {
            return;
        };
        let mut update = UsageUpdate::new(usage.tokens(), model.info().context_window);
        if let Ok(Some(session)) = self.engine().session_data(&self.id).await
            && session.usage.micro_dollars > 0
        {
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            let dollars = session.usage.micro_dollars as f64 / 1_000_000.0;
            update = update.cost(Cost::new(dollars, "USD"));
        }
        self.send(SessionUpdate::UsageUpdate(update));
    }

    /// Learns about the gates of a task, and of the tasks that it starts.
    pub(super) fn follow_task(&mut self, task: SessionId) {
        if self.tasks.contains_key(&task) {
            return;
        }
        let engine = self.engine().clone();
        let forwarded = self.task_events.0.clone();
        let id = task.clone();
        let following = tokio::spawn(async move {
            if let Err(error) = forward_gates(&engine, &id, &forwarded).await {
                tracing::warn!(task = id.as_str(), %error, "cannot follow a task");
            }
        });
        self.tasks.insert(task, AbortOnDropHandle::new(following));
    }
}

/// A change as a diff; none if a version is no text, too long or not kept.
async fn diff(contents: &Contents, workspace: &Path, change: &FileChange) -> Option<Diff> {
    let before = match &change.before {
        Some(content) => Some(text(contents, content).await?),
        None => None,
    };
    let after = match &change.after {
        Some(content) => text(contents, content).await?,
        None => String::new(),
    };
    let path = absolute(workspace, &change.path);
    Some(Diff::new(path, after).old_text(before))
}

async fn text(contents: &Contents, content: &FileContent) -> Option<String> {
    if content.size > MAX_DIFFED {
        return None;
    }
    let bytes = contents.read(content).await.ok()?;
    let text = String::from_utf8(bytes).ok()?;
    (!text.contains('\0')).then_some(text)
}

/// Forwards events that concern gates and tasks.
async fn forward_gates(
    engine: &Engine,
    task: &SessionId,
    forwarded: &UnboundedSender<EventKind>,
) -> Result<(), StoreError> {
    let mut events = follow_new(engine, task).await?;
    while let Some(notice) = events.next().await? {
        let kind = notice.event.kind;
        let is_relevant = matches!(
            kind,
            EventKind::DecisionGate { .. }
                | EventKind::DecisionGateResolved { .. }
                | EventKind::DecisionGateExpired { .. }
                | EventKind::DecisionGateWithdrawn { .. }
                | EventKind::TaskStart { .. }
        );
        if is_relevant && forwarded.send(kind).is_err() {
            break;
        }
    }
    Ok(())
}

/// The events of a task that is about to be created.
async fn follow_new(engine: &Engine, task: &SessionId) -> Result<EventStream, StoreError> {
    let mut created = engine.feed_with(Filter {
        session: Some(task.clone()),
        ..Filter::default()
    });
    loop {
        match engine.follow(task, 0).await {
            Err(StoreError::NotFound { .. }) => {}
            followed => return followed,
        }
        // A process that shares only the store may create it.
        let _ = tokio::time::timeout(TASK_POLL, created.next()).await;
    }
}
