//! Images that a prompt names with an `@`.

use std::path::Path;

use base64ct::{Base64, Encoding as _};
use rye_engine::protocol::Part;

/// What is larger is not sent: providers refuse it.
const LARGEST: u64 = 20 << 20;

/// What kind of image a file is, by its name.
fn kind(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    Some(match ending.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        _ => return None,
    })
}

/// What a paste is to be written as: the path of an image becomes an `@path`.
pub(crate) fn pasted(text: &str) -> String {
    let bare = text.trim().trim_matches(['\'', '"']).replace("\\ ", " ");
    let bare = bare.strip_prefix("file://").unwrap_or(&bare);
    let path = Path::new(bare);
    if !bare.contains('\n') && kind(path).is_some() && path.is_absolute() && path.is_file() {
        let spaced = bare.contains(char::is_whitespace);
        let quote = if spaced { "\"" } else { "" };
        return format!("@{quote}{bare}{quote} ");
    }
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// The images that a text names, read; or which cannot be.
pub(crate) fn images(text: &str, folder: &Path) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    for name in named(text) {
        let path = folder.join(&name);
        let Some(mime_type) = kind(&path) else {
            continue;
        };
        let size = std::fs::metadata(&path).map(|it| it.len());
        let size = size.map_err(|error| format!("cannot read {name}: {error}"))?;
        if size > LARGEST {
            return Err(format!("{name} is larger than 20 MiB"));
        }
        let bytes = std::fs::read(&path).map_err(|error| format!("cannot read {name}: {error}"))?;
        let coded = Base64::encode_string(&bytes);
        parts.push(Part::Attachment {
            name,
            mime_type: mime_type.to_owned(),
            source: format!("data:{mime_type};base64,{coded}"),
        });
    }
    Ok(parts)
}

/// What stands behind an `@`, up to a space or in quotes.
fn named(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        if letter == '@' && before.is_whitespace() {
            let rest = &text[at + 1..];
            let name = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split('"').next(),
                None => rest.split(char::is_whitespace).next(),
            };
            names.extend(name.filter(|it| !it.is_empty()).map(str::to_owned));
        }
        before = letter;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_found_by_their_at() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a b.png"), b"png").unwrap();
        std::fs::write(folder.path().join("x.jpg"), b"jpg").unwrap();
        let found = images(
            "see @x.jpg and @\"a b.png\", not a@x.jpg or @src/main.rs",
            folder.path(),
        );
        let names: Vec<_> = found
            .unwrap()
            .into_iter()
            .map(|part| match part {
                Part::Attachment { name, source, .. } => (name, source),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            ("x.jpg", "data:image/jpeg;base64,anBn"),
            ("a b.png", "data:image/png;base64,cG5n"),
        ];
        assert_eq!(names, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        let missing = images("@gone.png", folder.path()).unwrap_err();
        assert!(missing.starts_with("cannot read gone.png: "), "{missing}");
    }

    #[test]
    fn a_path_that_is_pasted_becomes_an_image() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b.png");
        std::fs::write(&path, b"png").unwrap();
        let shown = path.display().to_string();
        assert_eq!(pasted(&shown.replace(' ', "\\ ")), format!("@\"{shown}\" "));
        assert_eq!(pasted("two\r\nlines\rhere"), "two\nlines\nhere");
        assert_eq!(pasted("no.png"), "no.png");
    }
}
