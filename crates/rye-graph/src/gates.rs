//! Gates of runs, stored as files next to the journal.
//!
//! Each gate is a file, and so is its resolution. The resolution file is created exactly once,
//! by a user or by the expiry of the gate.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lillux::durable::{self, IfExists, WriteError};
use rye_protocol::{Gate, GateId, GateStatus, Millis, Resolution};

mod pending_index;

use crate::record::{RecordError, RunStore, TrustPolicy};

pub use pending_index::PendingIndex;

/// Interval at which the deadline is checked, because the clock may change and the machine may
/// be suspended.
const DEADLINE_CHECK: Duration = Duration::from_mins(1);
/// Polling interval if the file cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A gate of a run and the path of its resolution.
#[derive(Debug, Clone, PartialEq)]
pub struct GateFile {
    /// The gate.
    pub gate: Gate,
    resolution_path: PathBuf,
}

/// Outcome of resolving a gate.
#[derive(Debug, Clone, PartialEq)]
pub enum ResolveOutcome {
    /// The resolution was recorded.
    Recorded,
    /// The same resolution was recorded before.
    AlreadyRecorded,
    /// A different resolution was recorded before.
    Conflict(Box<Resolution>),
    /// The gate is closed.
    Closed(GateStatus),
}

impl GateFile {
    /// Paths of a gate and its resolution in the directory of a run.
    fn paths(run_dir: &Path, gate: &GateId) -> (PathBuf, PathBuf) {
        let gates = run_dir.join("gates");
        let name = lillux::Hash::digest(gate.as_str()).to_hex();
        let name = &name[..16];
        let resolution = gates.join(format!("{name}.answer.json"));
        (gates.join(format!("{name}.json")), resolution)
    }

    /// Writes a gate. An existing resolution of the same gate stays valid.
    pub(crate) fn create(run_dir: &Path, gate: Gate) -> Result<Self, RecordError> {
        let (path, resolution_path) = Self::paths(run_dir, &gate.id);
        durable::create_dir(&run_dir.join("gates"), 0o700)?;
        let text = serde_json::to_vec(&gate).unwrap_or_default();
        if fs::read(&path).ok().as_deref() != Some(&text) {
            durable::write(&path, &text, 0o600, IfExists::Replace)?;
        }
        Ok(Self {
            gate,
            resolution_path,
        })
    }

    /// Reads the gate file with this id, which is not authenticated.
    pub(crate) fn load(run_dir: &Path, gate: &GateId) -> Option<Gate> {
        read_json(&Self::paths(run_dir, gate).0)
    }

    /// Creates the handle of a gate that the journal contains.
    pub(crate) fn from_journal(run_dir: &Path, gate: Gate) -> Self {
        let (_, resolution_path) = Self::paths(run_dir, &gate.id);
        Self {
            gate,
            resolution_path,
        }
    }

    /// Current status. A resolution counts only with a valid receipt for this gate, an expiry
    /// only after the deadline.
    pub fn status(&self, trust: &dyn TrustPolicy) -> GateStatus {
        let counts = match self.stored_status() {
            GateStatus::Resolved { resolution } => {
                matches!(trust.receipt(&self.gate, &resolution), Ok(true))
            }
            GateStatus::Expired { .. } => {
                let deadline = self.gate.expires_at;
                deadline.is_some_and(|deadline| deadline <= now())
            }
            GateStatus::Withdrawn { .. } | GateStatus::Pending => true,
        };
        if counts {
            self.stored_status()
        } else {
            GateStatus::Pending
        }
    }

    /// Status in the resolution file, which is not authenticated.
    fn stored_status(&self) -> GateStatus {
        read_json(&self.resolution_path).unwrap_or(GateStatus::Pending)
    }

    /// Resolves the gate.
    pub fn resolve(
        &self,
        resolution: &Resolution,
        trust: &dyn TrustPolicy,
    ) -> Result<ResolveOutcome, RecordError> {
        let resolved = GateStatus::Resolved {
            resolution: resolution.clone(),
        };
        if self.close(&resolved)? {
            return Ok(ResolveOutcome::Recorded);
        }
        let status = self.status(trust);
        if status.is_pending() {
            // Replace a resolution without a valid receipt.
            let text = serde_json::to_vec(&resolved).unwrap_or_default();
            durable::write(&self.resolution_path, &text, 0o600, IfExists::Replace)?;
            return Ok(ResolveOutcome::Recorded);
        }
        Ok(match status {
            GateStatus::Resolved { resolution: first } if first.agrees_with(resolution) => {
                ResolveOutcome::AlreadyRecorded
            }
            GateStatus::Resolved { resolution: first } => ResolveOutcome::Conflict(Box::new(first)),
            other => ResolveOutcome::Closed(other),
        })
    }

    /// Withdraws the gate and discards its resolution.
    pub(crate) fn withdraw(&self, reason: &str) -> Result<GateStatus, RecordError> {
        let status = GateStatus::Withdrawn {
            reason: reason.to_owned(),
            at: now(),
        };
        let text = serde_json::to_vec(&status).unwrap_or_default();
        durable::write(&self.resolution_path, &text, 0o600, IfExists::Replace)?;
        Ok(status)
    }

    /// Closes the gate unless it is closed already; returns whether this call closed it.
    fn close(&self, status: &GateStatus) -> Result<bool, RecordError> {
        let text = serde_json::to_vec(status).unwrap_or_default();
        match durable::write(&self.resolution_path, &text, 0o600, IfExists::Fail) {
            Ok(()) => Ok(true),
            Err(WriteError::Exists(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the gate is closed.
    pub(crate) async fn wait_closed(
        &self,
        trust: &dyn TrustPolicy,
    ) -> Result<GateStatus, RecordError> {
        let paths = [self.resolution_path.clone()];
        let closed_status = || Some(self.status(trust)).filter(|status| !status.is_pending());
        loop {
            let left = match self.gate.expires_at {
                None => None,
                Some(deadline) => match deadline.0.saturating_sub(now().0) {
                    0 => {
                        let expired = GateStatus::Expired { at: now() };
                        self.close(&expired)?;
                        return Ok(match self.status(trust) {
                            GateStatus::Pending => expired,
                            other => other,
                        });
                    }
                    left => Some(DEADLINE_CHECK.min(Duration::from_millis(left))),
                },
            };
            let watched = lillux::watch::wait_until(&paths, left, closed_status).await;
            match watched {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                // Poll if watching fails, for example because there are too many watches.
                Err(_) => {
                    tokio::time::sleep(left.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL)).await;
                }
            }
            if let Some(status) = closed_status() {
                return Ok(status);
            }
        }
    }
}

/// Context key of the hash that an approval covers.
pub(crate) const QUESTION_HASH: &str = "args_hash";

/// Hash of the text that the user is shown.
pub(crate) fn question_hash(gate: &Gate) -> String {
    let shown = serde_json::json!([gate.kind, gate.title, gate.body, gate.actions]);
    lillux::Hash::digest(format!("rye question 1\n{shown}")).to_hex()
}

pub(crate) fn now() -> Millis {
    Millis(u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default())
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

impl RunStore {
    /// Gates of all runs, open and closed, ordered by creation time.
    pub fn gate_files(&self) -> Result<Vec<GateFile>, RecordError> {
        let mut all = Vec::new();
        for run in self.all()? {
            let Ok(entries) = fs::read_dir(run.run_dir().join("gates")) else {
                continue;
            };
            for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                let name = path.file_name().and_then(|name| name.to_str());
                let Some(stem) = name.and_then(|name| name.strip_suffix(".json")) else {
                    continue;
                };
                if stem.ends_with(".answer") {
                    continue;
                }
                if let Some(mut gate) = read_json::<Gate>(&path) {
                    // The user signs the text that is shown, not the hash in the file.
                    let shown = question_hash(&gate);
                    gate.context.insert(QUESTION_HASH.to_owned(), shown.into());
                    let resolution_path = path.with_file_name(format!("{stem}.answer.json"));
                    all.push(GateFile {
                        gate,
                        resolution_path,
                    });
                }
            }
        }
        all.sort_by_key(|it| it.gate.created_at);
        Ok(all)
    }

    /// Finds a gate by its id.
    pub fn gate_file(&self, id: &GateId) -> Result<Option<GateFile>, RecordError> {
        let all = self.gate_files()?;
        Ok(all.into_iter().find(|it| it.gate.id == *id))
    }
}
