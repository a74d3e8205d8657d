//! Waits for changes of a run: commits to the store, output, and the end of its process.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use lillux::process::Handle;
use lillux::watch::WatchError;
use rye_host::runs::{RunView, Runs};

use crate::cli::failure::Failure;

/// How often a run without a process on this host is examined: its process may be about to start,
/// or the lease of its host may expire.
const LIVENESS_CHECK: Duration = Duration::from_secs(1);

/// The changes of a run.
pub(super) struct Changes {
    sender: Sender<Result<(), WatchError>>,
    receiver: Receiver<Result<(), WatchError>>,
    /// The process whose end is reported.
    process: Option<Handle>,
}

impl Changes {
    /// Collects changes from now on.
    pub(super) fn watch(runs: &Runs, run: &RunView) -> Result<Self, Failure> {
        let watch = runs.watch(run.id())?;
        let (sender, receiver) = mpsc::channel();
        let changes = sender.clone();
        thread::spawn(move || {
            loop {
                let changed = watch.wait(None).map(drop);
                let has_failed = changed.is_err();
                if changes.send(changed).is_err() || has_failed {
                    return;
                }
            }
        });
        Ok(Self {
            sender,
            receiver,
            process: None,
        })
    }

    /// Waits for the next change. A killed process records no end, so its end counts as well.
    pub(super) fn wait(&mut self, run: &RunView) -> Result<(), Failure> {
        let process = run.process();
        if process.is_some() && process != self.process {
            self.process.clone_from(&process);
            let (process, ended) = (process.clone(), self.sender.clone());
            thread::spawn(move || {
                let _ = process.map(|process| process.wait(None));
                let _ = ended.send(Ok(()));
            });
        }
        let changed = if process.is_some() {
            self.receiver.recv().ok()
        } else {
            self.receiver.recv_timeout(LIVENESS_CHECK).ok()
        };
        let changed = changed.unwrap_or(Ok(()));
        changed.map_err(|error| Failure::failed("watch", error))?;
        // Several changes are one.
        while let Ok(changed) = self.receiver.try_recv() {
            changed.map_err(|error| Failure::failed("watch", error))?;
        }
        Ok(())
    }
}
