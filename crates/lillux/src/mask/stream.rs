//! What is told piece by piece, without secrets.

use std::fmt;

use super::view::{KINDS, Kind, View};
use super::{Form, Masks, put_masks, spans};

/// So few letters of an encoded secret are told rather than held back when a line ends behind
/// them: else half of all lines would be without their last letter until the next one comes.
const TOO_FEW: usize = 4;

/// What comes in pieces. What may be the beginning of a secret is held back until it is known
/// whether it is one.
#[derive(Default)]
pub struct Stream {
    /// What is not told yet, behind what was told and may still begin a secret.
    held: Vec<u8>,
    /// How much of it was told.
    told: usize,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

impl Stream {
    /// What can be told now. Of a text it is whole letters, if its pieces are.
    pub fn push(&mut self, masks: &Masks, bytes: &[u8]) -> Vec<u8> {
        let forms = masks.forms();
        self.held.extend_from_slice(bytes);
        let found = spans(&self.held, &forms);
        let beginning = Beginning::of(&self.held, &forms);
        let mut cut = beginning.held.max(self.told);
        let mut kept = beginning.held.min(beginning.told);
        if let Some((start, _)) = found.iter().find(|(from, to)| *from < cut && cut < *to) {
            kept = kept.min(*start);
            cut = self.told.max(*start);
        }
        let masked = put_masks(&self.held, self.told..cut, &found);
        let kept = kept.min(cut);
        self.held.drain(..kept);
        self.told = cut - kept;
        masked
    }

    /// What was held back, when there is no more.
    pub fn rest(&mut self, masks: &Masks) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        let told = std::mem::take(&mut self.told);
        put_masks(&held, told..held.len(), &spans(&held, &masks.forms()))
    }
}

/// Where a secret may begin that the text does not end.
struct Beginning {
    /// From here on, the text is held back.
    held: usize,
    /// From here on, it is told and remembered.
    told: usize,
}

impl Beginning {
    fn of(text: &[u8], forms: &[Form]) -> Self {
        let mut beginning = Self {
            held: text.len(),
            told: text.len(),
        };
        for kind in KINDS {
            let mut of_kind = forms.iter().filter(|form| form.kind == kind).peekable();
            if of_kind.peek().is_none() {
                continue;
            }
            let view = View::new(kind, text);
            for form in of_kind {
                let letters = ending(&view.bytes, &form.bytes);
                if letters == 0 {
                    continue;
                }
                let start = view.place(view.bytes.len() - letters);
                let few = kind != Kind::Text && view.ends_with_gap && letters < TOO_FEW;
                if few {
                    beginning.told = beginning.told.min(start);
                } else {
                    beginning.held = beginning.held.min(start);
                }
            }
        }
        beginning
    }
}

/// How many bytes at the end of a text are the beginning of a form, and not all of it.
fn ending(text: &[u8], form: &[u8]) -> usize {
    let most = form.len().saturating_sub(1).min(text.len());
    let fits = |size: &usize| form.starts_with(&text[text.len() - size..]);
    (1..=most).rev().find(fits).unwrap_or_default()
}
