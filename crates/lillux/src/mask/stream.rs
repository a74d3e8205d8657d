//! What is told piece by piece, without secrets.

use std::fmt;

use memchr::memmem;

use super::{Form, Masks, replaced};

/// What comes in pieces. What may be the beginning of a secret is held back until it is known
/// whether it is one.
#[derive(Default)]
pub struct Stream(Vec<u8>);

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

impl Stream {
    /// What can be told now. Of a text it is whole letters, if its pieces are.
    pub fn push(&mut self, masks: &Masks, bytes: &[u8]) -> Vec<u8> {
        let forms = masks.forms();
        self.0.extend_from_slice(bytes);
        let rest = self.0.split_off(safe_cut(&self.0, &forms));
        let told = std::mem::replace(&mut self.0, rest);
        replaced(&told, &forms).unwrap_or(told)
    }

    /// What was held back, when there is no more.
    pub fn rest(&mut self, masks: &Masks) -> Vec<u8> {
        let told = std::mem::take(&mut self.0);
        replaced(&told, &masks.forms()).unwrap_or(told)
    }
}

/// Up to where a text can be told: not into what may become a secret, and not into one.
fn safe_cut(text: &[u8], forms: &[Form]) -> usize {
    let ends = |form: &Form| {
        let most = form.len().saturating_sub(1).min(text.len());
        let fits = |size: &usize| form.starts_with(&text[text.len() - size..]);
        (1..=most).rev().find(fits).unwrap_or_default()
    };
    let mut cut = text.len() - forms.iter().map(ends).max().unwrap_or_default();
    loop {
        let before = cut;
        for form in forms {
            let starts = memmem::find_iter(text, form.as_slice());
            for start in starts.filter(|start| *start < before && start + form.len() > before) {
                cut = cut.min(start);
            }
        }
        if cut == before {
            return cut;
        }
    }
}
