//! What nobody is to see: a secret that turns up in what a tool gives, prints or says goes no
//! further, wherever the tool has it from.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use base64ct::{Base64Unpadded, Base64UrlUnpadded, Encoding};
use memchr::memmem;
use serde_json::Value;
use zeroize::Zeroizing;

/// What stands where a secret stood.
pub const MASK: &str = "[masked]";

/// What is shorter is a word that may stand anywhere.
const SHORTEST: usize = 6;

/// The secrets that are known. Those who share it share what is learnt.
#[derive(Default)]
pub struct Masks {
    /// In all their forms, the longest first.
    forms: RwLock<Arc<[Zeroizing<String>]>>,
}

impl Masks {
    /// One more secret, which is masked from now on; also as it is written in JSON and in
    /// base64.
    pub fn add(&self, secret: &str) {
        let secret = secret.trim_end_matches(['\r', '\n']);
        if secret.len() < SHORTEST {
            return;
        }
        let all = self.forms.write();
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        if all.iter().any(|known| known.as_str() == secret) {
            return;
        }
        let mut forms: Vec<_> = all.iter().cloned().collect();
        forms.extend(forms_of(secret));
        forms.sort_by(|a, b| (b.len(), a.as_str()).cmp(&(a.len(), b.as_str())));
        forms.dedup();
        *all = forms.into();
    }

    /// A text without secrets.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for form in &*self.forms() {
            if memmem::find(text.as_bytes(), form.as_bytes()).is_some() {
                text = Cow::Owned(text.replace(form.as_str(), MASK));
            }
        }
        text
    }

    /// The same in place.
    pub fn mask_in(&self, text: &mut String) {
        if let Cow::Owned(masked) = self.mask(text) {
            *text = masked;
        }
    }

    /// All texts of a document, the names of fields among them.
    pub fn mask_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.mask_in(text),
            Value::Array(all) => all.iter_mut().for_each(|it| self.mask_value(it)),
            Value::Object(fields) => {
                let named = |name: &String| matches!(self.mask(name), Cow::Owned(_));
                if fields.keys().any(named) {
                    let all = std::mem::take(fields).into_iter();
                    *fields = all.map(|(k, v)| (self.mask(&k).into_owned(), v)).collect();
                }
                fields.values_mut().for_each(|it| self.mask_value(it));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn forms(&self) -> Arc<[Zeroizing<String>]> {
        let all = self.forms.read();
        Arc::clone(&all.unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Masks")
    }
}

/// How a secret may be written.
fn forms_of(secret: &str) -> Vec<Zeroizing<String>> {
    let bytes = secret.as_bytes();
    let json = Value::String(secret.to_owned()).to_string();
    let json = json.trim_matches('"').to_owned();
    let mut forms = vec![
        secret.to_owned(),
        json,
        Base64Unpadded::encode_string(bytes),
        Base64UrlUnpadded::encode_string(bytes),
    ];
    for behind in 0..3 {
        forms.push(within::<Base64Unpadded>(bytes, behind));
        forms.push(within::<Base64UrlUnpadded>(bytes, behind));
    }
    forms.retain(|form| form.len() >= SHORTEST);
    forms.into_iter().map(Zeroizing::new).collect()
}

/// What of a text in base64 is a secret's alone, where so many bytes stand before it and any
/// behind it: three bytes are four letters, and a letter that is shared tells of the others.
fn within<E: Encoding>(secret: &[u8], before: usize) -> String {
    let padded = [&[0; 2][..before], secret].concat();
    let letters = E::encode_string(&padded);
    let end = padded.len() * 8 / 6;
    let start = (before * 8).div_ceil(6);
    letters.get(start..end).unwrap_or_default().to_owned()
}

/// What is told piece by piece. The beginning of a secret is held back until it is known
/// whether it is one.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    held: String,
}

impl Stream {
    /// What can be told now.
    pub(crate) fn push(&mut self, masks: &Masks, text: &str) -> String {
        let forms = masks.forms();
        if forms.is_empty() && self.held.is_empty() {
            return text.to_owned();
        }
        self.held.push_str(text);
        let held = self.held.split_off(safe_cut(&self.held, &forms));
        let told = std::mem::replace(&mut self.held, held);
        masks.mask(&told).into_owned()
    }

    /// What was held back, when there is no more.
    pub(crate) fn rest(&mut self, masks: &Masks) -> String {
        masks.mask(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// Up to where a text can be told: not into what may become a secret, and not into one.
fn safe_cut(text: &str, forms: &[Zeroizing<String>]) -> usize {
    let mut cut = text.len() - beginning(text, forms);
    loop {
        let before = cut;
        for form in forms {
            let starts = memmem::find_iter(text.as_bytes(), form.as_bytes());
            for start in starts.filter(|start| *start < before && start + form.len() > before) {
                cut = cut.min(start);
            }
        }
        if cut == before {
            return cut;
        }
    }
}

/// How much of a text's end is the beginning of a secret.
fn beginning(text: &str, forms: &[Zeroizing<String>]) -> usize {
    let ends = |form: &Zeroizing<String>| {
        let most = form.len().saturating_sub(1).min(text.len());
        let fits = |size: &usize| {
            let end = text.len() - size;
            text.is_char_boundary(end) && form.as_bytes().starts_with(&text.as_bytes()[end..])
        };
        (1..=most).rev().find(fits).unwrap_or_default()
    };
    forms.iter().map(ends).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn knowing(secrets: &[&str]) -> Masks {
        let masks = Masks::default();
        for secret in secrets {
            masks.add(secret);
        }
        masks
    }

    #[test]
    fn a_secret_is_masked_however_it_is_written() {
        let masks = knowing(&["pass\"word\n", "pass\"word-2", "short"]);
        for (text, masked) in [
            ("it is pass\"word!", "it is [masked]!"),
            ("{\"a\":\"pass\\\"word\"}", "{\"a\":\"[masked]\"}"),
            ("pass\"word-2", "[masked]"),
            ("Basic cGFzcyJ3b3Jk", "Basic [masked]"),
            ("short is no secret", "short is no secret"),
        ] {
            assert_eq!(masks.mask(text), masked);
        }
        let mut value = json!({ "pass\"word": ["pass\"word", 1, null, { "a": "pass\"word" }] });
        masks.mask_value(&mut value);
        assert_eq!(
            value,
            json!({ "[masked]": ["[masked]", 1, null, { "a": "[masked]" }] })
        );
    }

    #[test]
    fn a_secret_among_others_in_base64_is_masked() {
        let secret = "correct-horse-staple";
        let masks = knowing(&[secret]);
        for name in ["", "a", "ad", "ada", "ada:", "ada:x"] {
            for after in ["", "!", "!!"] {
                let text = format!("{name}{secret}{after}");
                let told = masks
                    .mask(&Base64Unpadded::encode_string(text.as_bytes()))
                    .into_owned();
                // No more is left than what its neighbours take, and a letter on each side.
                let most = (name.len() + after.len()) * 4 / 3 + 3 + MASK.len();
                assert!(told.contains(MASK) && told.len() <= most, "{text}: {told}");
            }
        }
    }

    proptest! {
        #[test]
        fn in_whatever_pieces_it_comes_it_is_masked(
            before in "[a-zä ]{0,9}", after in "[a-zä ]{0,9}", cuts in prop::collection::vec(0..60usize, 0..6)
        ) {
            let masks = knowing(&["sesame-öffne-dich", "sesame"]);
            let text = format!("{before}sesame-öffne-dich{after}sesame{before}");
            let mut ends: Vec<_> = cuts.into_iter().filter(|at| text.is_char_boundary(*at)).collect();
            ends.push(text.len());
            ends.sort_unstable();
            let (mut stream, mut told, mut from) = (Stream::default(), String::new(), 0);
            for end in ends.into_iter().filter(|end| *end <= text.len()) {
                told += &stream.push(&masks, &text[from..end]);
                from = end;
                prop_assert!(!told.contains("sesam"), "{}", told);
            }
            told += &stream.rest(&masks);
            prop_assert_eq!(told, format!("{before}{MASK}{after}{MASK}{before}"));
        }
    }
}
