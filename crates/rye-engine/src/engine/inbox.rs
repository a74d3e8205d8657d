//! Processes what was posted to an open session: prompts, decisions and commands.

use std::sync::Arc;

use rye_protocol::{Batch, EventKind, Op, QueuedPrompt, SessionStatus};
use tokio::sync::oneshot;

use super::Session;
use super::session::ThreadHandle;
use crate::machine::PostedCommand;
use crate::runner::ThreadCommand;
use crate::store::{CommandKind, SessionCommand, SessionSnapshot, StoreError};

impl Session {
    /// Processes messages that were posted to the store.
    pub(super) async fn drain_inbox(&self) -> Result<(), StoreError> {
        let shared = &self.inner.shared;
        let _guard = self.inner.draining_inbox.lock().await;
        let commands = shared.store.pending_commands(&shared.lease).await?;
        let record = shared.store.snapshot(self.id()).await?;
        let Some(record) = record else {
            return Ok(());
        };
        // Publish the posted events before their consequences.
        shared.bus.notify_external_write();
        self.start_posted_threads(&record).await?;
        for gate in record
            .gates
            .into_iter()
            .filter(|gate| !gate.status.is_pending())
        {
            if let Some(running) = self.thread_by_id(&gate.origin.thread) {
                self.send(&running, ThreadCommand::GateClosed(Box::new(gate)))?;
            }
        }
        for prompt in record
            .prompts
            .into_iter()
            .filter(QueuedPrompt::needs_position)
        {
            if let Some(running) = self.thread_by_id(&prompt.thread) {
                self.send(&running, ThreadCommand::PostedPrompt(Box::new(prompt)))?;
            }
        }
        for command in commands {
            self.run_command(command).await?;
        }
        Ok(())
    }

    /// Starts the threads that posted prompts have created.
    async fn start_posted_threads(&self, record: &SessionSnapshot) -> Result<(), StoreError> {
        let _guard = self.inner.creating_thread.lock().await;
        for thread in &record.threads {
            if self.thread_by_id(&thread.id).is_none() {
                let thread = thread.clone();
                self.start_thread(thread, Vec::new(), Vec::new()).await?;
            }
        }
        Ok(())
    }

    /// Sends a posted command to its threads. It stays in the store until all have applied it.
    async fn run_command(&self, command: SessionCommand) -> Result<(), StoreError> {
        if let CommandKind::SetPermissionMode { mode } = command.kind {
            let changed = EventKind::PermissionModeChanged { mode };
            let ops = [
                Op::CompleteCommand(command.id),
                Op::Event(None, Arc::new(changed)),
            ];
            self.change_data_with(ops, |data| data.permission_mode = mode)
                .await?;
            self.shared().bus.notify_external_write();
            return Ok(());
        }
        let named = command.thread.as_ref();
        let status = match command.kind {
            CommandKind::Pause => Some(SessionStatus::Paused),
            CommandKind::Resume => Some(SessionStatus::Running),
            _ => None,
        };
        if let (None, Some(status)) = (named, status) {
            // Children first: the command is repeated if this process dies in between.
            self.set_status_of_children(status).await?;
            let completed = Op::CompleteCommand(command.id);
            return self.set_status(status, Some(completed)).await;
        }
        let mut threads = self.all_threads();
        threads.retain(|it| named.is_none_or(|id| it.id() == id));
        let is_only_thread = threads.len() == 1;
        let posted = PostedCommand {
            id: command.id.clone(),
            is_only_thread,
        };
        self.send_to_all(threads, command.kind, Some(&posted))
            .await?;
        if is_only_thread {
            return Ok(());
        }
        let shared = &self.inner.shared;
        let mut batch = Batch::default();
        batch.push(Op::CompleteCommand(command.id));
        shared.store.commit(&shared.lease, batch).await.map(drop)
    }

    /// Sends a command to one thread or to all.
    pub(super) async fn command(
        &self,
        thread: Option<&str>,
        kind: CommandKind,
    ) -> Result<(), StoreError> {
        let threads = match thread {
            Some(key) => vec![self.thread_by_key(key)?],
            None => self.all_threads(),
        };
        self.send_to_all(threads, kind, None).await
    }

    /// Sends a command to threads and waits until they have applied it.
    async fn send_to_all(
        &self,
        threads: Vec<ThreadHandle>,
        kind: CommandKind,
        posted: Option<&PostedCommand>,
    ) -> Result<(), StoreError> {
        let mut answers = Vec::new();
        for running in threads {
            let (reply, answer) = oneshot::channel();
            let posted = posted.cloned();
            let command = ThreadCommand::Command {
                kind: kind.clone(),
                posted,
                reply,
            };
            self.send(&running, command)?;
            answers.push(answer);
        }
        for answer in answers {
            answer.await.map_err(|_| self.close_reason())??;
        }
        Ok(())
    }
}
