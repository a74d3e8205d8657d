//! Server-sent events with a limited size per event.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use futures_util::StreamExt as _;
use reqwest::Response;
use rmcp::model::RequestId;
use sse_stream::{Error, Sse, SseStream};

use super::too_long_error;

/// Event stream type of the SDK.
pub(super) type EventStream =
    Pin<Box<dyn futures_util::Stream<Item = Result<Sse, Error>> + Send + 'static>>;

/// The events of a response. An event that exceeds the limit ends the stream, with an error as
/// the answer to the request.
pub(super) fn bounded_events(
    response: Response,
    limit: usize,
    request: Option<RequestId>,
) -> EventStream {
    let mut length = EventLength::default();
    let bytes = response.bytes_stream().map(move |chunk| {
        let chunk: Bytes = chunk.map_err(BodyError::Transport)?;
        if length.add(&chunk) > limit {
            return Err(BodyError::TooLong);
        }
        Ok(chunk)
    });
    Box::pin(Events {
        events: Some(Box::pin(SseStream::from_bytes_stream(bytes))),
        request,
    })
}

struct Events<S> {
    /// `None` once the stream has ended.
    events: Option<Pin<Box<S>>>,
    request: Option<RequestId>,
}

impl<S> futures_util::Stream for Events<S>
where
    S: futures_util::Stream<Item = Result<Sse, Error>>,
{
    type Item = Result<Sse, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(events) = &mut self.events else {
            return Poll::Ready(None);
        };
        let event = ready!(events.as_mut().poll_next(context));
        match &event {
            Some(Err(Error::Body(error))) if is_too_long(&**error) => {
                self.events = None;
                let error = self.request.take().map(too_long_error);
                let error = error.and_then(|error| serde_json::to_string(&error).ok());
                Poll::Ready(error.map(|error| Ok(Sse::default().data(error))))
            }
            Some(_) => Poll::Ready(event),
            None => {
                self.events = None;
                Poll::Ready(None)
            }
        }
    }
}

/// Why the body of a response ended early.
#[derive(Debug)]
enum BodyError {
    Transport(reqwest::Error),
    TooLong,
}

impl std::error::Error for BodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Transport(error) => Some(error),
            Self::TooLong => None,
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => error.fmt(f),
            Self::TooLong => f.write_str("an event exceeds the size limit"),
        }
    }
}

fn is_too_long(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(BodyError::TooLong))
}

/// Length of the event that is being read.
#[derive(Debug, Default)]
struct EventLength {
    event: usize,
    line: usize,
    is_comment: bool,
    after_cr: bool,
}

impl EventLength {
    /// Adds bytes and returns the greatest length of an event in them.
    fn add(&mut self, bytes: &[u8]) -> usize {
        let mut longest = 0;
        for byte in bytes {
            let is_second = std::mem::take(&mut self.after_cr) && *byte == b'\n';
            match byte {
                b'\n' if is_second => {}
                b'\r' | b'\n' => {
                    self.after_cr = *byte == b'\r';
                    self.end_line();
                }
                _ => {
                    if self.line == 0 {
                        self.is_comment = *byte == b':';
                    }
                    self.line += 1;
                    longest = longest.max(self.event + self.line);
                }
            }
        }
        longest
    }

    /// An empty line ends the event; comments do not count.
    fn end_line(&mut self) {
        if self.line == 0 {
            self.event = 0;
        } else if !self.is_comment {
            self.event += self.line + 1;
        }
        self.line = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The greatest length if the text arrives in chunks of this size.
    fn longest(text: &str, chunk: usize) -> usize {
        let mut length = EventLength::default();
        let chunks = text.as_bytes().chunks(chunk);
        let all = chunks.map(|chunk| length.add(chunk));
        all.max().unwrap_or_default()
    }

    #[test]
    fn event_length_is_the_sum_of_its_lines_without_comments() {
        let cases = [
            ("data: ab\n\ndata: c\n\n", 8),
            ("data: ab\ndata: c\n\n", 16),
            ("data: ab\r\ndata: c\r\n\r\ndata: d\r\n\r\n", 16),
            ("data: ab\rdata: c\r\rdata: d\r\r", 16),
            (": ping\n: ping\ndata: a\n", 7),
            ("data: a\n: a long comment line\ndata: b\n\n", 29),
        ];
        for (text, expected) in cases {
            for chunk in 1..text.len() {
                assert_eq!(longest(text, chunk), expected, "{text:?} by {chunk}");
            }
        }
    }
}
