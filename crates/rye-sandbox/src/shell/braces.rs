//! Brace expansion: `{a,b}` and `{1..5}`.

use super::meter::{Halt, Meter};
use super::pattern::MAX_MATCHES;
use super::syntax::{Piece, Word};

/// Maximum depth of nested braces.
const MAX_NESTING: usize = 16;

/// An unquoted character, or another piece of a word.
#[derive(Clone)]
enum Symbol {
    Char(char),
    Piece(Piece),
}

/// The words that a word stands for; `None` if it has no braces.
pub(crate) fn expand(word: &Word, meter: &mut Meter) -> Result<Option<Vec<Word>>, Halt> {
    let has_brace =
        |piece: &Piece| matches!(piece, Piece::Text { text, quoted: false } if text.contains('{'));
    if !word.iter().any(has_brace) {
        return Ok(None);
    }
    let mut symbols = Vec::new();
    for piece in word {
        match piece {
            Piece::Text {
                text,
                quoted: false,
            } => symbols.extend(text.chars().map(Symbol::Char)),
            piece => symbols.push(Symbol::Piece(piece.clone())),
        }
    }
    let words = expand_symbols(&symbols, 0, meter)?;
    Ok(Some(words.into_iter().map(to_word).collect()))
}

fn to_word(symbols: Vec<Symbol>) -> Word {
    let mut word = Word::new();
    for symbol in symbols {
        match (symbol, word.last_mut()) {
            (
                Symbol::Char(ch),
                Some(Piece::Text {
                    text,
                    quoted: false,
                }),
            ) => text.push(ch),
            (Symbol::Char(ch), _) => word.push(Piece::Text {
                text: ch.to_string(),
                quoted: false,
            }),
            (Symbol::Piece(piece), _) => word.push(piece),
        }
    }
    word
}

fn expand_symbols(
    symbols: &[Symbol],
    depth: usize,
    meter: &mut Meter,
) -> Result<Vec<Vec<Symbol>>, Halt> {
    // The words so far: each pair of braces multiplies them.
    let mut words = vec![Vec::new()];
    let closing = closing_braces(symbols);
    let mut at = 0;
    while at < symbols.len() {
        let content = closing[at].map(|end| &symbols[at + 1..end]);
        let alternatives = match content {
            Some(content) if depth < MAX_NESTING => alternatives(content, depth, meter)?,
            _ => None,
        };
        meter.charge(words.len())?;
        if let (Some(alternatives), Some(end)) = (alternatives, closing[at]) {
            if words.len() * alternatives.len() > MAX_MATCHES {
                return Err(Halt::LimitExceeded("brace expansion is too large"));
            }
            let join = |word: &Vec<Symbol>| {
                let ends = alternatives.iter();
                ends.map(|end| [word.as_slice(), end].concat())
                    .collect::<Vec<_>>()
            };
            let total: usize = words.iter().map(Vec::len).sum();
            meter.charge(total * alternatives.len())?;
            words = words.iter().flat_map(join).collect();
            at = end + 1;
        } else {
            for word in &mut words {
                word.push(symbols[at].clone());
            }
            at += 1;
        }
    }
    Ok(words)
}

/// For each opening brace, the position of its closing one.
fn closing_braces(symbols: &[Symbol]) -> Vec<Option<usize>> {
    let mut closing = vec![None; symbols.len()];
    let mut open = Vec::new();
    for (at, symbol) in symbols.iter().enumerate() {
        match symbol {
            Symbol::Char('{') => open.push(at),
            Symbol::Char('}') => {
                if let Some(start) = open.pop() {
                    closing[start] = Some(at);
                }
            }
            _ => {}
        }
    }
    closing
}

/// The alternatives between braces; `None` if there is no comma and no range.
fn alternatives(
    content: &[Symbol],
    depth: usize,
    meter: &mut Meter,
) -> Result<Option<Vec<Vec<Symbol>>>, Halt> {
    let closing = closing_braces(content);
    let (mut commas, mut at) = (Vec::new(), 0);
    while at < content.len() {
        match (&content[at], closing[at]) {
            (Symbol::Char(','), _) => commas.push(at),
            (_, Some(end)) => at = end,
            _ => {}
        }
        at += 1;
    }
    if commas.is_empty() {
        return range(content, meter);
    }
    let mut all = Vec::new();
    let mut start = 0;
    for end in commas.into_iter().chain([content.len()]) {
        all.extend(expand_symbols(&content[start..end], depth + 1, meter)?);
        start = end + 1;
    }
    Ok(Some(all))
}

/// Expands `FIRST..LAST` or `FIRST..LAST..STEP`.
fn range(content: &[Symbol], meter: &mut Meter) -> Result<Option<Vec<Vec<Symbol>>>, Halt> {
    let plain = |symbol: &Symbol| match symbol {
        Symbol::Char(ch) => Some(*ch),
        Symbol::Piece(_) => None,
    };
    let text: Option<String> = content.iter().map(plain).collect();
    let text = text.unwrap_or_default();
    let parts: Vec<_> = text.split("..").collect();
    let (first, last, step) = match parts.as_slice() {
        [first, last] => (*first, *last, "1"),
        [first, last, step] => (*first, *last, *step),
        _ => return Ok(None),
    };
    let is_letter = |text: &str| text.len() == 1 && text.as_bytes()[0].is_ascii_alphabetic();
    let value = |text: &str| match text.as_bytes() {
        [letter] if is_letter(text) => Some(i64::from(*letter)),
        _ => text.parse().ok(),
    };
    let (Some(from), Some(to), Ok(step)) = (value(first), value(last), step.parse::<i64>()) else {
        return Ok(None);
    };
    if is_letter(first) != is_letter(last) {
        return Ok(None);
    }
    let step = step.unsigned_abs().max(1);
    let count = from.abs_diff(to) / step;
    if count >= MAX_MATCHES as u64 {
        return Err(Halt::LimitExceeded("brace expansion is too large"));
    }
    let is_padded = |text: &str| {
        let digits = text.trim_start_matches('-');
        digits.len() > 1 && digits.starts_with('0')
    };
    let width = if is_padded(first) || is_padded(last) {
        first.len().max(last.len())
    } else {
        0
    };
    let mut all = Vec::new();
    for index in 0..=count {
        let distance = i64::try_from(index * step).unwrap_or(i64::MAX);
        let number = if to >= from {
            from.saturating_add(distance)
        } else {
            from.saturating_sub(distance)
        };
        let shown = match u8::try_from(number) {
            Ok(letter) if is_letter(first) => char::from(letter).to_string(),
            _ => format!("{number:0width$}"),
        };
        meter.charge(shown.len())?;
        all.push(shown.chars().map(Symbol::Char).collect());
    }
    Ok(Some(all))
}
