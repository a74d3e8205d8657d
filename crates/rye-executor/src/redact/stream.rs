//! Redaction of output that arrives in chunks, and of stored output.

use std::fs;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use lillux::Hash;
use lillux::cas::{Cas, Kind};
use lillux::process::Stream;
use lillux::redact::{RedactStream, Redactor};
use serde_json::{Map, Value, json};

use crate::primitive::OutputListener;

/// Redacts the output of a process before its listener gets it, if there is one. Holds back the end
/// of each stream as long as it may be the beginning of a secret.
pub(crate) struct RedactingOutput(Option<Arc<ListenerRedaction>>);

struct ListenerRedaction {
    redactor: Redactor,
    listener: OutputListener,
    /// Standard output and standard error.
    streams: Mutex<[RedactStream; 2]>,
}

impl RedactingOutput {
    pub(crate) fn new(redactor: &Redactor, listener: Option<OutputListener>) -> Self {
        Self(listener.map(|listener| {
            Arc::new(ListenerRedaction {
                redactor: redactor.clone(),
                listener,
                streams: Mutex::default(),
            })
        }))
    }

    /// The listener to pass to the process.
    pub(crate) fn listener(&self) -> Option<OutputListener> {
        let redaction = Arc::clone(self.0.as_ref()?);
        Some(OutputListener::new(move |stream, bytes| {
            redaction.pass_on(stream, |state, redactor| state.push(redactor, bytes));
        }))
    }

    /// Passes on the output that was held back, after the process has ended.
    pub(crate) fn finish(&self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(redaction) = &self.0 {
                redaction.pass_on(stream, RedactStream::finish);
            }
        }
    }
}

impl ListenerRedaction {
    fn pass_on(
        &self,
        stream: Stream,
        redact: impl FnOnce(&mut RedactStream, &Redactor) -> Vec<u8>,
    ) {
        let redacted = {
            let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            let state = match stream {
                Stream::Stdout => &mut streams[0],
                Stream::Stderr => &mut streams[1],
            };
            redact(state, &self.redactor)
        };
        if !redacted.is_empty() {
            self.listener.on_output(stream, &redacted);
        }
    }
}

/// Replaces the output that was stored because of its length by a redacted copy.
pub(super) fn redact_stored_output(
    metadata: &mut Map<String, Value>,
    store: &Cas,
    redactor: &Redactor,
) {
    for name in ["stdout", "stderr"] {
        let key = format!("{name}_hash");
        let hash = metadata.get(&key).and_then(Value::as_str);
        let Some(hash) = hash.and_then(|hash| hash.parse::<Hash>().ok()) else {
            continue;
        };
        match redact_blob(&hash, store, redactor) {
            Ok(redacted) => metadata.insert(key, json!(redacted)),
            Err(error) => {
                metadata.remove(&key);
                metadata.insert(format!("{name}_lost"), json!(error))
            }
        };
    }
}

/// Stores a redacted copy of a blob, removes the original and returns the hash of the copy.
fn redact_blob(hash: &Hash, store: &Cas, redactor: &Redactor) -> Result<Hash, String> {
    let mut writer = RedactingWriter {
        state: RedactStream::default(),
        redactor,
        sink: store.writer().map_err(redaction_error)?,
    };
    store.copy_to(hash, &mut writer).map_err(redaction_error)?;
    let RedactingWriter {
        mut state,
        mut sink,
        ..
    } = writer;
    sink.write_all(&state.finish(redactor))
        .map_err(redaction_error)?;
    let redacted = sink.finish().map_err(redaction_error)?.hash;
    if redacted != *hash {
        fs::remove_file(store.path_of(Kind::Blob, hash)).map_err(redaction_error)?;
    }
    Ok(redacted)
}

fn redaction_error(error: impl std::fmt::Display) -> String {
    format!("cannot redact its secrets: {error}")
}

struct RedactingWriter<'m, W> {
    state: RedactStream,
    redactor: &'m Redactor,
    sink: W,
}

impl<W: Write> Write for RedactingWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let redacted = self.state.push(self.redactor, bytes);
        self.sink.write_all(&redacted)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
