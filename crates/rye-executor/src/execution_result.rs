//! Result of a call, in the form that all interfaces report.

use std::time::Duration;

use lillux::Hash;
use rye_items::ItemRef;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::chain::{Chain, Pair};
use crate::error::ExecuteError;
use crate::primitive::CallOutcome;

/// Result of a call, as the CLI and the MCP server report it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExecutionResult {
    /// Whether the call succeeded.
    pub status: Status,
    /// Item kind; always `tool`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Id of the executed item.
    pub item_id: String,
    /// Output of the tool.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub data: Value,
    /// The error, if the call failed or was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Ids of the chain's links, the tool first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
    /// Compatibility of neighbouring links, in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validated_pairs: Option<Vec<Pair>>,
    /// Duration, exit code, chain hash, warnings and data of the primitive.
    pub metadata: Map<String, Value>,
}

/// Status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The call ran and succeeded.
    Success,
    /// The call failed or was refused.
    Error,
    /// A dry run passed all checks.
    ValidationPassed,
}

/// Error of a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorInfo {
    /// Stable error code for scripts.
    pub code: String,
    /// Explanation for the user.
    pub message: String,
    /// Advice on how to fix the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Schema violations of the parameters; null for other errors.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub violations: Value,
}

impl ExecutionResult {
    /// Result of a call that the primitive carried out.
    pub(crate) fn from_outcome(
        chain: &Chain,
        hash: Hash,
        outcome: CallOutcome,
        mut warnings: Vec<String>,
        duration: Duration,
    ) -> Self {
        let mut metadata = Map::new();
        metadata.insert("duration_ms".into(), milliseconds(duration));
        metadata.insert("exit_code".into(), json!(outcome.exit_code));
        metadata.insert("chain_hash".into(), json!(hash));
        metadata.extend(outcome.metadata);
        if let Some(Value::Array(own)) = metadata.remove("warnings") {
            warnings.extend(own.iter().filter_map(Value::as_str).map(str::to_owned));
        }
        let links = chain.links.iter().chain(chain.named.values());
        let waived = links.filter_map(|link| {
            let error = link.item.waived.as_ref()?;
            Some(format!(
                "unverified item accepted because of RYE_DEV_MODE: {error}"
            ))
        });
        warnings.extend(waived);
        if !warnings.is_empty() {
            metadata.insert("warnings".into(), warnings.into());
        }
        let error = outcome.failure.map(|failure| ErrorInfo {
            code: failure.code.to_owned(),
            message: failure.message,
            hint: failure.hint,
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
            data: outcome.data,
            error,
            chain: chain.ids(),
            validated_pairs: None,
            metadata,
        }
    }

    /// Result of a dry run that passed all checks.
    pub(crate) fn dry_run(
        chain: &Chain,
        hash: Hash,
        pairs: Vec<Pair>,
        warnings: Vec<String>,
        duration: Duration,
    ) -> Self {
        let mut metadata = Map::new();
        metadata.insert("duration_ms".into(), milliseconds(duration));
        metadata.insert("chain_hash".into(), json!(hash));
        if !warnings.is_empty() {
            metadata.insert("warnings".into(), warnings.into());
        }
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

    /// Result of a call that was refused before anything ran.
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
