//! What comes back from a call.

use std::time::Duration;

use lillux::Hash;
use rye_items::ItemRef;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::chain::{Chain, Pair};
use crate::error::ExecuteError;
use crate::primitive::CallOutcome;

/// The result of a call, in the form that all surfaces give.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Envelope {
    /// How it went.
    pub status: Status,
    /// `tool`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What was called.
    pub item_id: String,
    /// What it gave.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub data: Value,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// The chain that ran, the tool first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
    /// The neighbours of the chain, in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validated_pairs: Option<Vec<Pair>>,
    /// How long it took, how it ended, what exactly ran.
    pub metadata: Map<String, Value>,
}

/// How a call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It ran and succeeded.
    Success,
    /// It failed, or was not run.
    Error,
    /// A dry run: it would be run.
    ValidationPassed,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorInfo {
    /// A stable word for scripts.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do, where there is one thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// All that is wrong with the parameters.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub violations: Value,
}

impl Envelope {
    /// Of a call that was carried out.
    pub(crate) fn from_outcome(
        chain: &Chain,
        hash: Hash,
        done: CallOutcome,
        mut warnings: Vec<String>,
        duration: Duration,
    ) -> Self {
        let mut metadata = Map::new();
        metadata.insert("duration_ms".into(), milliseconds(duration));
        metadata.insert("exit_code".into(), json!(done.exit_code));
        metadata.insert("chain_hash".into(), json!(hash));
        metadata.extend(done.metadata);
        let links = chain.links.iter().chain(chain.named.values());
        let waived = links.filter_map(|link| {
            let error = link.item.waived.as_ref()?;
            Some(format!("RYE_DEV_MODE lets it pass: {error}"))
        });
        warnings.extend(waived);
        if !warnings.is_empty() {
            metadata.insert("warnings".into(), warnings.into());
        }
        let error = done.failure.map(|failed| ErrorInfo {
            code: failed.code.to_owned(),
            message: failed.message,
            hint: failed.hint,
            violations: Value::Null,
        });
        Self {
            status: if error.is_some() {
                Status::Error
            } else {
                Status::Success
            },
            kind: "tool",
            item_id: chain.tool().id().to_string(),
            data: done.data,
            error,
            chain: chain.ids(),
            validated_pairs: None,
            metadata,
        }
    }

    /// Of a dry run in which everything fits.
    pub(crate) fn dry_run(chain: &Chain, hash: Hash, pairs: Vec<Pair>, duration: Duration) -> Self {
        let mut metadata = Map::new();
        metadata.insert("duration_ms".into(), milliseconds(duration));
        metadata.insert("chain_hash".into(), json!(hash));
        Self {
            status: Status::ValidationPassed,
            kind: "tool",
            item_id: chain.tool().id().to_string(),
            data: Value::Null,
            error: None,
            chain: chain.ids(),
            validated_pairs: Some(pairs),
            metadata,
        }
    }

    /// Of a call that was refused: nothing ran.
    pub fn from_error(item: &ItemRef, error: &ExecuteError, duration: Duration) -> Self {
        let mut metadata = Map::new();
        metadata.insert("duration_ms".into(), milliseconds(duration));
        Self {
            status: Status::Error,
            kind: "tool",
            item_id: item.id.to_string(),
            data: Value::Null,
            error: Some(ErrorInfo {
                code: error.code().to_owned(),
                message: error.to_string(),
                hint: error.hint(),
                violations: error.violations(),
            }),
            chain: Vec::new(),
            validated_pairs: None,
            metadata,
        }
    }
}

fn milliseconds(duration: Duration) -> Value {
    json!(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
