//! Questions to people, in the model of the engine's gates, beside the record of a run.
//!
//! A question is a file, and so is its answer, which is made once: whoever makes it first
//! has decided, be it a person or the clock.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lillux::durable::{self, Existing, WriteError};
use rye_protocol::{Gate, GateId, GateStatus, Millis, Resolution};

use crate::record::{RecordError, Runs};

/// How often the clock is looked at where there is a deadline: it may be set, and a machine
/// may sleep.
const LOOK: Duration = Duration::from_mins(1);
/// How often an answer is looked for where nothing can be watched.
const BLIND: Duration = Duration::from_millis(500);

/// A question that a run asks, and where its answer goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// It.
    pub gate: Gate,
    answer: PathBuf,
}

/// What came of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Posted {
    /// It is the answer.
    Written,
    /// Somebody has said the same before.
    Same,
    /// Somebody has said something else before.
    Conflict(Box<Resolution>),
    /// Nobody waits for one any more.
    Gone(GateStatus),
}

impl Question {
    /// Asks it, or finds it where it was asked before.
    pub(crate) fn ask(folder: &Path, gate: Gate) -> Result<Self, RecordError> {
        let gates = folder.join("gates");
        durable::create_folder(&gates, 0o700)?;
        let name = lillux::Hash::of(gate.id.as_str()).to_hex();
        let name = &name[..16];
        let path = gates.join(format!("{name}.json"));
        let text = serde_json::to_vec(&gate).unwrap_or_default();
        let answer = gates.join(format!("{name}.answer.json"));
        match durable::write(&path, &text, 0o600, Existing::Refuse) {
            Err(WriteError::Exists(_)) => {
                let asked = read(&path).unwrap_or(gate);
                Ok(Self {
                    gate: asked,
                    answer,
                })
            }
            outcome => {
                outcome?;
                Ok(Self { gate, answer })
            }
        }
    }

    /// How it stands.
    pub fn status(&self) -> GateStatus {
        read(&self.answer).unwrap_or(GateStatus::Pending)
    }

    /// Answers it.
    pub fn answer(&self, resolution: &Resolution) -> Result<Posted, RecordError> {
        let said = GateStatus::Resolved {
            resolution: resolution.clone(),
        };
        if self.end(&said)? {
            return Ok(Posted::Written);
        }
        Ok(match self.status() {
            GateStatus::Resolved { resolution: first } if first.agrees_with(resolution) => {
                Posted::Same
            }
            GateStatus::Resolved { resolution: first } => Posted::Conflict(Box::new(first)),
            other => Posted::Gone(other),
        })
    }

    /// Ends it, unless it has ended. Tells whether this was its end.
    fn end(&self, status: &GateStatus) -> Result<bool, RecordError> {
        let text = serde_json::to_vec(status).unwrap_or_default();
        match durable::write(&self.answer, &text, 0o600, Existing::Refuse) {
            Ok(()) => Ok(true),
            Err(WriteError::Exists(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) -> Result<GateStatus, RecordError> {
        let paths = [self.answer.clone()];
        let look = || Some(self.status()).filter(|status| !status.is_pending());
        loop {
            let left = match self.gate.expires_at {
                None => None,
                Some(deadline) => match deadline.0.saturating_sub(now().0) {
                    0 => {
                        let at = now();
                        self.end(&GateStatus::Expired { at })?;
                        return Ok(self.status());
                    }
                    left => Some(LOOK.min(Duration::from_millis(left))),
                },
            };
            let heard = lillux::watch::until(&paths, left, look).await;
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

pub(crate) fn now() -> Millis {
    Millis(u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default())
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

impl Runs {
    /// The questions of all runs, those that wait and those that do not.
    pub fn questions(&self) -> Result<Vec<Question>, RecordError> {
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
                if let Some(gate) = read(&path) {
                    let answer = path.with_file_name(format!("{stem}.answer.json"));
                    all.push(Question { gate, answer });
                }
            }
        }
        all.sort_by_key(|question| question.gate.created_at);
        Ok(all)
    }

    /// A question by its id.
    pub fn question(&self, id: &GateId) -> Result<Option<Question>, RecordError> {
        let all = self.questions()?;
        Ok(all.into_iter().find(|question| question.gate.id == *id))
    }
}
