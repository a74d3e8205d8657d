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

/// How long the file system is listened to at a time: nobody is told that a run was dropped.
const SLICE: Duration = Duration::from_secs(2);

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
        loop {
            let status = self.status();
            if !status.is_pending() {
                return Ok(status);
            }
            let mut slice = SLICE;
            if let Some(deadline) = self.gate.expires_at {
                let now = now();
                if now.0 >= deadline.0 {
                    self.end(&GateStatus::Expired { at: now })?;
                    continue;
                }
                slice = slice.min(Duration::from_millis(deadline.0 - now.0));
            }
            let paths = vec![self.answer.clone()];
            let heard = tokio::task::spawn_blocking(move || {
                // One that came between the look and the wait is seen at the next look.
                lillux::watch::paths(&paths, Some(slice.min(Duration::from_millis(200))))
            });
            if !matches!(heard.await, Ok(Ok(_))) {
                tokio::time::sleep(Duration::from_millis(50)).await;
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
