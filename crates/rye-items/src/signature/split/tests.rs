use std::sync::OnceLock;

use proptest::prelude::*;

use super::*;

static KEY: OnceLock<SigningKey> = OnceLock::new();
const TIME: &str = "2026-04-10T03:28:17Z";

fn key() -> SigningKey {
    SigningKey::generate().unwrap()
}

fn signed(file: &[u8], comment: &CommentStyle, key: &SigningKey) -> Vec<u8> {
    sign(file, comment, &Binding::item("tools/x.py"), key, TIME, None).unwrap()
}

#[test]
fn signing_preserves_the_other_bytes() {
    let key = key();
    for (file, before) in [
        (&b""[..], &b""[..]),
        (b"x = 1\n", b""),
        (b"x = 1", b""),
        (b"\n\nx", b""),
        (b"a\r\nb\r\n", b""),
        (b"a\r\nb\nc", b""),
        (b"#!/bin/sh\necho\n", b"#!/bin/sh\n"),
        (b"#!/bin/sh\r\necho\r\n", b"#!/bin/sh\r\n"),
        (b"\xef\xbb\xbfa: 1\n", b"\xef\xbb\xbf"),
        (b"\xff\xfe\x00binary", b""),
    ] {
        for comment in [
            CommentStyle::HASH,
            CommentStyle::SLASHES,
            CommentStyle::MARKUP,
        ] {
            let once = signed(file, &comment, &key);
            let parts = split(&once, &comment).unwrap();
            assert_eq!(parts.before, before);
            assert_eq!(parts.covered(), file);
            assert_eq!(parts.hash(), parts.line.hash);
            assert!(parts.line.verify(key.public()).is_ok());
            assert_eq!(signed(&once, &comment, &key), once, "signing is idempotent");
            assert_eq!(strip_signature(&once), file);
        }
    }
}

#[test]
fn line_ending_follows_the_file() {
    let key = key();
    let crlf = signed(b"a\r\nb\r\n", &CommentStyle::HASH, &key);
    assert!(crlf.split(|&b| b == b'\n').next().unwrap().ends_with(b"\r"));
    let lf = signed(b"a\nb\r\n", &CommentStyle::HASH, &key);
    assert!(!lf.split(|&b| b == b'\n').next().unwrap().ends_with(b"\r"));
}

#[test]
fn shebang_without_newline_gets_one() {
    let key = key();
    let once = signed(b"#!/bin/true", &CommentStyle::HASH, &key);
    let parts = split(&once, &CommentStyle::HASH).unwrap();
    assert_eq!(parts.covered(), b"#!/bin/true\n");
    assert_eq!(signed(&once, &CommentStyle::HASH, &key), once);
}

#[test]
fn unusable_signature_line_is_reported() {
    let key = key();
    let good = String::from_utf8(signed(b"x = 1\n", &CommentStyle::HASH, &key)).unwrap();
    let line = good.lines().next().unwrap();
    let body = line.strip_prefix("# ").unwrap();
    let error = |file: &str| split(file.as_bytes(), &CommentStyle::HASH).unwrap_err();
    for unsigned in ["x = 1\n", "", "# about rye:signed: lines\n"] {
        assert_eq!(error(unsigned), SignatureError::Unsigned, "{unsigned}");
    }
    for wrong in [
        format!("// {body}"),
        format!("<!-- {body} -->"),
        format!("#{body}"),
        format!("#  {body}"),
        format!("#\t{body}"),
        format!(" # {body}"),
    ] {
        let error = error(&wrong);
        assert!(
            matches!(error, SignatureError::WrongComment { .. }),
            "{wrong}"
        );
    }
    for misplaced in [
        format!("x = 1\n{line}\n"),
        format!("\n{line}\n"),
        format!("#!x\n\n{line}"),
    ] {
        let error = error(&misplaced);
        assert!(
            matches!(error, SignatureError::Misplaced { .. }),
            "{misplaced}"
        );
    }
    let trailing_space = error(&format!("{line} \nx"));
    assert!(matches!(trailing_space, SignatureError::Malformed { .. }));
    let bad_time = error(&line.replace("2026", "20x6"));
    assert!(matches!(bad_time, SignatureError::Malformed { .. }));
    assert_eq!(bad_time.excerpt().unwrap().position.to_string(), "1:14");
    for (two, position) in [
        (format!("{line}\n{line}\nx\n"), "2:1"),
        (format!("#!/bin/sh\n{line}\n// {body}\n"), "3:1"),
    ] {
        let error = error(&two);
        assert!(matches!(error, SignatureError::Multiple { .. }), "{two}");
        assert_eq!(error.excerpt().unwrap().position.to_string(), position);
    }
}

#[test]
fn signing_replaces_unusable_signature_lines() {
    let key = key();
    let good = signed(b"x = 1\n", &CommentStyle::HASH, &key);
    let line = String::from_utf8(good.clone()).unwrap();
    let line = line.lines().next().unwrap();
    for before in [
        format!("{line}\n{line}\n"),
        format!("//{}\n", &line[1..]),
        "# rye:signed:garbage\n".to_owned(),
    ] {
        assert_eq!(
            signed(
                format!("{before}x = 1\n").as_bytes(),
                &CommentStyle::HASH,
                &key
            ),
            good
        );
    }
}

proptest! {
    #[test]
    fn any_changed_byte_invalidates_the_signature(
        file in proptest::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let key = KEY.get_or_init(key);
        let once = signed(&file, &CommentStyle::HASH, key);
        let parts = split(&once, &CommentStyle::HASH).unwrap();
        prop_assert_eq!(parts.hash(), parts.line.hash);
        let at = at.index(once.len());
        let mut changed = once.clone();
        changed[at] ^= flip;
        let is_valid = split(&changed, &CommentStyle::HASH).is_ok_and(|parts| {
            parts.line.fingerprint == key.public().fingerprint()
                && parts.hash() == parts.line.hash
                && parts.line.verify(key.public()).is_ok()
        });
        prop_assert!(!is_valid);
    }
}
