//! Event streams.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _};
use rye_store::Scope;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Sessions;
use crate::all_events::AllEvents;
use crate::auth::Principal;
use crate::cursor::Cursor;
use crate::events::{Filter, Frame, SessionStream};
use crate::extract::{Params, Segments};
use crate::metrics::{OpenStream, Transport};
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// Interval of comments that keep proxies from closing an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Header with the position of a client that reconnects.
const LAST_EVENT_ID: &str = "last-event-id";

/// Selects events.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventParams {
    /// Only events after this position; 0 for all. Without it, the stream starts with the state
    /// of the session.
    pub(super) after: Option<String>,
    /// Only events with these names, separated by commas.
    pub(super) types: Option<String>,
    /// Only events of this thread, by key or id.
    pub(super) thread: Option<String>,
    /// `idle`: end the stream when the session is idle. The response is 204 if it is idle and has
    /// no further events, so that a browser does not reconnect.
    pub(super) until: Option<String>,
}

/// Streams the events of a session as Server-Sent Events
///
/// Stored events have an `id`; send the last one as `Last-Event-ID` or `after` to continue from
/// there, at any server of this store and after any time.
#[utoipa::path(
    get,
    operation_id = "streamEvents",
    path = "/api/sessions/{session}/events",
    tag = "events",
    params(
        ("session" = String, Path, description = "Id of the session"),
        EventParams,
        ("Last-Event-ID" = Option<String>, Header, description = "Position of a client that reconnects; takes precedence over `after`"),
    ),
    responses(
        (status = 200, description = "The events", content_type = "text/event-stream", body = String),
        (status = 204, description = "The session is idle and has no further events"),
        (status = 400, description = "Malformed cursor", body = ProblemDocument),
        (status = 404, description = "Unknown session or thread", body = ProblemDocument),
    ),
)]
pub(crate) async fn events(
    State(app): State<App>,
    who: Principal,
    Segments(session): Segments<String>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    who.require(Scope::Read)?;
    let last = headers.get(LAST_EVENT_ID);
    let last = last.map(|value| value.to_str().unwrap_or_default().to_owned());
    let stream = open(&app, &who, &session, params, last).await?;
    let Some(stream) = stream else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    Ok(sse(&app, stream.into_stream()))
}

/// Selects events of all sessions.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AllEventParams {
    /// Only events with these names, separated by commas.
    types: Option<String>,
}

/// Streams the events of all sessions that the caller can see
///
/// The first event is `init`: the unfinished sessions, each with its position. Events have no `id`
/// but their position in `cursor`, with which the stream of their session continues.
#[utoipa::path(
    get,
    operation_id = "streamAllEvents",
    path = "/api/events",
    tag = "events",
    params(AllEventParams),
    responses((status = 200, content_type = "text/event-stream", body = String)),
)]
pub(crate) async fn all_events(
    State(app): State<App>,
    who: Principal,
    Params(params): Params<AllEventParams>,
) -> Result<Response, Problem> {
    who.require(Scope::Read)?;
    let filter = Filter {
        types: names(params.types),
        thread: None,
    };
    let events = AllEvents::new(app.clone(), who, filter).await?;
    Ok(sse(&app, events.into_stream()))
}

/// Splits names at commas.
fn names(list: Option<String>) -> BTreeSet<String> {
    let list = list.unwrap_or_default();
    let names = list.split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Opens a stream of a session; `None` if it would end without an event.
pub(super) async fn open(
    app: &App,
    who: &Principal,
    session: &str,
    params: EventParams,
    last: Option<String>,
) -> Result<Option<SessionStream>, Problem> {
    let cursor = last.filter(|last| !last.is_empty()).or(params.after);
    let cursor = cursor.map(|text| {
        let detail = format!("`{text}` is not a cursor");
        Cursor::parse(&text).ok_or_else(|| Problem::invalid("invalid_cursor", detail))
    });
    let cursor = cursor.transpose()?;
    let until_idle = match params.until.as_deref() {
        None => false,
        Some("idle") => true,
        Some(_) => return Err(Problem::invalid("invalid_query", "until must be idle")),
    };
    let snapshot = app.sessions.snapshot(who, session).await?;
    let thread = params.thread.map(|name| Sessions::thread(&snapshot, &name));
    let filter = Filter {
        types: names(params.types),
        thread: thread.transpose()?.map(|thread| thread.id),
    };
    let is_resumed = cursor.is_some();
    let stream = SessionStream::new(
        &app.sessions,
        snapshot,
        cursor.as_ref(),
        filter,
        until_idle,
        app.draining.clone(),
    )
    .await?;
    if until_idle && is_resumed && !stream.has_frames() && stream.is_idle().await? {
        return Ok(None);
    }
    Ok(Some(stream))
}

/// A response with a stream of frames.
fn sse(app: &App, frames: impl Stream<Item = Frame> + Send + 'static) -> Response {
    let open = OpenStream::new(app, Transport::Sse);
    let events = frames.map(move |frame| {
        open.sent(&frame);
        Ok::<_, Infallible>(sse_event(frame))
    });
    let mut response = Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Otherwise nginx collects events before it sends them.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn sse_event(frame: Frame) -> Event {
    let mut event = Event::default()
        .event(frame.name)
        .data(frame.data.to_string());
    if let Some(cursor) = frame.cursor {
        event = event.id(cursor.to_string());
    }
    if let Some(delay) = frame.retry {
        event = event.retry(delay);
    }
    event
}
