//! What nobody is to see: a secret that is known goes no further, in whatever text it turns up.
//!
//! ```
//! use lillux::mask::Masks;
//!
//! let masks = Masks::new(["open sesame"]);
//! assert_eq!(masks.mask("the word is open sesame"), "the word is [masked]");
//! assert_eq!(masks.mask("Basic b3BlbiBzZXNhbWU="), "Basic [masked]=");
//! ```

mod percent;
mod stream;
mod view;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use base64ct::{Base64Unpadded, Base64UrlUnpadded, Encoding};
use memchr::memmem;
use serde_json::Value;
use zeroize::Zeroizing;

pub use stream::Stream;
use view::{KINDS, Kind, View};

/// What stands where a secret stood.
pub const MASK: &str = "[masked]";

/// What is shorter would be found in every other word.
const SHORTEST: usize = 4;
/// In base64 what is shorter leaves too little that is its own.
const SHORTEST_ENCODED: usize = 6;

/// The secrets that are known. Those who share it share what is learnt.
#[derive(Clone, Default)]
pub struct Masks(Arc<RwLock<Forms>>);

/// Secrets in all their forms.
type Forms = Arc<[Form]>;

/// A way in which a secret is written. Where case makes no difference, it is in small letters.
#[derive(Clone, PartialEq, Eq)]
struct Form {
    kind: Kind,
    bytes: Zeroizing<Vec<u8>>,
}

impl Masks {
    /// These secrets.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let masks = Self::default();
        for secret in secrets {
            masks.add(secret);
        }
        masks
    }

    /// One more, which is masked from now on: in any case, and as it is written in JSON, in
    /// base64, in hexadecimal, and in addresses and forms.
    pub fn add(&self, secret: &str) {
        let secret = secret.trim_end_matches(['\r', '\n']);
        if secret.len() < SHORTEST {
            return;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut forms = all.to_vec();
        forms.extend(forms_of(secret));
        forms.sort_unstable_by(|a, b| (a.kind, &*a.bytes).cmp(&(b.kind, &*b.bytes)));
        forms.dedup();
        *all = forms.into();
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

    /// The same of bytes.
    pub fn mask_bytes<'t>(&self, bytes: &'t [u8]) -> Cow<'t, [u8]> {
        match replaced(bytes, &self.forms()) {
            None => Cow::Borrowed(bytes),
            Some(masked) => Cow::Owned(masked),
        }
    }

    /// The same in place.
    pub fn mask_in(&self, text: &mut String) {
        if let Cow::Owned(masked) = self.mask(text) {
            *text = masked;
        }
    }

    /// All texts of a document without the secrets, the names of fields among them.
    pub fn mask_value(&self, value: &mut Value) {
        if !self.is_empty() {
            self.in_value(value);
        }
    }

    fn in_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.mask_in(text),
            Value::Array(all) => all.iter_mut().for_each(|it| self.in_value(it)),
            Value::Object(fields) => {
                let is_masked = |name: &String| matches!(self.mask(name), Cow::Owned(_));
                if fields.keys().any(is_masked) {
                    let all = std::mem::take(fields).into_iter();
                    *fields = all
                        .map(|(name, value)| (self.mask(&name).into_owned(), value))
                        .collect();
                }
                fields.values_mut().for_each(|it| self.in_value(it));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
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
fn forms_of(secret: &str) -> Vec<Form> {
    let mut forms = Vec::new();
    let mut add = |kind, text: String| {
        if text.len() >= SHORTEST {
            let bytes = Zeroizing::new(text.into_bytes());
            forms.push(Form { kind, bytes });
        }
    };
    // Letters beyond ASCII have cases too.
    let lower = secret.to_lowercase();
    let upper = secret.to_uppercase();
    for text in [secret, &lower, &upper] {
        let json = Value::String(text.to_owned()).to_string();
        add(Kind::Text, text.to_ascii_lowercase());
        let json = json.get(1..json.len() - 1).unwrap_or_default();
        add(Kind::Text, json.to_ascii_lowercase());
        for encoded in percent::forms(text.as_bytes()) {
            add(Kind::Text, encoded.to_ascii_lowercase());
        }
    }
    let bytes = secret.as_bytes();
    if bytes.len() >= SHORTEST_ENCODED {
        for before in 0..3 {
            add(Kind::Base64, within::<Base64Unpadded>(bytes, before));
            add(Kind::Base64, within::<Base64UrlUnpadded>(bytes, before));
        }
        add(Kind::Base64, Base64Unpadded::encode_string(bytes));
        add(Kind::Base64, Base64UrlUnpadded::encode_string(bytes));
        for text in [secret, &lower, &upper] {
            let digits = text.bytes().map(|byte| format!("{byte:02x}"));
            add(Kind::Hex, digits.collect());
        }
    }
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
fn replaced(text: &[u8], forms: &[Form]) -> Option<Vec<u8>> {
    let found = spans(text, forms);
    (!found.is_empty()).then(|| put_masks(text, 0..text.len(), &found))
}

/// Where secrets stand in a text, in order; those that overlap are one.
fn spans(text: &[u8], forms: &[Form]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for kind in KINDS {
        let mut of_kind = forms.iter().filter(|form| form.kind == kind).peekable();
        if of_kind.peek().is_none() {
            continue;
        }
        let view = View::new(kind, text);
        for form in of_kind {
            let starts = memmem::find_iter(&view.bytes, form.bytes.as_slice());
            found.extend(starts.map(|start| {
                let last = start + form.bytes.len() - 1;
                (view.place(start), view.place(last) + 1)
            }));
        }
    }
    found.sort_unstable();
    found.dedup_by(|(start, end), (_, before)| {
        let overlaps = *start < *before;
        if overlaps {
            *before = (*before).max(*end);
        }
        overlaps
    });
    found
}

/// A part of a text, with masks where secrets stand.
fn put_masks(text: &[u8], part: Range<usize>, found: &[(usize, usize)]) -> Vec<u8> {
    let mut masked = Vec::with_capacity(part.len());
    let mut from = part.start;
    for (start, end) in found {
        let (start, end) = ((*start).max(from), (*end).min(part.end));
        if start >= end {
            continue;
        }
        masked.extend_from_slice(&text[from..start]);
        masked.extend_from_slice(MASK.as_bytes());
        from = end;
    }
    masked.extend_from_slice(&text[from..part.end]);
    masked
}

#[cfg(test)]
mod tests;
