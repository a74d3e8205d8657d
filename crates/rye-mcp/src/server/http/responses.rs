//! Tracks responses that are being sent, so that a shutdown does not cut them off.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// How long a shutdown waits for clients that do not read their responses.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Tracks responses that are not sent completely. Clones share the state.
#[derive(Clone, Default)]
pub(super) struct ResponseTracker(TaskTracker);

impl ResponseTracker {
    /// Waits until all responses are sent.
    pub(super) async fn drain(&self) {
        self.0.close();
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, self.0.wait()).await;
    }

    /// Runs a request and tracks its response. The event stream of a `GET` request has no end and
    /// is not tracked.
    pub(super) async fn track(&self, request: Request, next: Next) -> Response {
        if request.method() != Method::POST {
            return next.run(request).await;
        }
        let token = self.0.token();
        let response = next.run(request).await;
        response.map(|body| {
            Body::new(TrackedBody {
                body,
                _token: token,
            })
        })
    }
}

/// Body of a tracked response.
struct TrackedBody {
    body: Body,
    _token: TaskTrackerToken,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
