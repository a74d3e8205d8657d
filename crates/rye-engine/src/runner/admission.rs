//! Applies the quotas of a session's owner to its model calls.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rye_protocol::{ErrorCode, ErrorInfo, Session as SessionData, StatusKind, Usage};
use tokio::sync::mpsc::UnboundedSender;

use super::{Runner, ThreadCommand};
use crate::quotas::{QuotaError, QuotaLimit, Quotas, TurnSlot};
use crate::store::StoreError;

/// Interval at which a turn looks for a free slot.
const SLOT_CHECK: Duration = Duration::from_millis(500);

/// Admits the model calls of a turn.
pub(super) struct Admission {
    quotas: Quotas,
    session: Arc<SessionData>,
    slot: Arc<Mutex<Option<TurnSlot>>>,
    generation: u64,
    commands: UnboundedSender<ThreadCommand>,
}

impl Runner {
    /// The admission of the current model call; `None` if no quotas can apply.
    pub(super) fn admission(&self) -> Option<Admission> {
        let session = self.shared.data();
        if session.user_id.is_none() && session.org_id.is_none() {
            return None;
        }
        let engine = self.shared.engine.upgrade()?;
        Some(Admission {
            quotas: engine.quotas.clone()?,
            session,
            slot: Arc::clone(&self.slot),
            generation: self.generation,
            commands: self.command_tx.clone(),
        })
    }
}

impl Admission {
    /// Waits for a slot for the turn. The error says that a budget is used up.
    pub(super) async fn admit(&self) -> Result<(), ErrorInfo> {
        let mut is_queued = false;
        loop {
            match self.try_admit().await {
                Ok(()) => {
                    if is_queued {
                        self.publish(StatusKind::Thinking);
                    }
                    return Ok(());
                }
                Err(QuotaError::Exceeded(exceeded)) if exceeded.limit == QuotaLimit::Turns => {
                    if !is_queued {
                        self.publish(StatusKind::Queued);
                        is_queued = true;
                    }
                }
                Err(QuotaError::Exceeded(exceeded)) => {
                    return Err(ErrorInfo::new(ErrorCode::Quota, exceeded.to_string()));
                }
                Err(QuotaError::Store(StoreError::Unavailable(_))) => {}
                Err(QuotaError::Store(error)) => {
                    return Err(ErrorInfo::new(ErrorCode::Store, error.to_string()));
                }
            }
            tokio::time::sleep(SLOT_CHECK).await;
        }
    }

    async fn try_admit(&self) -> Result<(), QuotaError> {
        self.quotas.check_budget(&self.session).await?;
        if self.slot.lock().is_none() {
            let slot = self.quotas.start_turn(&self.session).await?;
            *self.slot.lock() = slot;
        }
        Ok(())
    }

    fn publish(&self, status: StatusKind) {
        let command = ThreadCommand::ModelStatus(self.generation, status);
        // A runner that has stopped has no status.
        let _ = self.commands.send(command);
    }

    /// Counts what a model call has used.
    pub(super) async fn record(&self, usage: Usage) {
        if let Err(error) = self.quotas.record(&self.session, usage).await {
            let session = self.session.id.as_str();
            tracing::warn!(session, %error, "cannot count the usage of a model call");
        }
    }
}

/// Admits a call, if quotas can apply.
pub(super) async fn admit(admission: Option<&Admission>) -> Result<(), ErrorInfo> {
    match admission {
        Some(admission) => admission.admit().await,
        None => Ok(()),
    }
}

/// Counts the usage of a call, if quotas can apply.
pub(super) async fn record(admission: Option<&Admission>, usage: Usage) {
    if let Some(admission) = admission {
        admission.record(usage).await;
    }
}
