//! Answers that are on their way, so that none is cut off when the server ends.

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

/// How long is waited for clients that do not take their answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// The answers to all requests that have not been sent to their end.
#[derive(Clone, Default)]
pub(super) struct Answers(TaskTracker);

impl Answers {
    /// Waits until all are sent.
    pub(super) async fn sent(&self) {
        self.0.close();
        let _ = tokio::time::timeout(PATIENCE, self.0.wait()).await;
    }

    /// Follows the answer to a request to its end. The stream that a client listens to
    /// with `GET` has none, and nothing on it is awaited.
    pub(super) async fn follow(&self, request: Request, next: Next) -> Response {
        if request.method() != Method::POST {
            return next.run(request).await;
        }
        let token = self.0.token();
        let response = next.run(request).await;
        response.map(|body| {
            Body::new(Followed {
                body,
                _token: token,
            })
        })
    }
}

/// A body that is known to be on its way as long as it is there.
struct Followed {
    body: Body,
    _token: TaskTrackerToken,
}

impl HttpBody for Followed {
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
