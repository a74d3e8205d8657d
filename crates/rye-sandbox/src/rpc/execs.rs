//! The commands that a server runs for one sandbox.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rye_engine::sandbox::{Exec, ExecObserver, Sandbox};
use serde_json::to_vec;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::wire::{ExecEvent, ExecRequest, MAX_OUTPUT, RpcError};

/// Maximum number of commands of a sandbox that run or whose output was not read.
const MAX_EXECS: usize = 256;

/// The commands of a sandbox, by id.
pub(super) struct Scope {
    last_request: Mutex<Instant>,
    /// A command that was ended is `None`, so that a late request does not start it.
    execs: Mutex<HashMap<String, Option<Arc<Execution>>>>,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            last_request: Mutex::new(Instant::now()),
            execs: Mutex::default(),
        }
    }
}

impl Scope {
    /// Notes that the client is alive.
    pub(super) fn touch(&self) {
        *self.last_request.lock() = Instant::now();
    }

    pub(super) fn idle_for(&self) -> Duration {
        self.last_request.lock().elapsed()
    }

    /// Starts a command, unless it was started before.
    pub(super) fn start(
        &self,
        request: ExecRequest,
        instance: &str,
        sandbox: &Arc<dyn Sandbox>,
    ) -> Result<(), RpcError> {
        let mut execs = self.execs.lock();
        let running = execs.values().flatten().count();
        match execs.entry(request.id) {
            Entry::Occupied(known) => match known.get() {
                None => Err(RpcError::UnknownExec),
                Some(known) if known.exec == request.exec => Ok(()),
                Some(_) => Err(RpcError::Invalid("the id is in use".to_owned())),
            },
            Entry::Vacant(_) if request.instance != instance => Err(RpcError::OtherInstance),
            Entry::Vacant(_) if running >= MAX_EXECS => {
                Err(RpcError::Invalid("too many commands".to_owned()))
            }
            Entry::Vacant(new) => {
                new.insert(Some(Execution::start(request.exec, Arc::clone(sandbox))));
                Ok(())
            }
        }
    }

    pub(super) fn get(&self, id: &str) -> Result<Arc<Execution>, RpcError> {
        let execs = self.execs.lock();
        execs
            .get(id)
            .cloned()
            .flatten()
            .ok_or(RpcError::UnknownExec)
    }

    /// Ends a command, also one that is not known yet: its request may be late.
    pub(super) async fn end(&self, id: String) {
        let ended = self.execs.lock().insert(id, None).flatten();
        if let Some(execution) = ended {
            execution.abort().await;
        }
    }

    /// Ends all commands.
    pub(super) async fn end_all(&self) {
        let all: Vec<_> = {
            let mut execs = self.execs.lock();
            execs.values_mut().filter_map(Option::take).collect()
        };
        for execution in all {
            execution.abort().await;
        }
    }

    /// Ends the command with this process.
    pub(super) async fn kill(&self, process: &str) {
        let found = {
            let execs = self.execs.lock();
            let mut running = execs.values().flatten();
            running
                .find(|it| it.log.lock().process.as_deref() == Some(process))
                .cloned()
        };
        if let Some(execution) = found {
            execution.sandbox.kill(process).await;
        }
    }
}

/// A command that runs or has ended.
pub(super) struct Execution {
    exec: Exec,
    sandbox: Arc<dyn Sandbox>,
    log: Arc<Mutex<Log>>,
    /// Changes with the log.
    changed: watch::Receiver<()>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// The output stream: JSON lines of [`ExecEvent`].
#[derive(Default)]
struct Log {
    bytes: Vec<u8>,
    process: Option<String>,
    is_complete: bool,
}

/// Appends events to the log.
struct LogWriter {
    log: Arc<Mutex<Log>>,
    changed: watch::Sender<()>,
}

impl LogWriter {
    fn push(&self, event: &ExecEvent) {
        let mut log = self.log.lock();
        log.bytes.extend(to_vec(event).unwrap_or_default());
        log.bytes.push(b'\n');
        log.is_complete = matches!(event, ExecEvent::End(_));
        drop(log);
        self.changed.send_replace(());
    }
}

impl ExecObserver for LogWriter {
    fn on_start(&self, process: &str) {
        self.log.lock().process = Some(process.to_owned());
        self.push(&ExecEvent::Start(process.to_owned()));
    }

    fn on_output(&self, text: &str) {
        self.push(&ExecEvent::Output(text.to_owned()));
    }
}

impl Execution {
    fn start(exec: Exec, sandbox: Arc<dyn Sandbox>) -> Arc<Self> {
        let log = Arc::<Mutex<Log>>::default();
        let (sender, changed) = watch::channel(());
        let writer = LogWriter {
            log: Arc::clone(&log),
            changed: sender,
        };
        let (mut limited, runner) = (exec.clone(), Arc::clone(&sandbox));
        limited.max_output = limited.max_output.map(|it| it.min(MAX_OUTPUT));
        let task = tokio::spawn(async move {
            let outcome = runner.exec(limited, &writer).await;
            writer.push(&ExecEvent::End(outcome));
        });
        Arc::new(Self {
            exec,
            sandbox,
            log,
            changed,
            task: Mutex::new(Some(AbortOnDropHandle::new(task))),
        })
    }

    async fn abort(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
            // The command is being killed once its future is dropped.
            let _ = task.await;
        }
    }

    /// The next bytes of the output stream after an offset; `None` after the last one, and after
    /// the command was aborted.
    pub(super) async fn read_from(&self, offset: usize) -> Option<Vec<u8>> {
        let mut changed = self.changed.clone();
        loop {
            changed.mark_unchanged();
            {
                let log = self.log.lock();
                if let Some(rest) = log.bytes.get(offset..).filter(|rest| !rest.is_empty()) {
                    return Some(rest.to_vec());
                }
                if log.is_complete {
                    return None;
                }
            }
            changed.changed().await.ok()?;
        }
    }
}
