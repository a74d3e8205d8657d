//! Texts that are too long.

/// Leaves out the middle of what is too long: the beginning says what it is, and the end
/// how it went.
pub(crate) fn without_middle(mut text: String, longest: usize) -> String {
    let length = text.len();
    if length > longest {
        let head = floor(&text, longest / 2);
        let tail = floor(&text, length - longest / 2);
        let left_out = tail - head;
        let note = format!("\n… {left_out} bytes are left out here …\n");
        text.replace_range(head..tail, &note);
        // What is left out is given back as well.
        text.shrink_to_fit();
    }
    text
}

/// The end of the last whole character before a byte.
pub(crate) fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays_and_of_the_rest_the_middle_goes() {
        assert_eq!(without_middle("abcdef".into(), 6), "abcdef");
        let cut = without_middle("abcdefghij".into(), 4);
        assert_eq!(cut, "ab\n… 6 bytes are left out here …\nij");
    }

    #[test]
    fn no_character_is_cut() {
        for longest in 0..20 {
            let cut = without_middle("üöäß€".repeat(10), longest);
            assert!(cut.contains("left out"), "{longest}");
        }
    }
}
