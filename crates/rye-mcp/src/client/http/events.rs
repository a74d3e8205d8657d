//! Server-sent events with a limited size per event.

use futures_util::StreamExt as _;
use futures_util::future::ready;
use reqwest::Response;
use rmcp::model::RequestId;
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use sse_stream::{Error, Sse, SseStream};

use super::too_long_error;

/// The events of a response. An event that exceeds the limit ends the stream, with an error as
/// the answer to the request, if the response belongs to one.
pub(super) fn bounded_events(
    response: Response,
    limit: usize,
    mut request: Option<RequestId>,
) -> BoxedSseResponse {
    let state = Some(EventLength::default());
    let bytes = response.bytes_stream().scan(state, move |state, chunk| {
        let Some(length) = state else {
            return ready(None);
        };
        let checked = match chunk {
            Ok(chunk) if length.add(&chunk) > limit => Err(BodyError::TooLong),
            chunk => chunk.map_err(BodyError::Transport),
        };
        if checked.is_err() {
            *state = None;
        }
        ready(Some(checked))
    });
    let events = SseStream::from_bytes_stream(bytes);
    let events = events.filter_map(move |event| {
        ready(match event {
            Err(Error::Body(error)) if is_too_long(&*error) => {
                let error = serde_json::to_string(&too_long_error(request.take())).ok();
                error.map(|error| Ok(Sse::default().data(error)))
            }
            event => Some(event),
        })
    });
    events.boxed()
}

/// Why the body of a response ended early.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error(transparent)]
    Transport(reqwest::Error),
    #[error("an event exceeds the size limit")]
    TooLong,
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
