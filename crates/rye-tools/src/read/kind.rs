//! Detects whether bytes are text, an image, or other binary data.

use rye_engine::attachment::image_type;

/// Number of bytes to check for NUL bytes.
const SNIFF_LEN: usize = 8 * 1024;

/// Kind of a file's content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text, with notes about its encoding.
    Text {
        text: String,
        notes: Vec<&'static str>,
    },
    /// An image format that models accept, with its dimensions if known.
    Image {
        mime_type: &'static str,
        size: Option<(u32, u32)>,
    },
    /// Other data, with the name of the format if known.
    Binary(Option<&'static str>),
}

impl Kind {
    pub(crate) fn detect(bytes: &[u8]) -> Self {
        if let Some(mime_type) = image_type(bytes) {
            let size = image_size(mime_type, bytes);
            return Self::Image { mime_type, size };
        }
        match decode_text(bytes) {
            Some((text, notes)) => Self::Text { text, notes },
            None => Self::Binary(known_format(bytes)),
        }
    }
}

/// Whether the content is binary: it starts with a block that contains a NUL byte.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(SNIFF_LEN)].contains(&0)
}

fn decode_text(bytes: &[u8]) -> Option<(String, Vec<&'static str>)> {
    let utf16 = match bytes {
        [0xff, 0xfe, rest @ ..] => Some((rest, u16::from_le_bytes as fn([u8; 2]) -> u16)),
        [0xfe, 0xff, rest @ ..] => Some((rest, u16::from_be_bytes as fn([u8; 2]) -> u16)),
        _ => None,
    };
    if let Some((rest, unit)) = utf16 {
        let units = rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        let text: Result<String, _> = char::decode_utf16(units).collect();
        return Some((text.ok()?, vec!["UTF-16, which `edit` cannot change"]));
    }
    if is_binary(bytes) {
        return None;
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut notes = Vec::new();
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    if std::str::from_utf8(bytes).is_err() {
        let invalid = text.chars().filter(|c| *c == '\u{fffd}').count();
        // Text in legacy encodings has few invalid bytes; binary data also has control
        // characters.
        let is_control = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\x0c');
        let divisor = if text.chars().any(is_control) { 10 } else { 3 };
        if invalid > bytes.len() / divisor {
            return None;
        }
        notes.push("invalid UTF-8 is shown as \u{fffd}");
    }
    if text.contains('\0') {
        text = text.replace('\0', "\u{2400}");
        notes.push("NUL bytes are shown as \u{2400}");
    }
    if text.contains("\r\n") {
        notes.push("CRLF line endings, which `edit` preserves");
    }
    Some((text, notes))
}

/// Width and height, if they are at a fixed position.
fn image_size(mime_type: &str, bytes: &[u8]) -> Option<(u32, u32)> {
    let at = |offset: usize| bytes.get(offset).copied().map(u32::from);
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

fn known_format(bytes: &[u8]) -> Option<&'static str> {
    let starts: [(&[u8], &str); 12] = [
        (b"%PDF-", "a PDF"),
        (
            b"PK\x03\x04",
            "a zip archive or a format based on it: docx, xlsx, jar",
        ),
        (b"\x1f\x8b", "gzip"),
        (b"BZh", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x7fELF", "a Linux program"),
        (b"MZ", "a Windows program"),
        (b"\0asm", "WebAssembly"),
        (b"SQLite format 3\0", "a SQLite database"),
        (b"\xca\xfe\xba\xbe", "a Java class or a macOS program"),
        (b"OggS", "Ogg"),
    ];
    let matches = |(start, name): &(&[u8], &'static str)| bytes.starts_with(start).then_some(*name);
    starts.iter().find_map(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_is_detected_from_the_content() {
        let text = |text: &str, notes: &[&'static str]| Kind::Text {
            text: text.to_owned(),
            notes: notes.to_vec(),
        };
        let image = |mime_type, size| Kind::Image { mime_type, size };
        let crlf = "CRLF line endings, which `edit` preserves";
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
                    &["invalid UTF-8 is shown as \u{fffd}"],
                ),
            ),
            (
                b"\xff\xfea\0b\0",
                text("ab", &["UTF-16, which `edit` cannot change"]),
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
            assert_eq!(Kind::detect(bytes), kind, "{bytes:?}");
        }
        assert!(matches!(Kind::detect(b"h\xe9llo\n"), Kind::Text { .. }));
        assert_eq!(Kind::detect(b"h\xe9\x01lo\n"), Kind::Binary(None));
        assert_eq!(Kind::detect(b"\x80\x81\x82\x83\x84"), Kind::Binary(None));
    }
}
