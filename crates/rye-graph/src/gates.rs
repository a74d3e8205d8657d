//! Questions to people, in the model of the engine's gates, beside the record of a run.
//!
//! A question is a file, and so is its answer, which is made once: whoever makes it first
//! has decided, be it a person or the clock.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lillux::durable::{self, IfExists, WriteError};
use rye_protocol::{Gate, GateId, GateStatus, Millis, Resolution};

mod asking;

use crate::record::{RecordError, RunStore, TrustPolicy};

pub use asking::PendingIndex;

/// How often the clock is looked at where there is a deadline: it may be set, and a machine
/// may sleep.
const LOOK: Duration = Duration::from_mins(1);
/// How often an answer is looked for where nothing can be watched.
const BLIND: Duration = Duration::from_millis(500);

/// A question that a run asks, and where its answer goes.
#[derive(Debug, Clone, PartialEq)]
pub struct GateFile {
    /// It.
    pub gate: Gate,
    answer: PathBuf,
}

/// What came of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ResolveOutcome {
    /// It is the answer.
    Recorded,
    /// Somebody has said the same before.
    AlreadyRecorded,
    /// Somebody has said something else before.
    Conflict(Box<Resolution>),
    /// Nobody waits for one any more.
    Closed(GateStatus),
}

impl GateFile {
    /// Where it and its answer are, in the folder of a run.
    fn paths(folder: &Path, gate: &GateId) -> (PathBuf, PathBuf) {
        let gates = folder.join("gates");
        let name = lillux::Hash::digest(gate.as_str()).to_hex();
        let name = &name[..16];
        let answer = gates.join(format!("{name}.answer.json"));
        (gates.join(format!("{name}.json")), answer)
    }

    /// Asks it. Where it was asked before, the answer to that is the answer to it.
    pub(crate) fn ask(folder: &Path, gate: Gate) -> Result<Self, RecordError> {
        let (path, answer) = Self::paths(folder, &gate.id);
        durable::create_dir(&folder.join("gates"), 0o700)?;
        let text = serde_json::to_vec(&gate).unwrap_or_default();
        if fs::read(&path).ok().as_deref() != Some(&text) {
            durable::write(&path, &text, 0o600, IfExists::Replace)?;
        }
        Ok(Self { gate, answer })
    }

    /// What was asked under this id before, whoever says so.
    pub(crate) fn asked(folder: &Path, gate: &GateId) -> Option<Gate> {
        read(&Self::paths(folder, gate).0)
    }

    /// A question that the record of a run tells of.
    pub(crate) fn of(folder: &Path, gate: Gate) -> Self {
        let (_, answer) = Self::paths(folder, &gate.id);
        Self { gate, answer }
    }

    /// How it stands. What a person is said to have decided counts with their receipt for
    /// this very question, and the end of its time when that is over.
    pub fn status(&self, trust: &dyn TrustPolicy) -> GateStatus {
        let counts = match self.said() {
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
            self.said()
        } else {
            GateStatus::Pending
        }
    }

    fn said(&self) -> GateStatus {
        read(&self.answer).unwrap_or(GateStatus::Pending)
    }

    /// Answers it.
    pub fn resolve(
        &self,
        resolution: &Resolution,
        trust: &dyn TrustPolicy,
    ) -> Result<ResolveOutcome, RecordError> {
        let said = GateStatus::Resolved {
            resolution: resolution.clone(),
        };
        if self.end(&said)? {
            return Ok(ResolveOutcome::Recorded);
        }
        let status = self.status(trust);
        if status.is_pending() {
            // What is there is nobody's word.
            let text = serde_json::to_vec(&said).unwrap_or_default();
            durable::write(&self.answer, &text, 0o600, IfExists::Replace)?;
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

    /// Takes it back, and with it whatever was said to it.
    pub(crate) fn withdraw(&self, reason: &str) -> Result<GateStatus, RecordError> {
        let status = GateStatus::Withdrawn {
            reason: reason.to_owned(),
            at: now(),
        };
        let text = serde_json::to_vec(&status).unwrap_or_default();
        durable::write(&self.answer, &text, 0o600, IfExists::Replace)?;
        Ok(status)
    }

    /// Ends it, unless it has ended. Tells whether this was its end.
    fn end(&self, status: &GateStatus) -> Result<bool, RecordError> {
        let text = serde_json::to_vec(status).unwrap_or_default();
        match durable::write(&self.answer, &text, 0o600, IfExists::Fail) {
            Ok(()) => Ok(true),
            Err(WriteError::Exists(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self, trust: &dyn TrustPolicy) -> Result<GateStatus, RecordError> {
        let paths = [self.answer.clone()];
        let look = || Some(self.status(trust)).filter(|status| !status.is_pending());
        loop {
            let left = match self.gate.expires_at {
                None => None,
                Some(deadline) => match deadline.0.saturating_sub(now().0) {
                    0 => {
                        let expired = GateStatus::Expired { at: now() };
                        self.end(&expired)?;
                        return Ok(match self.status(trust) {
                            GateStatus::Pending => expired,
                            other => other,
                        });
                    }
                    left => Some(LOOK.min(Duration::from_millis(left))),
                },
            };
            let heard = lillux::watch::wait_until(&paths, left, look).await;
            match heard {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                // Where nothing can be watched, as when too many are at it, one has to look.
                Err(_) => tokio::time::sleep(left.unwrap_or(BLIND).min(BLIND)).await,
            }
            if let Some(status) = look() {
                return Ok(status);
            }
        }
    }
}

/// Where a gate keeps the hash of what is asked: an approval is of that and nothing else.
pub(crate) const QUESTION: &str = "args_hash";

/// The hash of what a person is shown.
pub(crate) fn question_hash(gate: &Gate) -> String {
    let shown = serde_json::json!([gate.kind, gate.title, gate.body, gate.actions]);
    lillux::Hash::digest(format!("rye question 1\n{shown}")).to_hex()
}

pub(crate) fn now() -> Millis {
    Millis(u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default())
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

impl RunStore {
    /// The questions of all runs, those that wait and those that do not.
    pub fn gate_files(&self) -> Result<Vec<GateFile>, RecordError> {
        let mut all = Vec::new();
        for run in self.all()? {
            let Ok(entries) = fs::read_dir(run.folder().join("gates")) else {
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
                if let Some(mut gate) = read::<Gate>(&path) {
                    // Who answers it signs what they were shown, whatever the file says of it.
                    let shown = question_hash(&gate);
                    gate.context.insert(QUESTION.to_owned(), shown.into());
                    let answer = path.with_file_name(format!("{stem}.answer.json"));
                    all.push(GateFile { gate, answer });
                }
            }
        }
        all.sort_by_key(|question| question.gate.created_at);
        Ok(all)
    }

    /// A question by its id.
    pub fn gate_file(&self, id: &GateId) -> Result<Option<GateFile>, RecordError> {
        let all = self.gate_files()?;
        Ok(all.into_iter().find(|question| question.gate.id == *id))
    }
}
