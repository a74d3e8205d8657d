//! Messages on standard input and output, one per line.

use std::io;

use agent_client_protocol::Lines;
use futures_util::{Sink, Stream, sink, stream};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

/// Maximum length of a message in bytes. An image may be long, but memory is finite.
pub const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// How much of a message that is too long is kept, to find its id.
const KEPT: usize = 1024;

/// The method that replaces the one of a request that is too long.
pub(crate) const TOO_LONG: &str = "_rye/message_too_long";

/// The messages of the process that started this one.
pub(crate) fn stdio() -> Lines<
    impl Sink<String, Error = io::Error> + Send + 'static,
    impl Stream<Item = io::Result<String>> + Send + 'static,
> {
    let outgoing = sink::unfold(tokio::io::stdout(), async |mut output, mut line: String| {
        line.push('\n');
        output.write_all(line.as_bytes()).await?;
        output.flush().await?;
        Ok(output)
    });
    let input = BufReader::with_capacity(64 * 1024, tokio::io::stdin());
    let incoming = stream::try_unfold(input, async |mut input| {
        let line = next_message(&mut input, MAX_MESSAGE).await?;
        Ok(line.map(|line| (line, input)))
    });
    Lines::new(Box::pin(outgoing), Box::pin(incoming))
}

/// The messages of a client whose transport is elsewhere.
pub(crate) fn channels(
    incoming: mpsc::Receiver<String>,
    outgoing: mpsc::Sender<String>,
) -> Lines<
    impl Sink<String, Error = io::Error> + Send + 'static,
    impl Stream<Item = io::Result<String>> + Send + 'static,
> {
    let outgoing = sink::unfold(outgoing, async |outgoing, line: String| {
        let sent = outgoing.send(line).await;
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(outgoing)
    });
    let incoming = stream::unfold(incoming, async |mut incoming| {
        let line = incoming.recv().await?;
        Some((Ok(line), incoming))
    });
    Lines::new(Box::pin(outgoing), Box::pin(incoming))
}

/// The next line that is not empty; `None` at the end.
async fn next_message(
    input: &mut (impl AsyncBufRead + Unpin),
    max: usize,
) -> io::Result<Option<String>> {
    loop {
        let (mut line, mut length) = (Vec::new(), 0_usize);
        loop {
            let chunk = input.fill_buf().await?;
            if chunk.is_empty() {
                break;
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(chunk.len(), |end| end + 1);
            length = length.saturating_add(taken);
            line.extend_from_slice(chunk.get(..taken).unwrap_or_default());
            if length > max {
                line.truncate(KEPT);
                line.shrink_to_fit();
            }
            input.consume(taken);
            if end.is_some() {
                break;
            }
        }
        if length == 0 {
            return Ok(None);
        }
        if length > max {
            return Ok(Some(too_long(&line)));
        }
        // Text that is not UTF-8 is not JSON either, so the answer is a parse error.
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        if !line.is_empty() {
            return Ok(Some(line.to_owned()));
        }
    }
}

/// A request that is answered with the error that the message was too long. A message without a
/// readable id becomes an invalid one.
fn too_long(start: &[u8]) -> String {
    let start = String::from_utf8_lossy(start);
    let head = start.split("\"params\"").next().unwrap_or_default();
    let id = head.split_once("\"id\"").and_then(|(_, rest)| {
        let value = rest.trim_start().strip_prefix(':')?;
        let mut values = serde_json::Deserializer::from_str(value).into_iter::<Value>();
        values.next()?.ok()
    });
    match id.filter(|id| id.is_number() || id.is_string()) {
        Some(id) => {
            json!({ "jsonrpc": "2.0", "id": id, "method": TOO_LONG, "params": {} }).to_string()
        }
        None => "a message that is too long".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn messages(input: &[u8], max: usize) -> Vec<String> {
        let mut input = BufReader::with_capacity(8, input);
        let mut all = Vec::new();
        while let Some(line) = next_message(&mut input, max).await.unwrap() {
            all.push(line);
        }
        all
    }

    #[tokio::test]
    async fn messages_are_lines_that_are_not_empty() {
        let input = b"{\"a\":1}\n\n  \r\n{\"b\":\"\xff\"}\r\n{\"c\":3}";
        let expected = ["{\"a\":1}", "{\"b\":\"\u{fffd}\"}", "{\"c\":3}"];
        assert_eq!(messages(input, 100).await, expected);
    }

    #[tokio::test]
    async fn message_that_is_too_long_is_answered_and_the_next_one_is_read() {
        let request = |head: &str| {
            let long = "x".repeat(5000);
            format!("{{{head}\"params\":{{\"id\":9,\"text\":\"{long}\"}}}}\n{{\"ok\":1}}\n")
        };
        let refused = |id: Value| {
            json!({ "jsonrpc": "2.0", "id": id, "method": TOO_LONG, "params": {} }).to_string()
        };
        for (head, expected) in [
            ("\"jsonrpc\":\"2.0\",\"id\":7,", refused(json!(7))),
            ("\"id\" : \"a-b\",", refused(json!("a-b"))),
            ("\"method\":\"x\",", "a message that is too long".to_owned()),
        ] {
            let read = messages(request(head).as_bytes(), 2000).await;
            assert_eq!(read, [expected, "{\"ok\":1}".to_owned()]);
        }
    }
}
