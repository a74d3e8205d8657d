//! Other forms of an English word, by its ending.
//!
//! Looked up as they are, so a form that no item uses costs nothing, and in
//! other languages the rules seldom make a word. Longer forms with the same
//! beginning are found as such and need no rule.

/// The fewest letters that must be left of a word.
const STEM: usize = 3;

/// The forms in which a word may also stand, without itself.
pub(super) fn forms(word: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut add = |form: String| {
        if form != word && !found.contains(&form) {
            found.push(form);
        }
    };
    let stem = |ending: &str| {
        let stem = word.strip_suffix(ending);
        stem.filter(|stem| stem.chars().count() >= STEM)
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

/// A stem that ends in a letter twice, without the second: of `running`, `run`.
fn undoubled(stem: &str) -> Option<&str> {
    let mut letters = stem.chars().rev();
    let (last, before) = (letters.next()?, letters.next()?);
    (last == before).then(|| &stem[..stem.len() - last.len_utf8()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_in_its_other_forms() {
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
    fn short_words_have_no_other_forms() {
        for word in ["", "s", "is", "as", "bed", "ring", "class", "go", "日"] {
            assert!(!forms(word).iter().any(|f| f.len() < STEM), "{word}");
        }
        assert_eq!(forms("class"), Vec::<String>::new());
    }
}
