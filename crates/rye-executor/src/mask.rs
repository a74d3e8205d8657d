//! What nobody is to see: a secret that was put into a call goes no further than there,
//! whatever the tool gives, prints or says.

mod stream;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use base64ct::{Base64Unpadded, Base64UrlUnpadded, Encoding};
use lillux::cas::Cas;
use lillux::envelope::Secret;
use memchr::memmem;
use serde_json::{Map, Value};

use crate::primitive::{Done, Listener};
pub(crate) use stream::{Watched, Watching};

/// What stands where a secret stood.
pub const MASK: &str = "***";
/// What is shorter would be found in every other word.
const SHORTEST: usize = 4;
/// In base64 what is shorter leaves too little that is its own.
const SHORTEST_ENCODED: usize = 6;
/// What a file calls a secret counts as one from this length on.
const SHORTEST_NAMED: usize = 8;

/// Words in the name of a variable that make its value a secret.
const SECRET: [&str; 9] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "AUTHORIZATION",
    "COOKIE",
];

/// Whether what has this name should not be seen.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET.iter().any(|word| name.contains(word)) || name.ends_with("PASS")
}

/// Whether a variable that nobody has called a secret is one, by its name and its length.
pub fn is_secret(name: &str, value: &str) -> bool {
    value.len() >= SHORTEST_NAMED && looks_secret(name)
}

/// Secrets that are not to be seen. Those who share it share what is learnt.
#[derive(Clone, Default)]
pub struct Masks(Arc<RwLock<Forms>>);

/// Secrets in all their forms, the longest first.
type Forms = Arc<[Secret]>;

impl Masks {
    /// These secrets.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let masks = Self::default();
        for secret in secrets {
            masks.add(secret);
        }
        masks
    }

    /// One more, which came later; also as it is written in JSON and in base64.
    pub fn add(&self, secret: &str) {
        let secret = secret.trim_end_matches(['\r', '\n']);
        if secret.len() < SHORTEST {
            return;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if all.iter().any(|known| known.expose() == secret.as_bytes()) {
            return;
        }
        let mut forms: Vec<Vec<u8>> = all.iter().map(|it| it.expose().to_vec()).collect();
        forms.extend(forms_of(secret).into_iter().map(String::into_bytes));
        forms.sort_by(|a, b| (b.len(), a).cmp(&(a.len(), b)));
        forms.dedup();
        *all = forms.into_iter().map(Secret::new).collect();
    }

    /// Whether there is nothing to mask.
    pub fn is_empty(&self) -> bool {
        self.forms().is_empty()
    }

    /// A text without the secrets.
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match replaced(text.as_bytes(), &self.forms()) {
            None => Cow::Borrowed(text),
            Some(masked) => Cow::Owned(String::from_utf8_lossy(&masked).into_owned()),
        }
    }

    /// All texts of a document without the secrets, the names of fields among them.
    pub fn mask_value(&self, value: &mut Value) {
        let forms = self.forms();
        if !forms.is_empty() {
            in_value(value, &forms);
        }
    }

    /// Somebody who hears what is told whole, piece by piece, without the secrets.
    #[must_use]
    pub fn listening(&self, listener: Listener) -> Listener {
        let masks = self.clone();
        Listener::new(move |stream, bytes| match replaced(bytes, &masks.forms()) {
            None => listener.hear(stream, bytes),
            Some(masked) => listener.hear(stream, &masked),
        })
    }

    /// The headers of a request by which it says who asks.
    pub(crate) fn add_headers(&self, config: &Map<String, Value>) {
        let headers = config.get("headers").and_then(Value::as_object);
        for (name, value) in headers.into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            // The scheme before it is none: `Bearer`, for one.
            let secret = value.rsplit(' ').next().unwrap_or_default();
            if is_secret(name, secret) {
                self.add(secret);
            }
        }
    }

    /// Somebody who is to hear what a process prints, without the secrets.
    pub(crate) fn watching(&self, listener: Option<Listener>) -> Watching {
        match listener {
            Some(listener) if !self.is_empty() => {
                Watching::Masked(Watched::new(self.clone(), listener))
            }
            other => Watching::Plain(other),
        }
    }

    /// What came of a call, without the secrets, also where it was too long to be given.
    pub(crate) fn mask_done(&self, done: &mut Done, store: Option<&Cas>) {
        if self.is_empty() {
            return;
        }
        if let Some(store) = store {
            stream::mask_kept(&mut done.metadata, store, &self.forms());
        }
        self.mask_value(&mut done.data);
        for value in done.metadata.values_mut() {
            self.mask_value(value);
        }
        if let Some(failed) = &mut done.failure {
            failed.message = self.mask(&failed.message).into_owned();
            let hint = failed.hint.as_ref();
            failed.hint = hint.map(|hint| self.mask(hint).into_owned());
        }
    }

    fn forms(&self) -> Forms {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&all)
    }
}

impl fmt::Debug for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Masks")
    }
}

/// How a secret may be written.
fn forms_of(secret: &str) -> Vec<String> {
    let json = Value::String(secret.to_owned()).to_string();
    let json = json.get(1..json.len() - 1).unwrap_or_default().to_owned();
    let mut forms = vec![secret.to_owned(), json];
    let bytes = secret.as_bytes();
    if bytes.len() >= SHORTEST_ENCODED {
        forms.push(Base64Unpadded::encode_string(bytes));
        forms.push(Base64UrlUnpadded::encode_string(bytes));
        for before in 0..3 {
            forms.push(within::<Base64Unpadded>(bytes, before));
            forms.push(within::<Base64UrlUnpadded>(bytes, before));
        }
    }
    forms.retain(|form| form.len() >= SHORTEST);
    forms
}

/// What of a text in base64 is a secret's alone, where so many bytes stand before it and any
/// behind it: three bytes are four letters, and a letter that is shared tells of the others.
fn within<E: Encoding>(secret: &[u8], before: usize) -> String {
    let padded = [&[0; 2][..before], secret].concat();
    let letters = E::encode_string(&padded);
    let (start, end) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
    letters.get(start..end).unwrap_or_default().to_owned()
}

/// A text without secrets, if there was one in it.
fn replaced(text: &[u8], forms: &[Secret]) -> Option<Vec<u8>> {
    let mut masked: Option<Vec<u8>> = None;
    for form in forms {
        let text = masked.as_deref().unwrap_or(text);
        let finder = memmem::Finder::new(form.expose());
        let Some(first) = finder.find(text) else {
            continue;
        };
        let mut without = Vec::with_capacity(text.len());
        let (mut from, mut at) = (0, Some(first));
        while let Some(start) = at {
            without.extend_from_slice(&text[from..start]);
            without.extend_from_slice(MASK.as_bytes());
            from = start + form.expose().len();
            at = finder.find(&text[from..]).map(|next| from + next);
        }
        without.extend_from_slice(&text[from..]);
        masked = Some(without);
    }
    masked
}

fn in_value(value: &mut Value, forms: &[Secret]) {
    match value {
        Value::String(text) => {
            if let Some(masked) = replaced(text.as_bytes(), forms) {
                *text = String::from_utf8_lossy(&masked).into_owned();
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|it| in_value(it, forms)),
        Value::Object(fields) => {
            let masked = |name: &str| replaced(name.as_bytes(), forms);
            if fields.keys().any(|name| masked(name).is_some()) {
                let all = std::mem::take(fields).into_iter();
                let all = all.map(|(name, value)| match masked(&name) {
                    None => (name, value),
                    Some(masked) => (String::from_utf8_lossy(&masked).into_owned(), value),
                });
                *fields = all.collect();
            }
            fields.values_mut().for_each(|it| in_value(it, forms));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests;
