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

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use base64ct::{Base64Unpadded, Base64UrlUnpadded, Encoding};
use memchr::memmem;
use serde_json::Value;
use zeroize::Zeroizing;

pub use stream::Stream;

/// What stands where a secret stood.
pub const MASK: &str = "[masked]";

/// What is shorter would be found in every other word.
const SHORTEST: usize = 4;
/// In base64 what is shorter leaves too little that is its own.
const SHORTEST_ENCODED: usize = 6;

/// The secrets that are known. Those who share it share what is learnt.
#[derive(Clone, Default)]
pub struct Masks(Arc<RwLock<Forms>>);

/// Secrets in all their forms, the longest first.
type Forms = Arc<[Form]>;
type Form = Zeroizing<Vec<u8>>;

impl Masks {
    /// These secrets.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let masks = Self::default();
        for secret in secrets {
            masks.add(secret);
        }
        masks
    }

    /// One more, which is masked from now on; also as it is written in JSON, in base64, and
    /// in addresses and forms.
    pub fn add(&self, secret: &str) {
        let secret = secret.trim_end_matches(['\r', '\n']);
        if secret.len() < SHORTEST {
            return;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if all
            .iter()
            .any(|known| known.as_slice() == secret.as_bytes())
        {
            return;
        }
        let mut forms = all.to_vec();
        forms.extend(forms_of(secret));
        forms.sort_by(|a, b| (b.len(), a.as_slice()).cmp(&(a.len(), b.as_slice())));
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
    let json = Value::String(secret.to_owned()).to_string();
    let json = json.get(1..json.len() - 1).unwrap_or_default().to_owned();
    let mut forms = vec![secret.to_owned(), json];
    let bytes = secret.as_bytes();
    forms.extend(percent::forms(bytes));
    if bytes.len() >= SHORTEST_ENCODED {
        forms.push(Base64Unpadded::encode_string(bytes));
        forms.push(Base64UrlUnpadded::encode_string(bytes));
        for before in 0..3 {
            forms.push(within::<Base64Unpadded>(bytes, before));
            forms.push(within::<Base64UrlUnpadded>(bytes, before));
        }
    }
    forms.retain(|form| form.len() >= SHORTEST);
    let forms = forms.into_iter().map(String::into_bytes);
    forms.map(Zeroizing::new).collect()
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
    let mut masked: Option<Vec<u8>> = None;
    for form in forms {
        let text = masked.as_deref().unwrap_or(text);
        let finder = memmem::Finder::new(form.as_slice());
        let Some(first) = finder.find(text) else {
            continue;
        };
        let mut without = Vec::with_capacity(text.len());
        let (mut from, mut at) = (0, Some(first));
        while let Some(start) = at {
            without.extend_from_slice(&text[from..start]);
            without.extend_from_slice(MASK.as_bytes());
            from = start + form.len();
            at = finder.find(&text[from..]).map(|next| from + next);
        }
        without.extend_from_slice(&text[from..]);
        masked = Some(without);
    }
    masked
}

#[cfg(test)]
mod tests;
