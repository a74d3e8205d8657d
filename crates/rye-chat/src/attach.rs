//! Images that a prompt names with an `@`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use rye_engine::attachment;
use rye_engine::protocol::Part;

/// Whether a file is an image, by its name.
fn is_image(path: &Path) -> bool {
    let ending = path.extension().and_then(OsStr::to_str);
    let ending = ending.unwrap_or_default().to_ascii_lowercase();
    ["png", "jpg", "jpeg", "gif", "webp"].contains(&ending.as_str())
}

/// What a paste is to be written as: the path of an image becomes an `@path`.
pub(crate) fn pasted(text: &str) -> String {
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

/// The images that a text names, read; or which cannot be.
pub(crate) fn images(text: &str, folder: &Path) -> Result<Vec<Part>, String> {
    let names = named(text).into_iter();
    let names = names.filter(|name| is_image(Path::new(name)));
    names
        .map(|name| {
            let bytes = read(&folder.join(&name));
            let bytes = bytes.map_err(|error| format!("cannot read {name}: {error}"))?;
            attachment::image(&name, &bytes)
        })
        .collect()
}

/// A file, and one byte more than can be sent of it at most. A pipe or a device, which may
/// have no end, is none.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    let most = attachment::LARGEST as u64 + 1;
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
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
    use std::os::unix::fs::symlink;

    use super::*;

    /// The first bytes of one.
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

    #[test]
    fn images_are_found_by_their_at() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a b.png"), PNG).unwrap();
        // It is what its bytes say.
        fs::write(folder.path().join("x.jpg"), PNG).unwrap();
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
            ("x.jpg", "data:image/png;base64,iVBORw0KGgo="),
            ("a b.png", "data:image/png;base64,iVBORw0KGgo="),
        ];
        assert_eq!(names, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn what_is_no_image_is_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("text.png"), b"hello").unwrap();
        fs::write(
            at("large.png"),
            [PNG, &vec![0; attachment::LARGEST]].concat(),
        )
        .unwrap();
        fs::create_dir(at("folder.png")).unwrap();
        symlink("/dev/zero", at("endless.png")).unwrap();
        let mut mkfifo = std::process::Command::new("mkfifo");
        assert!(mkfifo.arg(at("pipe.png")).status().unwrap().success());
        for (name, why) in [
            ("gone.png", "cannot read gone.png: No such file"),
            ("text.png", "text.png is no PNG, JPEG, GIF or WebP image"),
            ("large.png", "large.png is too large to be shown"),
            ("folder.png", "cannot read folder.png: it is no file"),
            ("endless.png", "cannot read endless.png: it is no file"),
            ("pipe.png", "cannot read pipe.png: it is no file"),
        ] {
            let refused = images(&format!("see @{name}"), folder.path()).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
        }
    }

    #[test]
    fn a_path_that_is_pasted_becomes_an_image() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b.png");
        fs::write(&path, PNG).unwrap();
        let shown = path.display().to_string();
        assert_eq!(pasted(&shown.replace(' ', "\\ ")), format!("@\"{shown}\" "));
        assert_eq!(pasted("two\r\nlines\rhere"), "two\nlines\nhere");
        assert_eq!(pasted("no.png"), "no.png");
    }
}
