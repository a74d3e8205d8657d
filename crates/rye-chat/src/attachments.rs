//! Images that a prompt mentions with `@path`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use rye_engine::attachment;
use rye_engine::protocol::Part;

/// Whether a file name has the extension of an image.
fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    let extension = extension.unwrap_or_default().to_ascii_lowercase();
    ["png", "jpg", "jpeg", "gif", "webp"].contains(&extension.as_str())
}

/// Normalises pasted text: the path of an image becomes `@path`.
pub(crate) fn normalize_paste(text: &str) -> String {
    let bare = text.trim().trim_matches(['\'', '"']).replace("\\ ", " ");
    let bare = bare.strip_prefix("file://").unwrap_or(&bare);
    let path = Path::new(bare);
    if !bare.contains('\n') && is_image(path) && path.is_absolute() && path.is_file() {
        let spaced = bare.contains(char::is_whitespace);
        let quote = if spaced { "\"" } else { "" };
        return format!("@{quote}{bare}{quote} ");
    }
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// Reads the images that a text mentions. The error names the first unusable one.
pub(crate) fn images(text: &str, directory: &Path) -> Result<Vec<Part>, String> {
    let names = mentions(text).into_iter();
    let names = names.filter(|name| is_image(Path::new(name)));
    names
        .map(|name| {
            let bytes = read(&directory.join(&name));
            let bytes = bytes.map_err(|error| format!("cannot read {name}: {error}"))?;
            attachment::image(&name, &bytes)
        })
        .collect()
}

/// Reads a regular file, up to one byte more than may be sent. Pipes and devices are refused,
/// because they may be endless.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    let most = attachment::MAX_IMAGE_BYTES as u64 + 1;
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The names after each `@`, up to a space or in quotes.
fn mentions(text: &str) -> Vec<String> {
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
    use std::os::unix::fs::symlink;

    use super::*;

    /// The signature of a PNG file.
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

    #[test]
    fn mentioned_images_are_attached() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a b.png"), PNG).unwrap();
        // The content decides the type, not the extension.
        fs::write(directory.path().join("x.jpg"), PNG).unwrap();
        let found = images(
            "see @x.jpg and @\"a b.png\", not a@x.jpg or @src/main.rs",
            directory.path(),
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
            ("x.jpg", "data:image/png;base64,iVBORw0KGgo="),
            ("a b.png", "data:image/png;base64,iVBORw0KGgo="),
        ];
        assert_eq!(names, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn unusable_images_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("text.png"), b"hello").unwrap();
        fs::write(
            at("large.png"),
            [PNG, &vec![0; attachment::MAX_IMAGE_BYTES]].concat(),
        )
        .unwrap();
        fs::create_dir(at("folder.png")).unwrap();
        symlink("/dev/zero", at("endless.png")).unwrap();
        let mut mkfifo = std::process::Command::new("mkfifo");
        assert!(mkfifo.arg(at("pipe.png")).status().unwrap().success());
        for (name, why) in [
            ("gone.png", "cannot read gone.png: No such file"),
            ("text.png", "text.png"),
            ("large.png", "large.png"),
            ("folder.png", "cannot read folder.png: not a regular file"),
            ("endless.png", "cannot read endless.png: not a regular file"),
            ("pipe.png", "cannot read pipe.png: not a regular file"),
        ] {
            let refused = images(&format!("see @{name}"), directory.path()).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
        }
    }

    #[test]
    fn pasted_image_path_becomes_a_mention() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a b.png");
        fs::write(&path, PNG).unwrap();
        let shown = path.display().to_string();
        assert_eq!(
            normalize_paste(&shown.replace(' ', "\\ ")),
            format!("@\"{shown}\" ")
        );
        assert_eq!(normalize_paste("two\r\nlines\rhere"), "two\nlines\nhere");
        assert_eq!(normalize_paste("no.png"), "no.png");
    }
}
