//! What bytes are: a text, an image, or something else.

use std::fmt::Write as _;

/// How much is looked at to tell a text from something else.
const LOOKED_AT: usize = 8 * 1024;

/// What the bytes of a file are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A text, and what is to know about it.
    Text {
        text: String,
        notes: Vec<&'static str>,
    },
    /// An image that models can see: its type, and its size where it is known.
    Image {
        mime_type: &'static str,
        size: Option<(u32, u32)>,
    },
    /// Something else, in a word where it is known.
    Binary(Option<&'static str>),
}

impl Kind {
    pub(super) fn of(bytes: &[u8]) -> Self {
        if let Some(mime_type) = image(bytes) {
            let size = size(mime_type, bytes);
            return Self::Image { mime_type, size };
        }
        match text(bytes) {
            Some((text, notes)) => Self::Text { text, notes },
            None => Self::Binary(known(bytes)),
        }
    }
}

/// Whether these are the first bytes of something that is no text.
pub(in crate::builtin) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(LOOKED_AT)].contains(&0)
}

fn text(bytes: &[u8]) -> Option<(String, Vec<&'static str>)> {
    let wide = match bytes {
        [0xff, 0xfe, rest @ ..] => Some((rest, u16::from_le_bytes as fn([u8; 2]) -> u16)),
        [0xfe, 0xff, rest @ ..] => Some((rest, u16::from_be_bytes as fn([u8; 2]) -> u16)),
        _ => None,
    };
    if let Some((rest, unit)) = wide {
        let units = rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        let text: Result<String, _> = char::decode_utf16(units).collect();
        return Some((
            text.ok()?,
            vec!["it is UTF-16, which `edit` does not change"],
        ));
    }
    if is_binary(bytes) {
        return None;
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut notes = Vec::new();
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    if std::str::from_utf8(bytes).is_err() {
        let wrong = text.chars().filter(|sign| *sign == '\u{fffd}').count();
        // Older encodings have a letter here and there; what is no text has control
        // characters too.
        let odd = |sign: char| sign.is_control() && !matches!(sign, '\t' | '\n' | '\r' | '\x0c');
        let most = if text.chars().any(odd) { 10 } else { 3 };
        if wrong > bytes.len() / most {
            return None;
        }
        notes.push("not all of it is UTF-8: what is not is shown as \u{fffd}");
    }
    if text.contains('\0') {
        text = text.replace('\0', "\u{2400}");
        notes.push("it has zero bytes, shown as \u{2400}");
    }
    if text.contains("\r\n") {
        notes.push("its lines end in CRLF, which `edit` keeps");
    }
    Some((text, notes))
}

/// The type of an image that models can see, whatever it is called.
pub(crate) fn image(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

/// Width and height, where they are easily found.
fn size(mime_type: &str, bytes: &[u8]) -> Option<(u32, u32)> {
    let at = |place: usize| bytes.get(place).copied().map(u32::from);
    match mime_type {
        "image/png" => {
            let number = |from: usize| {
                let four = bytes.get(from..from + 4)?;
                Some(u32::from_be_bytes(four.try_into().ok()?))
            };
            Some((number(16)?, number(20)?))
        }
        "image/gif" => Some((at(6)? | at(7)? << 8, at(8)? | at(9)? << 8)),
        _ => None,
    }
}

fn known(bytes: &[u8]) -> Option<&'static str> {
    let starts: [(&[u8], &str); 12] = [
        (b"%PDF-", "a PDF"),
        (
            b"PK\x03\x04",
            "a zip archive, or what is made of one: docx, xlsx, jar",
        ),
        (b"\x1f\x8b", "gzip"),
        (b"BZh", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x7fELF", "a program for Linux"),
        (b"MZ", "a program for Windows"),
        (b"\0asm", "WebAssembly"),
        (b"SQLite format 3\0", "a SQLite database"),
        (b"\xca\xfe\xba\xbe", "a Java class, or a program for macOS"),
        (b"OggS", "Ogg"),
    ];
    let fits = |(start, name): &(&[u8], &'static str)| bytes.starts_with(start).then_some(*name);
    starts.iter().find_map(fits)
}

/// A size that people read.
pub(super) fn dimensions(size: Option<(u32, u32)>) -> String {
    let mut text = String::new();
    if let Some((width, height)) = size {
        let _ = write!(text, ", {width} × {height}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_they_begin_like() {
        let text = |text: &str, notes: &[&'static str]| Kind::Text {
            text: text.to_owned(),
            notes: notes.to_vec(),
        };
        let image = |mime_type, size| Kind::Image { mime_type, size };
        let crlf = "its lines end in CRLF, which `edit` keeps";
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0";
        let cases: [(&[u8], Kind); 12] = [
            (b"", text("", &[])),
            (b"a\nb", text("a\nb", &[])),
            (b"\xef\xbb\xbfa\r\n", text("a\r\n", &[crlf])),
            ("größe".as_bytes(), text("größe", &[])),
            (
                b"plain text in latin-1: gr\xfc\xdfe, twice as long",
                text(
                    "plain text in latin-1: gr\u{fffd}\u{fffd}e, twice as long",
                    &["not all of it is UTF-8: what is not is shown as \u{fffd}"],
                ),
            ),
            (
                b"\xff\xfea\0b\0",
                text("ab", &["it is UTF-16, which `edit` does not change"]),
            ),
            (png, image("image/png", Some((640, 480)))),
            (
                b"GIF89a\x10\x00\x02\x01",
                image("image/gif", Some((16, 258))),
            ),
            (b"\xff\xd8\xff\xe0", image("image/jpeg", None)),
            (b"RIFF\0\0\0\0WEBPVP8 ", image("image/webp", None)),
            (b"\x1f\x8b\x08\0\0", Kind::Binary(Some("gzip"))),
            (b"\x01\x02\0", Kind::Binary(None)),
        ];
        for (bytes, kind) in cases {
            assert_eq!(Kind::of(bytes), kind, "{bytes:?}");
        }
        assert!(matches!(Kind::of(b"h\xe9llo\n"), Kind::Text { .. }));
        assert_eq!(Kind::of(b"h\xe9\x01lo\n"), Kind::Binary(None));
        assert_eq!(Kind::of(b"\x80\x81\x82\x83\x84"), Kind::Binary(None));
    }
}
