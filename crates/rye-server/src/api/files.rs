//! Blobs and artifacts of sessions.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use lillux::Hash;
use rye_engine::blob::referenced_blobs;
use rye_engine::protocol::EventKind;
use rye_store::Scope;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::auth::Principal;
use crate::extract::{Params, Segments};
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// Number of events that are read at once.
const PAGE: usize = 256;

/// Where the blob belongs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct BlobParams {
    /// The session that refers to the blob. Needed unless the token gives access to all sessions.
    session: Option<String>,
}

/// Returns the bytes of a blob: long output, files and images of sessions
#[utoipa::path(
    get,
    operation_id = "getBlob",
    path = "/api/blobs/{hash}",
    tag = "files",
    params(("hash" = String, Path, description = "SHA-256 of the blob"), BlobParams),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, description = "Unknown blob", body = ProblemDocument),
    ),
)]
pub(crate) async fn blob(
    State(app): State<App>,
    who: Principal,
    Segments(name): Segments<String>,
    Params(params): Params<BlobParams>,
) -> Result<Response, Problem> {
    who.require(Scope::Read)?;
    let unknown = || Problem::not_found("blob", &name);
    let hash: Hash = name.parse().map_err(|_| unknown())?;
    match params.session {
        None => who.require_unbounded()?,
        Some(session) if who.require_unbounded().is_ok() => {
            app.sessions.session(&who, &session).await?;
        }
        Some(session) => {
            let session = app.sessions.session(&who, &session).await?;
            let archives = app.engine().export(&session.id).await?;
            if !archives
                .iter()
                .any(|it| referenced_blobs(it).contains(&hash))
            {
                return Err(unknown());
            }
        }
    }
    let bytes = app.engine().blob(&hash).await.map_err(|error| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "blob", error.to_string())
    })?;
    // Never shown as a page of this server: agents wrote it.
    let headers: [(HeaderName, HeaderValue); 4] = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        ),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::from_static("attachment"),
        ),
        (
            header::CACHE_CONTROL,
            HeaderValue::from_static("private, max-age=31536000, immutable"),
        ),
    ];
    Ok((headers, bytes.ok_or_else(unknown)?).into_response())
}

/// A file that a tool produced.
#[derive(Serialize, ToSchema)]
pub(crate) struct Artifact {
    /// Its name.
    name: String,
    /// Its MIME type.
    mime_type: String,
    /// Length in bytes.
    size: u64,
    /// Reference to the blob, `blob:HASH`.
    source: String,
    /// Sequence number of the event.
    sequence: Option<u64>,
}

/// The artifacts of a session.
#[derive(Serialize, ToSchema)]
pub(crate) struct ArtifactList {
    artifacts: Vec<Artifact>,
}

/// Lists the artifacts that the tools of a session produced, oldest first
#[utoipa::path(
    get,
    operation_id = "listArtifacts",
    path = "/api/sessions/{session}/artifacts",
    tag = "files",
    params(("session" = String, Path, description = "Id of the session")),
    responses(
        (status = 200, body = ArtifactList),
        (status = 404, description = "Unknown session", body = ProblemDocument),
    ),
)]
pub(crate) async fn artifacts(
    State(app): State<App>,
    who: Principal,
    Segments(session): Segments<String>,
) -> Result<Json<ArtifactList>, Problem> {
    who.require(Scope::Read)?;
    let session = app.sessions.session(&who, &session).await?;
    let (mut artifacts, mut last) = (Vec::new(), 0);
    loop {
        let page = app.engine().events(&session.id, last, PAGE).await?;
        let Some(sequence) = page.last().and_then(|event| event.sequence) else {
            return Ok(Json(ArtifactList { artifacts }));
        };
        last = sequence;
        artifacts.extend(page.into_iter().filter_map(|event| match event.kind {
            EventKind::Artifact {
                name,
                mime_type,
                size,
                source,
            } => Some(Artifact {
                name,
                mime_type,
                size,
                source,
                sequence: event.sequence,
            }),
            _ => None,
        }));
    }
}
