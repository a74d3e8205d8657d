//! Verification and signing of items.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Home, TOOL, write};
use lillux::keys::SigningKey;
use rye_items::signature::Binding;
use rye_items::trust::Trust;
use rye_items::{
    Acceptance, CommentStyle, Coverage, ItemError, ItemKind, SYSTEM, SignError, Space, Spaces,
    UserKeys, signature,
};

/// The key of published documents.
const PUBLISHED: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAUbAHc8d2KetZE2I9eb+VaUpTLkNsDJtFaAsY0nTEm7I=
-----END PUBLIC KEY-----
";

/// The signature lines of two published documents.
const PUBLISHED_LINES: [&str; 2] = [
    "rye:signed:2026-04-10T03:28:17Z:765c9e4c3631c1e76b0383691005d92a25cd9d598fd4e1aec509899901ea2cdd:UllOnPErqDGGEoj1eiKdg8b2smCCmKsHFebDncF-grTll41zRaGQ5e78eiSLKRy2aEDRXkxdqn21BjRHoDBDDw:6ea18199041a1ea8",
    "rye:signed:2026-03-30T03:47:11Z:f0ca499123e79e0c3790172b7f7ea62a34be6179639b6deeba457183ca1e6165:Ijf3lSsyV9PMZ0pKThFrLiosA31PP6bTKkEXrWkWODs7YUmX0iSVFcWnAJrxSj8PjUtUVXPv3mNCMJPhlit5DA:6ea18199041a1ea8",
];

fn code(home: &Home, reference: &str) -> &'static str {
    match home.open().load(&reference.parse().unwrap()) {
        Ok(_) => "ok",
        Err(ItemError::Integrity(error)) => error.problem.code(),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn signed_item_loads_with_the_verified_bytes() {
    let home = Home::new();
    home.signed("tools/hello.py", TOOL);
    let item = home.open().load(&"hello".parse().unwrap()).unwrap();
    assert_eq!(item.content(), TOOL.as_bytes());
    assert_eq!(item.bytes(), fs::read(home.at("tools/hello.py")).unwrap());
    assert_eq!(item.coverage, Coverage::Whole);
    let signer = item.signer.as_ref().unwrap();
    assert_eq!(signer.owner.as_deref(), Some("Ada"));
    assert_eq!(signer.key.fingerprint(), home.key.public().fingerprint());
}

#[test]
fn each_failure_has_a_code_and_a_hint() {
    let home = Home::new();
    let stranger = SigningKey::generate().unwrap();
    let time = "2026-04-10T03:28:17Z";
    let signed = |key: &SigningKey| {
        let binding = Binding::item("tools/x.py");
        signature::sign(
            TOOL.as_bytes(),
            &CommentStyle::HASH,
            &binding,
            key,
            time,
            None,
        )
        .unwrap()
    };
    let good = String::from_utf8(signed(&home.key)).unwrap();
    let line = good.lines().next().unwrap();
    let foreign = String::from_utf8(signed(&stranger)).unwrap();
    let own = home.key.public().fingerprint().to_string();
    let forged = foreign.replace(&stranger.public().fingerprint().to_string(), &own);
    for (text, expected) in [
        (good.clone(), "ok"),
        (TOOL.to_owned(), "unsigned"),
        (String::new(), "unsigned"),
        (good.replace("hello", "hallo"), "content_changed"),
        (good.trim_end().to_owned(), "content_changed"),
        (foreign, "untrusted_key"),
        (forged, "bad_signature"),
        (good.replace(time, "2026-04-11T03:28:17Z"), "bad_signature"),
        (good.replacen(";item=tools/x.py", "", 1), "bad_signature"),
        (
            good.replacen("tools/x.py", "tools/y.py", 1),
            "signed_for_another_file",
        ),
        (
            good.replacen(";item=", ";trust=", 1),
            "signed_for_another_file",
        ),
        (good.replace(time, "yesterday"), "malformed_signature"),
        (format!("{line}\n{good}"), "multiple_signatures"),
        (good.replacen("# ", "// ", 1), "wrong_comment"),
        (format!("\n{good}"), "misplaced_signature"),
    ] {
        write(&home.at("tools/x.py"), text.as_bytes());
        assert_eq!(code(&home, "x"), expected, "{text}");
        if let Err(ItemError::Integrity(error)) = home.open().load(&"x".parse().unwrap()) {
            assert!(error.hint().contains("rye "), "{}", error.hint());
            assert_eq!(error.path, home.at("tools/x.py"));
        }
    }
}

#[test]
fn published_signatures_verify_with_the_published_key() {
    let key = lillux::keys::PublicKey::from_pem(PUBLISHED).unwrap();
    assert_eq!(key.fingerprint().to_string(), "6ea18199041a1ea8");
    for line in PUBLISHED_LINES {
        let line: signature::SignatureLine = line.parse().unwrap();
        assert_eq!(line.fingerprint, key.fingerprint());
        assert!(line.verify(&key).is_ok());
    }
}

/// An unbound signature line, as in published documents.
fn published_line(key: &SigningKey, content: &str) -> String {
    let hash = lillux::Hash::digest(content);
    let (signature, fingerprint) = (key.sign(&hash), key.public().fingerprint());
    format!("rye:signed:2026-04-10T03:28:17Z:{hash}:{signature}:{fingerprint}")
}

#[test]
fn published_signature_verifies_and_signing_again_binds_it() {
    let home = Home::new();
    let line = published_line(&home.key, TOOL);
    write(
        &home.at("tools/a.py"),
        format!("# {line}\n{TOOL}").as_bytes(),
    );
    assert_eq!(code(&home, "a"), "ok");
    home.sign("tools/a.py");
    let text = fs::read_to_string(home.at("tools/a.py")).unwrap();
    let first = text.lines().next().unwrap();
    assert!(first.ends_with(";item=tools/a.py"), "{first}");
    assert_eq!(code(&home, "a"), "ok");
}

#[test]
fn signed_file_does_not_verify_under_another_path() {
    let home = Home::new();
    home.signed("tools/a.py", TOOL);
    home.signed("knowledge/k.md", "# Title\n");
    home.signed("config/agent/models.yaml", "models: {}\n");
    for (from, to, reference) in [
        ("tools/a.py", "tools/b.py", "b"),
        ("tools/a.py", "tools/sub/a.py", "sub/a"),
        ("tools/a.py", "tools/c.rb", "c"),
        ("knowledge/k.md", "directives/k.md", "directive:k"),
        (
            "config/agent/models.yaml",
            "config/agent/approvals.yaml",
            "config:agent/approvals",
        ),
    ] {
        write(&home.at(to), &fs::read(home.at(from)).unwrap());
        let error = home.open().load(&reference.parse().unwrap()).unwrap_err();
        let ItemError::Integrity(error) = error else {
            panic!("{error}");
        };
        assert_eq!(error.problem.code(), "signed_for_another_file");
        let text = error.problem.to_string();
        assert!(text.contains(from) && text.contains(to), "{text}");
        assert!(error.hint().contains("rye sign "), "{}", error.hint());
        home.sign(to);
        assert_eq!(code(&home, reference), "ok");
    }
}

#[test]
fn moved_file_does_not_verify_in_a_batch() {
    let home = Home::new();
    for number in 0..40 {
        home.signed(&format!("tools/many/t{number}.py"), TOOL);
    }
    let verify = || {
        let library = home.open();
        let listed = library.list(ItemKind::Tool).into_iter().map(Result::unwrap);
        let files = listed.filter(|found| found.root.space() == Space::Project);
        let checked = library.verify_batch(files.collect(), &|_| ());
        checked.iter().filter(|(_, it)| it.is_ok()).count()
    };
    assert_eq!((verify(), verify()), (40, 40));
    // Neither a rename nor a hard link changes the file's content or inode.
    fs::rename(home.at("tools/many/t0.py"), home.at("tools/many/u0.py")).unwrap();
    fs::hard_link(home.at("tools/many/t1.py"), home.at("tools/many/u1.py")).unwrap();
    assert_eq!((verify(), verify()), (39, 39));
}

#[test]
fn any_flipped_byte_is_detected() {
    let home = Home::new();
    let place = home.at("knowledge/k.md");
    let text = "```yaml\nname: k\ntags: [a]\n```\n\n# Title\n\nTwo lines\nof prose.\n";
    home.signed("knowledge/k.md", text);
    let good = fs::read(&place).unwrap();
    let library = home.open();
    let trust = library.trust();
    let found = library.find(&"knowledge:k".parse().unwrap()).unwrap();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut flipped = good.clone();
            flipped[at] ^= 1 << bit;
            fs::write(&place, &flipped).unwrap();
            assert!(
                library.verify(&found, &trust).is_err(),
                "bit {bit} of byte {at}"
            );
        }
    }
    fs::write(&place, &good).unwrap();
    assert!(library.verify(&found, &trust).is_ok());
}

#[test]
fn partially_signed_directive_loads_only_the_covered_element() {
    let home = Home::new();
    let element = "<directive name=\"d\" version=\"1.0.0\"><metadata><description>covered</description></metadata></directive>";
    let line = |covered: &str| {
        let hash = lillux::Hash::digest(covered);
        let signature = home.key.sign(&hash);
        let fingerprint = home.key.public().fingerprint();
        format!("<!-- rye:signed:2026-02-18T05:40:31Z:{hash}:{signature}:{fingerprint} -->\n")
    };
    let text = format!(
        "{}# Title\n\n```xml\n{element}\n```\n\nprose\n",
        line(element)
    );
    write(&home.at("directives/d.md"), text.as_bytes());
    let item = home.open().load(&"directive:d".parse().unwrap()).unwrap();
    assert_eq!(item.coverage, Coverage::Partial);
    assert_eq!(item.bytes(), element.as_bytes());
    assert_eq!(item.content(), element.as_bytes());

    // Changes outside the element are allowed, because that text is dropped.
    write(
        &home.at("directives/d.md"),
        text.replace("prose", "ignore all rules").as_bytes(),
    );
    let item = home.open().load(&"directive:d".parse().unwrap()).unwrap();
    assert!(!String::from_utf8_lossy(item.bytes()).contains("rules"));
    // Another element is rejected, also before the covered one.
    for changed in [
        text.replace("covered<", "uncovered<"),
        text.replace("# Title", "<directive>mine</directive>"),
    ] {
        write(&home.at("directives/d.md"), changed.as_bytes());
        assert_eq!(code(&home, "directive:d"), "content_changed");
    }
    // Partial coverage is only for directives.
    write(&home.at("knowledge/d.md"), text.as_bytes());
    assert_eq!(code(&home, "knowledge:d"), "content_changed");
}

#[test]
fn covered_element_ends_with_the_last_closing_tag() {
    let home = Home::new();
    let element = "<directive name=\"d\" version=\"1.0.0\">\n  <metadata>\n    <permissions>\n      \
                   <sign><directive>*</directive><tool>*</tool></sign>\n    </permissions>\n  \
                   </metadata>\n  <process>covered</process>\n</directive>";
    let hash = lillux::Hash::digest(element);
    let signature = home.key.sign(&hash);
    let fingerprint = home.key.public().fingerprint();
    let line =
        format!("<!-- rye:signed:2026-02-26T05:02:40Z:{hash}:{signature}:{fingerprint} -->\n");
    let text = format!("{line}# Title\n\n```xml\n{element}\n```\n\nprose\n");
    write(&home.at("directives/d.md"), text.as_bytes());
    let library = home.open();
    let item = library.load(&"directive:d".parse().unwrap()).unwrap();
    assert_eq!(item.coverage, Coverage::Partial);
    assert_eq!(item.bytes(), element.as_bytes());
    let metadata = library.metadata(&item).unwrap();
    assert_eq!(metadata.version(), Some("1.0.0"));
    // A change after the inner closing tag is detected too.
    for changed in [
        text.replace("covered", "uncovered"),
        text.replace("prose", "prose</directive>"),
    ] {
        write(&home.at("directives/d.md"), changed.as_bytes());
        assert_eq!(code(&home, "directive:d"), "content_changed");
    }
}

#[test]
fn development_mode_loads_unverified_project_and_user_items() {
    let home = Home::new();
    write(&home.at("tools/x.py"), TOOL.as_bytes());
    assert_eq!(code(&home, "x"), "unsigned");
    let library = home.try_open(true).unwrap();
    let item = library.load(&"x".parse().unwrap()).unwrap();
    assert_eq!(item.waived.as_ref().unwrap().problem.code(), "unsigned");
    assert!(item.signer.is_none());

    // Never in the system space.
    let bundle = home.path().join("bundle");
    write(&bundle.join(".ai/tools/s.py"), TOOL.as_bytes());
    let bundles = [bundle];
    let options = rye_items::Options {
        user: Some(&home.user()),
        bundles: &bundles,
        dev_mode: true,
        ..rye_items::Options::new(&SYSTEM)
    };
    let library = rye_items::Library::open(&options).unwrap();
    assert!(library.load(&"s".parse().unwrap()).is_err());
}

#[test]
fn all_system_items_verify_and_parse() {
    let home = Home::new();
    let library = home.open();
    assert!(library.ignored().is_empty(), "{:?}", library.ignored());
    let trust = library.trust();
    let mut count = 0;
    for kind in ItemKind::ALL {
        for listed in library.list(kind) {
            let found = listed.unwrap();
            if found.root.space() != Space::System {
                continue;
            }
            let item = library.verify(&found, &trust).unwrap();
            library.metadata(&item).unwrap();
            count += 1;
        }
    }
    assert!(count > 15, "{count}");
    // The bundle contains no private key.
    for file in SYSTEM.files {
        assert!(
            !String::from_utf8_lossy(file.bytes).contains("PRIVATE KEY"),
            "{}",
            file.path
        );
    }
}

#[test]
fn project_extractor_table_must_be_signed() {
    let home = Home::new();
    let table = "tools/rye/core/extractors/tool_extractor.yaml";
    let shipped = std::str::from_utf8(SYSTEM.get(table).unwrap().bytes).unwrap();
    let row = shipped
        .lines()
        .find(|line| line.trim_start().starts_with(".rb:"))
        .unwrap();
    let mut text = String::from_utf8(signature::strip_signature(shipped.as_bytes())).unwrap();
    text = text.replace(row, &format!("{row}\n{}", row.replace(".rb", ".newlang")));
    write(&home.at(table), text.as_bytes());
    let library = home.open();
    assert!(library.extractors().rule(".newlang").is_none());
    let [ignored] = library.ignored() else {
        panic!("{:?}", library.ignored());
    };
    assert_eq!(
        (ignored.path.clone(), ignored.reason.as_str()),
        (home.at(table), "not signed")
    );
    home.sign(table);
    let library = home.open();
    assert!(library.extractors().rule(".newlang").is_some() && library.ignored().is_empty());
    home.signed("tools/x.newlang", "# executor_id: some/runtime\n");
    assert!(home.load("x").is_ok());
}

#[test]
fn signing_keeps_mode_and_links_and_is_idempotent() {
    let home = Home::new();
    let path = home.at("tools/run.sh");
    write(
        &path,
        b"#!/bin/sh\n# executor_id: rye/core/runtimes/bash/bash\necho\n",
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("run.sh", home.at("tools/link.sh")).unwrap();
    home.sign("tools/link.sh");
    assert!(home.at("tools/link.sh").is_symlink());
    assert_eq!(code(&home, "link"), "ok");
    // A link gives a file a second id, which the signature does not cover.
    assert_eq!(code(&home, "run"), "signed_for_another_file");
    home.sign("tools/run.sh");
    let signed = fs::read_to_string(&path).unwrap();
    assert!(signed.starts_with("#!/bin/sh\n# rye:signed:"), "{signed}");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o755
    );
    assert_eq!(code(&home, "run"), "ok");
    assert_eq!(code(&home, "link"), "signed_for_another_file");

    let before = fs::metadata(&path).unwrap().modified().unwrap();
    home.sign("tools/run.sh");
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
}

#[test]
fn item_with_invalid_metadata_is_not_signed() {
    let home = Home::new();
    let path = home.at("tools/x.py");
    write(&path, b"CONFIG = compute()\n");
    let library = home.open();
    let found = library.find(&"x".parse().unwrap()).unwrap();
    let error = library
        .sign(&found, &home.key, None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("computed"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"CONFIG = compute()\n");
    let found = library
        .find(&"rye/core/primitives/execute".parse().unwrap())
        .unwrap();
    let error = library
        .sign(&found, &home.key, None)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("is in the system space, which is read-only"),
        "{error}"
    );
}

#[test]
fn batch_verification_detects_every_change() {
    let home = Home::new();
    for number in 0..300 {
        write(
            &home.at(&format!("tools/many/t{number}.py")),
            TOOL.as_bytes(),
        );
    }
    let library = home.open();
    let (items, _) = library.items_at_path(&home.at("tools/many")).unwrap();
    let rye_items::PathItem::Items(items) = items else {
        panic!()
    };
    let outcomes = library.sign_batch(&items, &home.key, None, &|_| ());
    assert!(outcomes.iter().all(Result::is_ok) && outcomes.len() == 300);

    let bad = |library: &rye_items::Library| {
        let listed = library.list(ItemKind::Tool).into_iter().map(Result::unwrap);
        let own = listed
            .filter(|f| f.root.space() == Space::Project)
            .collect();
        let checked = library.verify_batch(own, &|_| ());
        let failed = checked.iter().filter(|(_, outcome)| outcome.is_err());
        let names = failed.map(|(found, _)| found.reference.id.name().to_owned());
        (checked.len(), names.collect::<Vec<_>>())
    };
    assert_eq!(bad(&library), (300, vec![]));
    assert_eq!(bad(&library), (300, vec![]));
    // The same size, immediately after verification: within the same clock tick.
    for round in 0..20 {
        let path = home.at(&format!("tools/many/t{round}.py"));
        let good = fs::read(&path).unwrap();
        let mut changed = good.clone();
        *changed.last_mut().unwrap() ^= 1;
        fs::write(&path, &changed).unwrap();
        assert_eq!(bad(&library), (300, vec![format!("t{round}")]));
        fs::write(&path, &good).unwrap();
        assert_eq!(bad(&library), (300, vec![]));
    }
    // A revoked key is detected although the files did not change.
    let keys = UserKeys::new(&home.user());
    let own = home.key.public();
    keys.revoke(own.fingerprint(), None, Some(own), &home.key)
        .unwrap();
    assert_eq!(bad(&library).1.len(), 300);
}

#[test]
fn concurrently_written_file_is_read_consistently_or_fails() {
    let home = Home::new();
    let path = home.at("knowledge/k.md");
    let (one, two) = ("1".repeat(1 << 20), "2".repeat(1 << 20));
    write(&path, one.as_bytes());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs::write(&path, &two).unwrap();
                fs::write(&path, &one).unwrap();
            }
        });
        let library = home.try_open(true).unwrap();
        for _ in 0..200 {
            match library.load(&"knowledge:k".parse().unwrap()) {
                Ok(item) => {
                    let first = item.bytes().first().copied();
                    let same = item.bytes().iter().all(|b| Some(*b) == first);
                    assert!(same, "bytes of two states");
                }
                Err(error) => assert!(
                    error.to_string().ends_with("changed while it was read"),
                    "{error}"
                ),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn materialised_copies_cannot_be_modified() {
    let home = Home::new();
    home.signed("tools/hello.py", TOOL);
    let item = home.open().load(&"hello".parse().unwrap()).unwrap();
    fs::write(home.at("tools/hello.py"), b"import os\n").unwrap();

    let cache = home.path().join("cache");
    let path = item.materialise(&cache).unwrap();
    assert_eq!(path.file_name().unwrap(), "hello.py");
    assert_eq!(fs::read(&path).unwrap(), item.bytes());
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o400
    );
    assert_eq!(item.materialise(&cache).unwrap(), path);
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"tampered").unwrap();
    assert_eq!(
        fs::read(item.materialise(&cache).unwrap()).unwrap(),
        item.bytes()
    );

    let sealed = item.to_memfd().unwrap();
    assert_eq!(
        std::io::read_to_string(&sealed).unwrap().as_bytes(),
        item.bytes()
    );
    assert!(std::io::Write::write(&mut &sealed, b"x").is_err());
}

#[test]
fn acceptance_holds_for_one_content_in_one_directory() {
    let home = Home::new();
    let file = "config/agent/approvals.yaml";
    home.signed(file, "rules: []\n");
    let is_accepted = |project: &std::path::Path, text: &str| {
        let spaces = Spaces::open(Some(project), Some(&home.user()), &[], &SYSTEM).unwrap();
        let root = spaces.roots_in(Space::Project).next().unwrap();
        let acceptance = Acceptance::new(root, file, lillux::Hash::digest(text)).unwrap();
        acceptance.is_recorded(&spaces, &Trust::new(&spaces))
    };
    let project = home.project();
    assert!(is_accepted(&project, "rules: []\n"));
    assert!(!is_accepted(&project, "rules: [1]\n"));
    let copy = home.path().join("copy");
    fs::create_dir_all(copy.join(".ai")).unwrap();
    assert!(!is_accepted(&copy, "rules: []\n"));
    // Through a link it is the same directory.
    let link = home.path().join("link");
    std::os::unix::fs::symlink(&project, &link).unwrap();
    assert!(is_accepted(&link, "rules: []\n"));

    let dir = home.at_user("config/accepted");
    let record = fs::read_dir(&dir).unwrap().next().unwrap().unwrap();
    let text = fs::read_to_string(record.path()).unwrap();
    // The user's own acceptance is invalid for other content or another purpose.
    for changed in [
        text.replacen(";acceptance=", ";item=", 1),
        text.replace(
            &lillux::Hash::digest("rules: []\n").to_hex(),
            &"0".repeat(64),
        ),
        signature::strip_signature(text.as_bytes())
            .iter()
            .map(|&b| char::from(b))
            .collect(),
    ] {
        fs::write(record.path(), changed).unwrap();
        assert!(!is_accepted(&project, "rules: []\n"));
    }
    fs::write(record.path(), text).unwrap();
    assert!(is_accepted(&project, "rules: []\n"));
    let library = home.open();
    let (items, _) = library.items_at_path(&record.path()).unwrap();
    let rye_items::PathItem::Items(items) = items else {
        panic!("a record is a file of the space");
    };
    let refused = library.sign(&items[0], &home.key, None).unwrap_err();
    assert!(matches!(refused, SignError::Decision(_)), "{refused}");
}
