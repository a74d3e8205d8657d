//! What is printed piece by piece, and what is kept of it, without secrets.

use std::fs;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use lillux::Hash;
use lillux::cas::{Cas, Kind};
use lillux::process::Stream;
use lillux::redact::{self, Redactor};
use serde_json::{Map, Value, json};

use crate::primitive::OutputListener;

/// Somebody who hears what a process prints, in whatever pieces it comes.
pub(crate) struct RedactingSink {
    redactor: Redactor,
    listener: OutputListener,
    held: Mutex<[redact::RedactStream; 2]>,
}

/// Who hears it, where there may be nothing to redact.
pub(crate) enum RedactingOutput {
    Plain(Option<OutputListener>),
    Redacted(Arc<RedactingSink>),
}

impl RedactingOutput {
    /// Somebody who is to hear what a process prints.
    pub(crate) fn new(redactor: &Redactor, listener: Option<OutputListener>) -> Self {
        match listener {
            Some(listener) if !redactor.is_empty() => Self::Redacted(Arc::new(RedactingSink {
                redactor: redactor.clone(),
                listener,
                held: Mutex::default(),
            })),
            other => Self::Plain(other),
        }
    }

    pub(crate) fn listener(&self) -> Option<OutputListener> {
        match self {
            Self::Plain(listener) => listener.clone(),
            Self::Redacted(watched) => Some(watched.listener()),
        }
    }

    /// Tells what was held back, when there is no more.
    pub(crate) fn finish(&self) {
        if let Self::Redacted(watched) = self {
            watched.finish();
        }
    }
}

impl RedactingSink {
    fn listener(self: &Arc<Self>) -> OutputListener {
        let watched = Arc::clone(self);
        OutputListener::new(move |stream, bytes| {
            watched.tell(stream, |held, redactor| held.push(redactor, bytes));
        })
    }

    fn finish(&self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.tell(stream, redact::RedactStream::finish);
        }
    }

    fn tell(
        &self,
        stream: Stream,
        what: impl FnOnce(&mut redact::RedactStream, &Redactor) -> Vec<u8>,
    ) {
        let told = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            let held = match stream {
                Stream::Stdout => &mut held[0],
                Stream::Stderr => &mut held[1],
            };
            what(held, &self.redactor)
        };
        if !told.is_empty() {
            self.listener.on_output(stream, &told);
        }
    }
}

/// Puts what was too long to be given into the store without the secrets, in place of what
/// has them.
pub(super) fn redact_spilled(metadata: &mut Map<String, Value>, store: &Cas, redactor: &Redactor) {
    for name in ["stdout", "stderr"] {
        let key = format!("{name}_hash");
        let hash = metadata.get(&key).and_then(Value::as_str);
        let Some(hash) = hash.and_then(|hash| hash.parse::<Hash>().ok()) else {
            continue;
        };
        match kept(&hash, store, redactor) {
            Ok(redacted) => metadata.insert(key, json!(redacted)),
            Err(error) => {
                metadata.remove(&key);
                metadata.insert(format!("{name}_lost"), json!(error))
            }
        };
    }
}

/// The hash of what is kept without the secrets. The error is a sentence.
fn kept(hash: &Hash, store: &Cas, redactor: &Redactor) -> Result<Hash, String> {
    let mut writer = RedactingWriter {
        held: redact::RedactStream::default(),
        redactor,
        sink: store.writer().map_err(words)?,
    };
    store.copy_to(hash, &mut writer).map_err(words)?;
    let RedactingWriter {
        mut held, mut sink, ..
    } = writer;
    sink.write_all(&held.finish(redactor)).map_err(words)?;
    let redacted = sink.finish().map_err(words)?.hash;
    if redacted != *hash {
        fs::remove_file(store.path_of(Kind::Blob, hash)).map_err(words)?;
    }
    Ok(redacted)
}

fn words(error: impl std::fmt::Display) -> String {
    format!("it holds secrets that cannot be redacted: {error}")
}

struct RedactingWriter<'m, W> {
    held: redact::RedactStream,
    redactor: &'m Redactor,
    sink: W,
}

impl<W: Write> Write for RedactingWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let told = self.held.push(self.redactor, bytes);
        self.sink.write_all(&told)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
