//! What is told piece by piece, without secrets. What may be the beginning of one is held
//! back until it is known whether it is one.

use std::fs;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use lillux::Hash;
use lillux::cas::{Cas, Kind};
use lillux::envelope::Secret;
use lillux::process::Stream;
use memchr::memmem;
use serde_json::{Map, Value, json};

use super::{Masks, replaced};
use crate::primitive::Listener;

/// Somebody who hears what a process prints, in whatever pieces it comes.
pub(crate) struct Watched {
    masks: Masks,
    listener: Listener,
    held: Mutex<[Held; 2]>,
}

/// Who hears it, where there may be nothing to mask.
pub(crate) enum Watching {
    Plain(Option<Listener>),
    Masked(Arc<Watched>),
}

impl Watching {
    pub(crate) fn listener(&self) -> Option<Listener> {
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

impl Watched {
    pub(crate) fn new(masks: Masks, listener: Listener) -> Arc<Self> {
        Arc::new(Self {
            masks,
            listener,
            held: Mutex::default(),
        })
    }

    pub(crate) fn listener(self: &Arc<Self>) -> Listener {
        let watched = Arc::clone(self);
        Listener::new(move |stream, bytes| {
            watched.tell(stream, |held, forms| held.push(bytes, forms));
        })
    }

    pub(super) fn finish(&self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.tell(stream, Held::rest);
        }
    }

    fn tell(&self, stream: Stream, what: impl FnOnce(&mut Held, &[Secret]) -> Vec<u8>) {
        let forms = self.masks.forms();
        let told = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            let held = match stream {
                Stream::Stdout => &mut held[0],
                Stream::Stderr => &mut held[1],
            };
            what(held, &forms)
        };
        if !told.is_empty() {
            self.listener.hear(stream, &told);
        }
    }
}

/// What cannot be told yet.
#[derive(Default)]
struct Held(Vec<u8>);

impl Held {
    /// What can be told now, masked.
    fn push(&mut self, bytes: &[u8], forms: &[Secret]) -> Vec<u8> {
        self.0.extend_from_slice(bytes);
        let rest = self.0.split_off(safe_cut(&self.0, forms));
        let told = std::mem::replace(&mut self.0, rest);
        replaced(&told, forms).unwrap_or(told)
    }

    fn rest(&mut self, forms: &[Secret]) -> Vec<u8> {
        let told = std::mem::take(&mut self.0);
        replaced(&told, forms).unwrap_or(told)
    }
}

/// Up to where a text can be told: not into what may become a secret, and not into one.
fn safe_cut(text: &[u8], forms: &[Secret]) -> usize {
    let ends = |form: &Secret| {
        let most = form.expose().len().saturating_sub(1).min(text.len());
        let fits = |size: &usize| form.expose().starts_with(&text[text.len() - size..]);
        (1..=most).rev().find(fits).unwrap_or_default()
    };
    let mut cut = text.len() - forms.iter().map(ends).max().unwrap_or_default();
    loop {
        let before = cut;
        for form in forms {
            let length = form.expose().len();
            let starts = memmem::find_iter(text, form.expose());
            for start in starts.filter(|start| *start < before && start + length > before) {
                cut = cut.min(start);
            }
        }
        if cut == before {
            return cut;
        }
    }
}

/// Puts what was too long to be given into the store without the secrets, in place of what
/// has them.
pub(super) fn mask_kept(metadata: &mut Map<String, Value>, store: &Cas, forms: &[Secret]) {
    for name in ["stdout", "stderr"] {
        let key = format!("{name}_hash");
        let hash = metadata.get(&key).and_then(Value::as_str);
        let Some(hash) = hash.and_then(|hash| hash.parse::<Hash>().ok()) else {
            continue;
        };
        match kept(&hash, store, forms) {
            Ok(masked) => metadata.insert(key, json!(masked)),
            Err(error) => {
                metadata.remove(&key);
                metadata.insert(format!("{name}_lost"), json!(error))
            }
        };
    }
}

/// The hash of what is kept without the secrets. The error is a sentence.
fn kept(hash: &Hash, store: &Cas, forms: &[Secret]) -> Result<Hash, String> {
    let mut masking = Masking {
        held: Held::default(),
        forms,
        sink: store.writer().map_err(words)?,
    };
    store.copy_to(hash, &mut masking).map_err(words)?;
    let Masking {
        mut held, mut sink, ..
    } = masking;
    sink.write_all(&held.rest(forms)).map_err(words)?;
    let masked = sink.finish().map_err(words)?.hash;
    if masked != *hash {
        fs::remove_file(store.path_of(Kind::Blob, hash)).map_err(words)?;
    }
    Ok(masked)
}

fn words(error: impl std::fmt::Display) -> String {
    format!("it holds secrets that cannot be masked: {error}")
}

struct Masking<'f, W> {
    held: Held,
    forms: &'f [Secret],
    sink: W,
}

impl<W: Write> Write for Masking<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let told = self.held.push(bytes, self.forms);
        self.sink.write_all(&told)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
