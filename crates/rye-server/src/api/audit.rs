//! Fork, export, import and verification.

use std::fs::File;
use std::io::{BufReader, Seek as _, Write as _};
use std::path::Path;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use rye_engine::store::StoreError;
use rye_host::session_check::{
    SessionRecords, key_owners, transfer_failure, trusted_key, verdict_json, verify_file,
};
use rye_host::transfer::{self, TransferError};
use rye_host::{Failure, FailureKind};
use rye_store::Scope;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use utoipa::{IntoParams, ToSchema};

use crate::auth::Principal;
use crate::extract::{Body, Params, Segments, body_bytes};
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// Media type of exported sessions.
const JSON_LINES: HeaderValue = HeaderValue::from_static("application/jsonl");

/// Where to fork a session.
#[derive(Deserialize, ToSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ForkRequest {
    /// The last entry to keep; by default the last one of the thread `default`.
    at: Option<String>,
}

/// A new session.
#[derive(Serialize, ToSchema)]
pub(crate) struct ForkedSession {
    /// Id of the fork.
    session: String,
}

/// Creates a session with the history of another one
#[utoipa::path(
    post,
    operation_id = "forkSession",
    path = "/api/sessions/{session}/fork",
    tag = "audit",
    params(("session" = String, Path, description = "Id of the session")),
    request_body = ForkRequest,
    responses(
        (status = 201, body = ForkedSession),
        (status = 404, description = "Unknown session or entry", body = ProblemDocument),
    ),
)]
pub(crate) async fn fork(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
    Body(request): Body<ForkRequest>,
) -> Result<(StatusCode, Json<ForkedSession>), Problem> {
    who.require(Scope::Prompt)?;
    let session = app.sessions.session(&who, &id).await?;
    let at = request.at.map(|entry| {
        let unknown = |_| Problem::not_found("entry", &entry);
        entry.parse().map_err(unknown)
    });
    let at = at.transpose()?;
    let fork = app.engine().fork(&session.id, at.as_ref()).await?;
    let session = fork.to_string();
    Ok((StatusCode::CREATED, Json(ForkedSession { session })))
}

/// Runs work that blocks, or that needs the keys of the user.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let work = tokio::task::spawn_blocking(work).await;
    work.unwrap_or_else(|error| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Err(Problem::new(status, "panic", error.to_string()))
    })
}

/// Exports a session with its tasks and blobs, as JSON lines with a signed hash at the end
#[utoipa::path(
    get,
    operation_id = "exportSession",
    path = "/api/sessions/{session}/export",
    tag = "audit",
    params(("session" = String, Path, description = "Id of the session")),
    responses(
        (status = 200, content_type = "application/jsonl", body = String),
        (status = 404, description = "Unknown session", body = ProblemDocument),
    ),
)]
pub(crate) async fn export(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<Response, Problem> {
    who.require(Scope::Read)?;
    let session = app.sessions.session(&who, &id).await?;
    let archives = app.engine().export(&session.id).await?;
    let mut file = blocking(move || {
        let keys = transfer::public_keys(&archives, &app.context)?;
        let signer = app.context.signing_key()?.map(AsRef::as_ref);
        let file = tempfile::tempfile().map_err(|error| failed(&error.into()))?;
        let written = transfer::export(file, archives, &keys, signer, app.engine());
        let (mut file, _) = Handle::current()
            .block_on(written)
            .map_err(|error| failed(&error))?;
        file.rewind().map_err(|error| failed(&error.into()))?;
        Ok(file)
    })
    .await?;
    let mut bytes = Vec::new();
    let bytes = blocking(move || {
        let read = std::io::Read::read_to_end(&mut file, &mut bytes);
        read.map_err(|error| failed(&error.into()))?;
        Ok(bytes)
    });
    let headers = [
        (header::CONTENT_TYPE, JSON_LINES),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::from_static("attachment; filename=\"session.jsonl\""),
        ),
    ];
    Ok((headers, HttpBody::from(bytes.await?)).into_response())
}

fn failed(error: &TransferError) -> Problem {
    transfer_failure(Path::new("the export"), error).into()
}

/// How to import.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ImportParams {
    /// Import sessions that cannot be verified; their decisions don't count.
    #[serde(default)]
    allow_unverified: bool,
}

/// Imports exported sessions
///
/// Needs a token that gives access to all sessions, because the file names their owners.
#[utoipa::path(
    post,
    operation_id = "importSessions",
    path = "/api/sessions/import",
    tag = "audit",
    params(ImportParams),
    request_body(content = String, content_type = "application/jsonl"),
    responses(
        (status = 201, description = "Imported", body = Object),
        (status = 409, description = "A session exists", body = ProblemDocument),
        (status = 422, description = "The file cannot be verified", body = ProblemDocument),
    ),
)]
pub(crate) async fn import(
    State(app): State<App>,
    who: Principal,
    Params(params): Params<ImportParams>,
    request: Request,
) -> Result<(StatusCode, Json<Value>), Problem> {
    who.require(Scope::Admin)?;
    who.require_unbounded()?;
    let bytes = body_bytes(request).await?;
    let imported = blocking(move || {
        let file = write_temporary(&bytes).map_err(|error| failed(&error.into()))?;
        let work = import_file(&app, file, params.allow_unverified);
        Handle::current().block_on(work).map_err(Problem::from)
    });
    Ok((StatusCode::CREATED, Json(imported.await?)))
}

fn write_temporary(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

async fn import_file(app: &App, mut file: File, allow: bool) -> Result<Value, Failure> {
    let name = Path::new("the request");
    let bad = |error: TransferError| transfer_failure(name, &error);
    let content = transfer::read(BufReader::new(&file)).map_err(bad)?;
    let library = app.context.library()?;
    let trust = library.trust();
    let key = |name: &str| trusted_key(&trust, name);
    let verdicts = verify_file(name, &content, key);
    let findings = verdicts.iter().flat_map(|(_, verdict)| &verdict.findings);
    let findings: Vec<_> = findings
        .map(|it| format!("{}: {}", it.location, it.reason))
        .collect();
    if !findings.is_empty() && !allow {
        let message = format!("cannot verify the sessions: {}", findings.join("; "));
        return Err(Failure::new(FailureKind::Integrity, "unverified", message));
    }
    let engine = app.engine();
    transfer::check_not_present(engine, &content).await?;
    file.rewind().map_err(|error| bad(error.into()))?;
    transfer::import_blobs(engine, &file, bad).await?;
    let imported = transfer::import_sessions(engine, content, findings, key).await?;
    Ok(json!({
        "sessions": imported.sessions,
        "unverified": imported.unverified,
        "blobs": imported.blobs,
        "missing_blobs": imported.missing,
    }))
}

/// Verifies the record of a session: hash chain, seals, receipts and blobs
///
/// The record is intact if all `findings` and `unsealed` are empty.
#[utoipa::path(
    get,
    operation_id = "verifySession",
    path = "/api/sessions/{session}/verify",
    tag = "audit",
    params(("session" = String, Path, description = "Id of the session")),
    responses(
        (status = 200, body = Object),
        (status = 404, description = "Unknown session", body = ProblemDocument),
    ),
)]
pub(crate) async fn verify(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<Json<Value>, Problem> {
    who.require(Scope::Read)?;
    let session = app.sessions.session(&who, &id).await?;
    let archives = app.engine().export(&session.id).await.map_err(altered)?;
    let blobs = app.engine().blob_statuses(&archives).await;
    let verdicts = blocking(move || {
        let records = SessionRecords {
            archives,
            file_finding: None,
            blobs,
        };
        let library = app.context.library()?;
        let trust = library.trust();
        let verdicts = records.verify(|name| trusted_key(&trust, name));
        let owners = key_owners(&verdicts, &trust);
        let all = verdicts.iter();
        let all = all.map(|(id, verdict)| verdict_json(id, verdict, &owners));
        let verified = verdicts.iter().all(|(_, verdict)| verdict.is_verified());
        Ok(json!({ "verified": verified, "sessions": all.collect::<Vec<_>>() }))
    });
    Ok(Json(verdicts.await?))
}

/// An unreadable record counts as altered.
fn altered(error: StoreError) -> Problem {
    match error {
        StoreError::Unreadable(_) | StoreError::Damaged(_) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            Problem::new(status, "altered", error.to_string())
        }
        other => other.into(),
    }
}
