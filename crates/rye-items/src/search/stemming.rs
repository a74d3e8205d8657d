//! Stemming of query words: other inflected forms of an English word, derived from its ending.
//!
//! The index itself is not stemmed. The forms are looked up literally, so a form that no item uses
//! costs nothing, and in other languages the rules rarely produce an existing word. Longer forms
//! with the same prefix need no rule: prefix matching finds them.

/// Minimum length of a stem, in characters.
const MIN_STEM_LEN: usize = 3;

/// Returns other forms of a word, excluding the word itself.
pub(super) fn forms(word: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut add = |form: String| {
        if form != word && !found.contains(&form) {
            found.push(form);
        }
    };
    let stem = |ending: &str| {
        let stem = word.strip_suffix(ending);
        stem.filter(|stem| stem.chars().count() >= MIN_STEM_LEN)
    };
    if let Some(stem) = stem("ies") {
        add(format!("{stem}y"));
    } else if let Some(stem) = stem("es") {
        add(stem.to_owned());
        add(format!("{stem}e"));
    } else if let Some(stem) = stem("s").filter(|stem| !stem.ends_with('s')) {
        add(stem.to_owned());
    }
    for ending in ["ing", "ed", "er", "ers", "ings"] {
        if let Some(stem) = stem(ending) {
            add(stem.to_owned());
            add(format!("{stem}e"));
            if let Some(single) = undoubled(stem) {
                add(single.to_owned());
            }
        }
    }
    if let Some(stem) = stem("e") {
        add(format!("{stem}ing"));
    }
    if let Some(stem) = stem("y") {
        add(format!("{stem}ies"));
        add(format!("{stem}ied"));
    }
    found
}

/// Removes a doubled final letter, as left by removing `ing` from `planning`.
fn undoubled(stem: &str) -> Option<&str> {
    let mut letters = stem.chars().rev();
    let (last, before) = (letters.next()?, letters.next()?);
    (last == before).then(|| &stem[..stem.len() - last.len_utf8()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inflected_forms_are_derived() {
        for (word, form) in [
            ("files", "file"),
            ("queries", "query"),
            ("query", "queries"),
            ("searches", "search"),
            ("caches", "cache"),
            ("searching", "search"),
            ("creating", "create"),
            ("create", "creating"),
            ("running", "run"),
            ("stopped", "stop"),
            ("parser", "parse"),
        ] {
            assert!(forms(word).iter().any(|f| f == form), "{word}: {form}");
        }
    }

    #[test]
    fn short_words_have_no_inflected_forms() {
        for word in ["", "s", "is", "as", "bed", "ring", "class", "go", "日"] {
            assert!(
                !forms(word).iter().any(|f| f.len() < MIN_STEM_LEN),
                "{word}"
            );
        }
        assert_eq!(forms("class"), Vec::<String>::new());
    }
}
