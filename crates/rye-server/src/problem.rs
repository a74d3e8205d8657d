//! Errors of the API: `application/problem+json` with a stable `code` (RFC 9457).

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rye_automation::AutomationError;
use rye_engine::clock::{Clock as _, SystemClock};
use rye_engine::quotas::{QuotaError, QuotaLimit};
use rye_engine::store::StoreError;
use rye_engine::{DecideError, InvalidSession, WithdrawError};
use rye_host::{Failure, FailureKind};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// Media type of errors.
pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Why a request failed.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Box<Details>);

#[derive(Debug, Clone)]
struct Details {
    status: StatusCode,
    code: &'static str,
    detail: String,
    fields: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// The body of an error response.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the JSON of a problem")]
pub(crate) struct ProblemDocument {
    /// Always `about:blank`; `code` identifies the problem.
    r#type: String,
    /// Name of the status.
    title: String,
    /// The HTTP status.
    status: u16,
    /// Stable code of the problem, in `snake_case`.
    code: String,
    /// What is wrong, for people.
    detail: String,
    /// A command or request that helps.
    hint: Option<String>,
}

impl Problem {
    /// A problem with a status and a stable code.
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self(Box::new(Details {
            status,
            code,
            detail: detail.into(),
            fields: Map::new(),
            headers: Vec::new(),
        }))
    }

    /// The request is invalid.
    pub(crate) fn invalid(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// The object does not exist, or the caller may not know that it does.
    pub(crate) fn not_found(kind: &str, id: &str) -> Self {
        let detail = format!("there is no {kind} {id}");
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// Adds a member.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.fields.insert(key.to_owned(), value.into());
        self
    }

    /// Adds a hint.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        self.with("hint", hint.into())
    }

    /// Adds a header to the response.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// Asks the client to try again later.
    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        self.header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The body.
    pub(crate) fn json(&self) -> Value {
        let mut body = json!({
            "type": "about:blank",
            "title": self.0.status.canonical_reason().unwrap_or("Error"),
            "status": self.0.status.as_u16(),
            "code": self.0.code,
            "detail": self.0.detail,
        });
        for (key, value) in &self.0.fields {
            body[key] = value.clone();
        }
        body
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        if self.0.status.is_server_error() {
            tracing::warn!(code = self.0.code, detail = self.0.detail, "request failed");
        }
        let mut response = (self.0.status, Json(self.json())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
        for (name, value) in self.0.headers {
            headers.append(name, value);
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        let new = |status, code| Self::new(status, code, detail.clone());
        match error {
            StoreError::NotFound { .. } => new(StatusCode::NOT_FOUND, "not_found"),
            StoreError::Conflict { .. } => new(StatusCode::CONFLICT, "conflict"),
            StoreError::InUse { .. } => new(StatusCode::CONFLICT, "in_use"),
            StoreError::Fenced(_) => new(StatusCode::CONFLICT, "fenced").retry_after(1),
            StoreError::GateClosed(_) => new(StatusCode::GONE, "gate_closed"),
            StoreError::Archived(_) => new(StatusCode::CONFLICT, "thread_archived"),
            StoreError::SingleCall(_) | StoreError::Task(_) | StoreError::Terminated(_) => {
                new(StatusCode::CONFLICT, "takes_no_prompts")
            }
            StoreError::NotRunHere(_) => {
                new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down").retry_after(1)
            }
            StoreError::Setup(..) => new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_project"),
            StoreError::Sandbox(..) => {
                new(StatusCode::SERVICE_UNAVAILABLE, "sandbox").hint("rye sandbox check")
            }
            StoreError::Unavailable(_) => {
                new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable").retry_after(1)
            }
            StoreError::Damaged(_) | StoreError::Unreadable(_) => {
                new(StatusCode::INTERNAL_SERVER_ERROR, "store_damaged").hint("rye doctor")
            }
            StoreError::SessionFailed { .. } => {
                new(StatusCode::INTERNAL_SERVER_ERROR, "session_failed")
            }
            _ => new(StatusCode::INTERNAL_SERVER_ERROR, "store"),
        }
    }
}

impl From<AutomationError> for Problem {
    fn from(error: AutomationError) -> Self {
        let detail = error.to_string();
        let invalid = |code| Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail.clone());
        match error {
            AutomationError::Store(error) => error.into(),
            AutomationError::InvalidCron { .. } | AutomationError::NeverDue(_) => {
                invalid("invalid_cron")
            }
            AutomationError::UnknownTimeZone(_) => invalid("unknown_time_zone"),
            AutomationError::Busy { .. } => {
                Self::new(StatusCode::CONFLICT, "conflict", detail).retry_after(1)
            }
            AutomationError::Secret(_) | AutomationError::HttpClient(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "secret", detail)
            }
            _ => invalid("invalid_definition"),
        }
    }
}

impl From<QuotaError> for Problem {
    fn from(error: QuotaError) -> Self {
        let exceeded = match error {
            QuotaError::Exceeded(exceeded) => exceeded,
            QuotaError::Store(error) => return error.into(),
            error => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                return Self::new(status, "quota", error.to_string());
            }
        };
        let (status, code) = match exceeded.limit {
            QuotaLimit::Turns => (StatusCode::TOO_MANY_REQUESTS, "too_many_turns"),
            _ => (StatusCode::PAYMENT_REQUIRED, "budget_exceeded"),
        };
        let (kind, limit): (&str, &str) = (exceeded.subject.kind.into(), exceeded.limit.into());
        let wait = SystemClock::default().now().until(exceeded.renews_at);
        Self::new(status, code, exceeded.to_string())
            .with(
                "owner",
                json!({ "kind": kind, "name": exceeded.subject.name }),
            )
            .with("limit", limit)
            .with("allowed", exceeded.allowed)
            .with("used", exceeded.used)
            .with("renews_at", exceeded.renews_at.0)
            .retry_after(wait.as_secs().max(1))
    }
}

impl From<InvalidSession> for Problem {
    fn from(error: InvalidSession) -> Self {
        let (code, hint) = match &error {
            InvalidSession::Model(_) => ("unknown_model", Some("rye models list")),
            InvalidSession::Tool { .. } => ("unknown_tool", None),
            InvalidSession::Compaction(_) => ("invalid_compaction", None),
            _ => ("invalid_project", None),
        };
        let problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, error.to_string());
        match hint {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

impl From<DecideError> for Problem {
    fn from(error: DecideError) -> Self {
        let detail = error.to_string();
        let invalid = |code| Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail.clone());
        match error {
            DecideError::GateNotFound(_) => Self::new(StatusCode::NOT_FOUND, "not_found", detail),
            DecideError::Store(error) => error.into(),
            DecideError::UnknownAction { .. } => invalid("unknown_action"),
            DecideError::SecretInAnswer(_) => invalid("secret_in_answer"),
            DecideError::NotEditable(_) => invalid("arguments_not_editable"),
            DecideError::InvalidArguments { .. } => invalid("invalid_arguments"),
            DecideError::InvalidAmount(_) => invalid("invalid_amount"),
            DecideError::InvalidSelection { .. } => invalid("invalid_selection"),
            DecideError::InvalidReceipt { .. } => invalid("invalid_receipt"),
            _ => invalid("decision_refused"),
        }
    }
}

impl From<WithdrawError> for Problem {
    fn from(error: WithdrawError) -> Self {
        let detail = error.to_string();
        match error {
            WithdrawError::Running(_) => Self::new(StatusCode::CONFLICT, "prompt_running", detail),
            WithdrawError::Ended(_) => Self::new(StatusCode::GONE, "prompt_ended", detail),
            WithdrawError::GateClosed(_) => Self::new(StatusCode::GONE, "gate_closed", detail),
            WithdrawError::Store(error) => error.into(),
            _ => Self::new(StatusCode::CONFLICT, "not_withdrawn", detail),
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let status = match (failure.kind, failure.code) {
            (_, "not_found") => StatusCode::NOT_FOUND,
            (_, "conflict" | "ambiguous" | "exists" | "in_use") => StatusCode::CONFLICT,
            (_, "disk_full") => StatusCode::INSUFFICIENT_STORAGE,
            (FailureKind::Usage, _) => StatusCode::BAD_REQUEST,
            (FailureKind::Permission, _) => StatusCode::FORBIDDEN,
            (FailureKind::GatePending, _) => StatusCode::CONFLICT,
            (FailureKind::TimedOut, _) => StatusCode::GATEWAY_TIMEOUT,
            (FailureKind::Interrupted | FailureKind::Terminated, _) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let mut problem = Self::new(status, failure.code, failure.message);
        for (key, value) in failure.details {
            problem = problem.with(key, value);
        }
        match failure.hint {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}
