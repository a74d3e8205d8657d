//! Writes the history of a run into the session store, one commit for each finished node.

use std::sync::Arc;

use rye_engine::BoxFuture;
use rye_engine::record::{self, Recorder};
use rye_engine::store::SessionStore;
use rye_protocol::{
    EntryKind, Gate, GateStatus, NodeError, RunEvent, RunStatus, SessionId, ThreadId,
};
use serde::Serialize;

use crate::error::RecordError;

/// A line in the history of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JournalLine {
    /// The run.
    #[serde(skip)]
    pub run: SessionId,
    /// Sequence number, from 1.
    pub seq: u64,
    /// Time in milliseconds since the Unix epoch.
    pub at: u64,
    /// The event.
    pub event: RunEvent,
    /// The gate that the event opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Box<Gate>>,
}

/// Callback that receives each line.
#[derive(Clone)]
pub struct EventListener(Arc<dyn Fn(&JournalLine) + Send + Sync>);

impl EventListener {
    /// Creates a listener from a function.
    pub fn new(on_line: impl Fn(&JournalLine) + Send + Sync + 'static) -> Self {
        Self(Arc::new(on_line))
    }

    /// A listener that receives only the lines about gates.
    pub(crate) fn for_gates(self) -> Self {
        Self::new(move |line| {
            if let RunEvent::Gate { .. } | RunEvent::GateClosed { .. } = line.event {
                self.notify(line);
            }
        })
    }

    pub(crate) fn notify(&self, line: &JournalLine) {
        (self.0)(line);
    }
}

impl std::fmt::Debug for EventListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventListener")
    }
}

/// The history of a run that this process executes.
pub(crate) struct Journal {
    /// Present until the journal is dropped.
    recorder: Option<Recorder>,
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) session: SessionId,
    pub(crate) thread: ThreadId,
    seq: u64,
    /// Events that are not written yet.
    events: Vec<RunEvent>,
    has_ended: bool,
    /// The error that made the journal unusable.
    failure: Option<NodeError>,
    /// The node to continue with.
    node: Option<String>,
    steps: u64,
}

impl Journal {
    /// Continues after `seq` lines; `node` is the next node.
    pub(crate) fn new(recorder: Recorder, seq: u64, node: Option<String>, steps: u64) -> Self {
        Self {
            store: Arc::clone(recorder.store()),
            session: recorder.session().id.clone(),
            thread: recorder.thread().clone(),
            recorder: Some(recorder),
            seq,
            events: Vec::new(),
            has_ended: false,
            failure: None,
            node,
            steps,
        }
    }

    /// A future that ends when an abort of the run is requested.
    pub(crate) fn abort_requested(&self) -> BoxFuture<'static, ()> {
        match &self.recorder {
            Some(recorder) => Box::pin(recorder.abort_requested()),
            None => Box::pin(std::future::pending()),
        }
    }

    /// Number of events that are not written yet.
    pub(crate) fn pending(&self) -> usize {
        self.events.len()
    }

    /// Adds an event; the next commit writes it.
    pub(crate) fn push(&mut self, event: RunEvent) -> JournalLine {
        match &event {
            RunEvent::Begin { node, step, .. } => {
                self.node = Some(node.clone());
                self.steps = *step;
            }
            RunEvent::Step { next, step, .. } => {
                self.node.clone_from(next);
                self.steps = *step;
            }
            RunEvent::End { node, .. } => {
                self.has_ended = true;
                self.node.clone_from(node);
            }
            _ => {}
        }
        self.seq += 1;
        self.events.push(event.clone());
        JournalLine {
            run: self.session.clone(),
            seq: self.seq,
            at: record::now().0,
            event,
            gate: None,
        }
    }

    /// A line about a gate that is in the history already.
    pub(crate) fn pending_gate(&self, gate: &Gate) -> JournalLine {
        JournalLine {
            run: self.session.clone(),
            seq: self.seq,
            at: record::now().0,
            event: RunEvent::Gate {
                gate: gate.id.clone(),
            },
            gate: Some(Box::new(gate.clone())),
        }
    }

    /// Moves the events into the next commit.
    fn flush(&mut self) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let events = std::mem::take(&mut self.events);
        let mut status = None;
        for event in &events {
            status = match event {
                RunEvent::End { status, .. } => Some(*status),
                _ => Some(RunStatus::Running),
            };
        }
        if !events.is_empty() {
            recorder.append(EntryKind::Run { events });
        }
        let (node, steps) = (self.node.clone(), self.steps);
        recorder.set_run(|run| {
            run.status = status.unwrap_or(run.status);
            run.node = node;
            run.steps = steps;
        });
    }

    /// Opens a gate with the next commit.
    pub(crate) fn open_gate(&mut self, gate: &Gate) {
        self.flush();
        if let Some(recorder) = &mut self.recorder {
            recorder.open_gate(gate);
        }
    }

    /// Withdraws a pending gate with the next commit.
    pub(crate) fn withdraw_gate(&mut self, gate: Gate, status: GateStatus) {
        if let Some(recorder) = &mut self.recorder {
            recorder.close_gate(gate, status);
        }
    }

    /// Writes everything in one durable transaction.
    pub(crate) async fn commit(&mut self) -> Result<(), RecordError> {
        self.flush();
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        let committed = recorder.commit().await.map_err(RecordError::from);
        committed.map_err(|error| self.fail(error))
    }

    /// Records the error that makes the journal unusable.
    pub(crate) fn fail(&mut self, error: RecordError) -> RecordError {
        self.failure = Some(NodeError::new(error.code(), error.to_string()));
        error
    }

    /// Ends the journal of a run that stopped.
    pub(crate) async fn close(mut self) -> Result<(), RecordError> {
        match self.recorder.take() {
            Some(recorder) => Ok(recorder.release().await?),
            None => Ok(()),
        }
    }
}

/// Dropping an unfinished journal records that the user cancelled the run, that something else
/// interrupted it, or that the journal failed.
impl Drop for Journal {
    fn drop(&mut self) {
        let Some(recorder) = &self.recorder else {
            return;
        };
        if !self.has_ended && !std::thread::panicking() {
            let (status, error, node) = if let Some(error) = self.failure.take() {
                // Without a node, the run resumes at its recorded position.
                (RunStatus::Failed, error, None)
            } else {
                let is_cancelled = recorder.is_aborted_blocking().unwrap_or(false);
                let (status, message) = if is_cancelled {
                    (RunStatus::Cancelled, "the run was cancelled")
                } else {
                    (RunStatus::Interrupted, "the run was interrupted")
                };
                let error = NodeError::new(status.as_str(), message);
                (status, error, self.node.clone())
            };
            self.push(RunEvent::End {
                status,
                error: Some(error),
                output: None,
                node,
            });
        }
        self.flush();
        if let Some(recorder) = self.recorder.take()
            && let Err(error) = recorder.finish_blocking()
        {
            tracing::error!(run = %self.session, %error, "cannot record the end of the run");
        }
    }
}
