//! What is printed piece by piece, and what is kept of it, without secrets.

use std::fs;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use lillux::Hash;
use lillux::cas::{Cas, Kind};
use lillux::mask::{self, Masks};
use lillux::process::Stream;
use serde_json::{Map, Value, json};

use crate::primitive::OutputListener;

/// Somebody who hears what a process prints, in whatever pieces it comes.
pub(crate) struct RedactingSink {
    masks: Masks,
    listener: OutputListener,
    held: Mutex<[mask::Stream; 2]>,
}

/// Who hears it, where there may be nothing to mask.
pub(crate) enum RedactingOutput {
    Plain(Option<OutputListener>),
    Masked(Arc<RedactingSink>),
}

impl RedactingOutput {
    /// Somebody who is to hear what a process prints.
    pub(crate) fn new(masks: &Masks, listener: Option<OutputListener>) -> Self {
        match listener {
            Some(listener) if !masks.is_empty() => Self::Masked(Arc::new(RedactingSink {
                masks: masks.clone(),
                listener,
                held: Mutex::default(),
            })),
            other => Self::Plain(other),
        }
    }

    pub(crate) fn listener(&self) -> Option<OutputListener> {
        match self {
            Self::Plain(listener) => listener.clone(),
            Self::Masked(watched) => Some(watched.listener()),
        }
    }

    /// Tells what was held back, when there is no more.
    pub(crate) fn finish(&self) {
        if let Self::Masked(watched) = self {
            watched.finish();
        }
    }
}

impl RedactingSink {
    fn listener(self: &Arc<Self>) -> OutputListener {
        let watched = Arc::clone(self);
        OutputListener::new(move |stream, bytes| {
            watched.tell(stream, |held, masks| held.push(masks, bytes));
        })
    }

    fn finish(&self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.tell(stream, mask::Stream::rest);
        }
    }

    fn tell(&self, stream: Stream, what: impl FnOnce(&mut mask::Stream, &Masks) -> Vec<u8>) {
        let told = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            let held = match stream {
                Stream::Stdout => &mut held[0],
                Stream::Stderr => &mut held[1],
            };
            what(held, &self.masks)
        };
        if !told.is_empty() {
            self.listener.on_output(stream, &told);
        }
    }
}

/// Puts what was too long to be given into the store without the secrets, in place of what
/// has them.
pub(super) fn mask_kept(metadata: &mut Map<String, Value>, store: &Cas, masks: &Masks) {
    for name in ["stdout", "stderr"] {
        let key = format!("{name}_hash");
        let hash = metadata.get(&key).and_then(Value::as_str);
        let Some(hash) = hash.and_then(|hash| hash.parse::<Hash>().ok()) else {
            continue;
        };
        match kept(&hash, store, masks) {
            Ok(masked) => metadata.insert(key, json!(masked)),
            Err(error) => {
                metadata.remove(&key);
                metadata.insert(format!("{name}_lost"), json!(error))
            }
        };
    }
}

/// The hash of what is kept without the secrets. The error is a sentence.
fn kept(hash: &Hash, store: &Cas, masks: &Masks) -> Result<Hash, String> {
    let mut masking = Masking {
        held: mask::Stream::default(),
        masks,
        sink: store.writer().map_err(words)?,
    };
    store.copy_to(hash, &mut masking).map_err(words)?;
    let Masking {
        mut held, mut sink, ..
    } = masking;
    sink.write_all(&held.rest(masks)).map_err(words)?;
    let masked = sink.finish().map_err(words)?.hash;
    if masked != *hash {
        fs::remove_file(store.path_of(Kind::Blob, hash)).map_err(words)?;
    }
    Ok(masked)
}

fn words(error: impl std::fmt::Display) -> String {
    format!("it holds secrets that cannot be masked: {error}")
}

struct Masking<'m, W> {
    held: mask::Stream,
    masks: &'m Masks,
    sink: W,
}

impl<W: Write> Write for Masking<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let told = self.held.push(self.masks, bytes);
        self.sink.write_all(&told)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
