//! Events of a session and of the tasks below it, from the first event on.

use rye_engine::protocol::{EventKind, StatusKind};
use rye_engine::store::StoreError;
use rye_engine::{Engine, Session, SessionFollower, SessionUpdate};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::app::App;
use crate::effects::Update;

/// Events of a session, and results of effects.
pub(crate) struct SessionEvents {
    session: Session,
    follower: SessionFollower,
    /// Number of the last event written before the chat started.
    backlog_end: u64,
    /// Number of the last event applied.
    last_applied: u64,
    /// Results of effects.
    updates: UnboundedReceiver<Update>,
}

/// What arrived, to be applied with [`SessionEvents::apply`].
pub(crate) enum SessionEvent {
    Session(Box<SessionUpdate>),
    /// An effect has ended.
    Effect(Update),
}

impl SessionEvents {
    pub(crate) async fn subscribe(
        engine: &Engine,
        session: &Session,
        updates: UnboundedReceiver<Update>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            session: session.clone(),
            backlog_end: session.last_event().await?,
            follower: SessionFollower::new(engine, session.id(), 0).await?,
            last_applied: 0,
            updates,
        })
    }

    /// Continues with the same session after it was opened again.
    pub(crate) async fn resume(
        &mut self,
        engine: &Engine,
        session: &Session,
        updates: UnboundedReceiver<Update>,
    ) -> Result<(), StoreError> {
        self.follower = SessionFollower::new(engine, session.id(), self.last_applied).await?;
        self.session = session.clone();
        self.updates = updates;
        Ok(())
    }

    /// Whether every event and gate from before the chat started has been applied.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.last_applied >= self.backlog_end && !self.follower.has_pending_gates()
    }

    /// Whether all threads are idle and every event has been applied.
    pub(crate) async fn is_idle(&self) -> Result<bool, StoreError> {
        let threads = self.session.threads();
        let idle = threads.iter().all(|it| it.status == StatusKind::Idle);
        // A thread becomes idle before its last event arrives here.
        Ok(idle && self.last_applied >= self.session.last_event().await?)
    }

    /// The next event; `None` once the engine has shut down. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<SessionEvent>, StoreError> {
        tokio::select! {
            biased;
            update = self.follower.next() => Ok(update?.map(|it| SessionEvent::Session(Box::new(it)))),
            Some(update) = self.updates.recv() => Ok(Some(SessionEvent::Effect(update))),
        }
    }

    /// Waits until all effects have ended. Call it once nothing starts new ones.
    pub(crate) async fn wait_for_effects(&mut self) {
        while self.updates.recv().await.is_some() {}
    }

    /// Applies an event to the app.
    pub(crate) async fn apply(
        &mut self,
        event: SessionEvent,
        app: &mut App,
    ) -> Result<(), StoreError> {
        let own = self.session.id();
        let update = match event {
            SessionEvent::Session(update) => *update,
            SessionEvent::Effect(update) => {
                update(app);
                return Ok(());
            }
        };
        let notice = match update {
            SessionUpdate::Event(notice) => notice,
            SessionUpdate::TaskGateClosed(kind) => {
                app.on_gate_event(&kind);
                return Ok(());
            }
            // Gates of the session itself are among its events.
            SessionUpdate::PendingGate(gate) => {
                if gate.origin.session != *own {
                    app.add_gate(*gate);
                }
                return Ok(());
            }
            SessionUpdate::Lagged => {
                app.gates.retain(|it| {
                    let session = &it.gate.origin.session;
                    session == own || self.follower.is_followed(session)
                });
                return Ok(());
            }
        };
        app.on_event(&notice.event, notice.entry.as_deref());
        let was_behind = self.last_applied < self.backlog_end;
        if was_behind {
            // It happened before the user was here.
            app.alert = None;
        }
        self.last_applied = notice.event.sequence.unwrap_or(self.last_applied);
        if was_behind && self.last_applied >= self.backlog_end {
            // Status events are not stored, so the backlog has none.
            app.set_statuses(&self.session.threads());
        }
        if let (EventKind::QueueState { waiting, .. }, Some(thread)) =
            (&notice.event.kind, &notice.event.thread)
            && !waiting.is_empty()
        {
            app.set_queue(thread, &self.session.waiting_prompts(thread).await?);
        }
        Ok(())
    }
}
