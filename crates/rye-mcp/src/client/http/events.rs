//! A stream of events, none of them longer than a message may be.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use reqwest::Response;
use rmcp::model::RequestId;
use sse_stream::{Error, Sse, SseStream};
use tokio_stream::StreamExt as _;

use super::too_long;

/// What the SDK reads.
pub(super) type Stream =
    Pin<Box<dyn tokio_stream::Stream<Item = Result<Sse, Error>> + Send + 'static>>;

/// The events of an answer. One that is too long ends them, and is told as the answer to
/// the request.
pub(super) fn bounded(response: Response, limit: usize, request: Option<RequestId>) -> Stream {
    let mut length = Length::default();
    let bytes = response.bytes_stream().map(move |chunk| {
        let chunk: Bytes = chunk.map_err(Broken::Off)?;
        if length.longest_with(&chunk) > limit {
            return Err(Broken::TooLong);
        }
        Ok(chunk)
    });
    Box::pin(Events {
        events: Some(Box::pin(SseStream::from_bytes_stream(bytes))),
        request,
    })
}

struct Events<S> {
    /// None once they have ended.
    events: Option<Pin<Box<S>>>,
    request: Option<RequestId>,
}

impl<S> tokio_stream::Stream for Events<S>
where
    S: tokio_stream::Stream<Item = Result<Sse, Error>>,
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
                let told = self.request.take().map(too_long);
                let told = told.and_then(|told| serde_json::to_string(&told).ok());
                Poll::Ready(told.map(|told| Ok(Sse::default().data(told))))
            }
            Some(_) => Poll::Ready(event),
            None => {
                self.events = None;
                Poll::Ready(None)
            }
        }
    }
}

/// Why no more bytes come.
#[derive(Debug)]
enum Broken {
    Off(reqwest::Error),
    TooLong,
}

impl std::error::Error for Broken {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Off(error) => Some(error),
            Self::TooLong => None,
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off(error) => error.fmt(f),
            Self::TooLong => f.write_str("an event is too long"),
        }
    }
}

fn is_too_long(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(Broken::TooLong))
}

/// How long the event is that is being read.
#[derive(Debug, Default)]
struct Length {
    event: usize,
    line: usize,
    is_comment: bool,
    after_cr: bool,
}

impl Length {
    /// The greatest length that it has had once these bytes are read.
    fn longest_with(&mut self, bytes: &[u8]) -> usize {
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

    /// An empty line ends the event; a comment is no part of it.
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

    /// The greatest length, read in pieces of any size.
    fn longest(text: &str, piece: usize) -> usize {
        let mut length = Length::default();
        let pieces = text.as_bytes().chunks(piece);
        let all = pieces.map(|piece| length.longest_with(piece));
        all.max().unwrap_or_default()
    }

    #[test]
    fn an_event_is_as_long_as_its_lines_and_comments_do_not_count() {
        let cases = [
            ("data: ab\n\ndata: c\n\n", 8),
            ("data: ab\ndata: c\n\n", 16),
            ("data: ab\r\ndata: c\r\n\r\ndata: d\r\n\r\n", 16),
            ("data: ab\rdata: c\r\rdata: d\r\r", 16),
            (": ping\n: ping\ndata: a\n", 7),
            ("data: a\n: a long comment line\ndata: b\n\n", 29),
        ];
        for (text, expected) in cases {
            for piece in 1..text.len() {
                assert_eq!(longest(text, piece), expected, "{text:?} by {piece}");
            }
        }
    }
}
