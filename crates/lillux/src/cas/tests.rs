use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

fn store() -> (TempDir, Cas) {
    let dir = tempfile::tempdir().unwrap();
    let cas = Cas::open(dir.path().join("store")).unwrap();
    (dir, cas)
}

/// Sets the time of a file to two hours ago.
fn age(path: &Path) {
    let then = SystemTime::now() - Duration::from_hours(2);
    File::open(path).unwrap().set_modified(then).unwrap();
}

fn overwrite(path: &Path, bytes: &[u8]) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, bytes).unwrap();
}

fn temporary_files(cas: &Cas) -> usize {
    fs::read_dir(cas.root().join(TMP)).unwrap().count()
}

#[test]
fn stored_content_is_read_back() {
    let (_dir, cas) = store();
    for bytes in [&b""[..], b"hello", &[0, 255, 10, 13], &vec![7; 300_000]] {
        let stored = cas.put(bytes).unwrap();
        assert_eq!(stored.hash, Hash::digest(bytes));
        assert_eq!(
            (stored.size, stored.kind, stored.existed),
            (bytes.len() as u64, Kind::Blob, false)
        );
        assert_eq!(cas.get(&stored.hash).unwrap(), bytes);
        let mut copy = Vec::new();
        assert_eq!(cas.copy_to(&stored.hash, &mut copy).unwrap(), stored.size);
        assert_eq!(copy, bytes);
        assert_eq!(
            cas.put_reader(bytes).unwrap(),
            PutResult {
                existed: true,
                ..stored
            }
        );
    }
    assert_eq!(temporary_files(&cas), 0);
}

#[test]
fn files_are_sharded_and_read_only() {
    let (_dir, cas) = store();
    let blob = cas.put(b"hello").unwrap().hash;
    let object = cas.put_object(&json!([])).unwrap().hash;
    for (kind, hash, expected) in [
        (Kind::Blob, blob, format!("blobs/2c/f2/{blob}")),
        (Kind::Object, object, format!("objects/4f/53/{object}.json")),
    ] {
        let path = cas.path_of(kind, &hash);
        assert_eq!(path, cas.root().join(expected));
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o444);
    }
}

#[test]
fn objects_are_stored_as_canonical_json() {
    let (_dir, cas) = store();
    let value = json!({ "b": [1.0, "é"], "a": null });
    let stored = cas.put_object(&value).unwrap();
    let text = br#"{"a":null,"b":[1.0,"\u00e9"]}"#;
    assert_eq!(
        (stored.hash, stored.kind),
        (Hash::digest(text), Kind::Object)
    );
    assert_eq!(cas.get(&stored.hash).unwrap(), text);
    assert_eq!(cas.get_object::<Value>(&stored.hash).unwrap(), value);
    let again = cas
        .put_json(b" {\"b\" : [1e0, \"\\u00E9\"], \"a\":null}\n")
        .unwrap();
    assert_eq!(
        again,
        PutResult {
            existed: true,
            ..stored
        }
    );

    let error = cas.get_object::<Vec<u8>>(&stored.hash).unwrap_err();
    assert!(
        matches!(&error, CasError::Decode { hash, .. } if *hash == stored.hash),
        "{error}"
    );
    let error = cas.put_json(b"{").unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot store as an object: not JSON: EOF while parsing an object at line 1 column 1"
    );
}

#[test]
fn json_stored_as_a_blob_is_not_an_object() {
    let (_dir, cas) = store();
    let hash = cas.put(b"{}").unwrap().hash;
    assert!(matches!(
        cas.get_object::<Value>(&hash),
        Err(CasError::NotFound { .. })
    ));
    assert!(!cas.put_object(&json!({})).unwrap().existed);
    assert_eq!(cas.kind_of(&hash).unwrap(), Some(Kind::Object));
    let report = cas.verify(&hash).unwrap();
    assert_eq!((report.objects, report.blobs), (1, 1));
}

#[test]
fn missing_content_is_reported_with_the_store() {
    let (_dir, cas) = store();
    let hash = Hash::digest(b"nowhere");
    assert!(!cas.has(&hash).unwrap());
    let message = format!("{hash} is not in the store {}", cas.root().display());
    for error in [
        cas.get(&hash).unwrap_err(),
        cas.get_object::<Value>(&hash).unwrap_err(),
        cas.reader(&hash).unwrap_err(),
        cas.verify(&hash).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn corrupted_content_is_reported_and_never_returned() {
    let (_dir, cas) = store();
    for bytes in [&b"flipped"[..], b"", b"shor", b"longer than it was"] {
        let hash = cas.put(b"genuine").unwrap().hash;
        let path = cas.path_of(Kind::Blob, &hash);
        overwrite(&path, bytes);
        let expected = CorruptedFile {
            path: path.clone(),
            expected: hash,
            found: Hash::digest(bytes),
        };
        let mut copy = Vec::new();
        for error in [
            cas.get(&hash).unwrap_err(),
            cas.reader(&hash).unwrap_err(),
            cas.copy_to(&hash, &mut copy).unwrap_err(),
        ] {
            assert!(matches!(error, CasError::Corrupted(found) if found == expected));
        }
        assert_eq!(copy, b"");
        for report in [cas.verify(&hash).unwrap(), cas.verify_all().unwrap()] {
            assert_eq!(report.corrupted, std::slice::from_ref(&expected));
            assert!(!report.is_sound());
        }
        assert_eq!(
            expected.to_string(),
            format!(
                "{} is corrupted: expected the hash {hash}, found {}",
                path.display(),
                Hash::digest(bytes)
            )
        );
        // Putting the content again repairs the file.
        assert!(!cas.put(b"genuine").unwrap().existed);
        assert_eq!(cas.get(&hash).unwrap(), b"genuine");
        assert!(cas.verify_all().unwrap().is_sound());
    }
    assert_eq!(temporary_files(&cas), 0);
}

#[test]
fn file_that_changes_while_it_is_read_fails() {
    let (_dir, cas) = store();
    let bytes = vec![1; 1_000_000];
    let hash = cas.put(&bytes).unwrap().hash;
    let mut reader = cas.reader(&hash).unwrap();
    assert_eq!((reader.size(), reader.kind()), (1_000_000, Kind::Blob));
    reader.read_exact(&mut [0; 100]).unwrap();
    overwrite(&cas.path_of(Kind::Blob, &hash), &vec![2; 1_000_000]);
    let error = reader.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let inner = error.get_ref().unwrap();
    assert!(inner.is::<CorruptedFile>(), "{error}");
}

#[test]
fn second_put_updates_the_time_and_does_not_rewrite() {
    let (_dir, cas) = store();
    let hash = cas.put(b"once").unwrap().hash;
    let path = cas.path_of(Kind::Blob, &hash);
    age(&path);
    let before = fs::metadata(&path).unwrap();
    assert!(cas.put(b"once").unwrap().existed);
    let after = fs::metadata(&path).unwrap();
    assert_eq!(before.ino(), after.ino());
    assert!(after.modified().unwrap() > before.modified().unwrap() + Duration::from_hours(1));
}

#[test]
fn dropped_writer_stores_nothing() {
    let (_dir, cas) = store();
    let mut writer = cas.writer().unwrap();
    writer.write_all(b"in ").unwrap();
    writer.write_all(b"pieces").unwrap();
    assert_eq!(writer.len(), 9);
    let stored = writer.finish().unwrap();
    assert_eq!((stored.hash, stored.size), (Hash::digest(b"in pieces"), 9));

    let mut dropped = cas.writer().unwrap();
    dropped.write_all(b"given up").unwrap();
    assert_eq!(temporary_files(&cas), 1);
    drop(dropped);
    assert_eq!(temporary_files(&cas), 0);
    assert_eq!(cas.verify_all().unwrap().blobs, 1);
}

#[test]
fn failing_input_stores_nothing() {
    struct FailingReader(usize);
    impl Read for FailingReader {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            match self.0 {
                1 => Ok(buffer.len()),
                2 => Err(io::ErrorKind::Interrupted.into()),
                _ => Err(io::Error::other("connection lost")),
            }
        }
    }
    let (_dir, cas) = store();
    let error = cas.put_reader(FailingReader(0)).unwrap_err().to_string();
    assert_eq!(error, "cannot read the content to store: connection lost");
    assert_eq!(temporary_files(&cas), 0);
    assert_eq!(cas.verify_all().unwrap().blobs, 0);
}

#[test]
fn concurrent_puts_of_the_same_content_store_one_file() {
    let (_dir, cas) = store();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for n in 0..20 {
                    cas.put(format!("content {n}").as_bytes()).unwrap();
                    cas.put_object(&json!({ "n": n })).unwrap();
                }
            });
        }
    });
    let report = cas.verify_all().unwrap();
    assert_eq!((report.blobs, report.objects), (20, 20));
    assert!(report.is_sound() && report.strays.is_empty());
    assert_eq!(temporary_files(&cas), 0);
}

#[test]
fn only_open_creates_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("a/b/store");
    let error = Cas::open_existing(&root).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("there is no store in {}", root.display())
    );
    assert!(!dir.path().join("a").exists());
    let hash = Cas::open(&root).unwrap().put(b"x").unwrap().hash;
    assert!(Cas::open_existing(&root).unwrap().has(&hash).unwrap());
    assert!(Cas::open(&root).unwrap().has(&hash).unwrap());
}

#[test]
fn root_that_is_a_file_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for open in [|p: &Path| Cas::open(p), |p: &Path| Cas::open_existing(p)] {
        let error = open(&file).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "the root of the store is not a directory: {}",
                file.display()
            )
        );
        let error = open(&file.join("below")).unwrap_err();
        assert!(
            matches!(&error, CasError::Path(e) if e.source.kind() == io::ErrorKind::NotADirectory),
            "{error}"
        );
    }
}

#[test]
fn strays_are_reported_and_left_alone() {
    let (_dir, cas) = store();
    let hash = cas.put(b"mine").unwrap().hash;
    let shard = cas.path_of(Kind::Blob, &hash).parent().unwrap().to_owned();
    let strays = [
        cas.root().join("blobs/notes"),
        shard.join(Hash::digest(b"elsewhere").to_hex()),
        shard.join("x"),
    ];
    for stray in &strays {
        fs::write(stray, "theirs").unwrap();
        age(stray);
    }
    let report = cas.verify_all().unwrap();
    assert!(report.is_sound());
    assert_eq!(report.strays, strays);
    cas.gc(
        [],
        GcOptions {
            grace: Duration::ZERO,
            dry_run: false,
        },
    )
    .unwrap();
    assert!(strays.iter().all(|stray| stray.exists()));
}

/// A store in which everything is old: `top` refers to `middle`, which has `leaf` as a key and
/// in a list; nothing refers to `orphan`.
struct ReferenceChain {
    _dir: TempDir,
    cas: Cas,
    leaf: Hash,
    middle: Hash,
    top: Hash,
    orphan: Hash,
}

fn chain() -> ReferenceChain {
    let (dir, cas) = store();
    let leaf = cas.put(b"leaf").unwrap().hash;
    let middle = cas
        .put_object(&json!({ leaf.to_hex(): [leaf, Hash::digest(b"absent")] }))
        .unwrap()
        .hash;
    let top = cas
        .put_object(&json!({ "see": { "also": middle } }))
        .unwrap()
        .hash;
    let orphan = cas.put(b"orphan").unwrap().hash;
    let chain = ReferenceChain {
        _dir: dir,
        cas,
        leaf,
        middle,
        top,
        orphan,
    };
    for hash in [leaf, middle, top, orphan] {
        age(&chain.path(&hash));
    }
    chain
}

impl ReferenceChain {
    fn path(&self, hash: &Hash) -> PathBuf {
        self.cas
            .path_of(self.cas.kind_of(hash).unwrap().unwrap(), hash)
    }

    fn remaining(&self) -> Vec<Hash> {
        let all = [self.leaf, self.middle, self.top, self.orphan];
        all.into_iter()
            .filter(|hash| self.cas.has(hash).unwrap())
            .collect()
    }
}

#[test]
fn gc_keeps_reachable_content_and_removes_the_rest() {
    let chain = chain();
    let ReferenceChain {
        cas,
        leaf,
        middle,
        top,
        orphan,
        ..
    } = &chain;
    let dry = cas
        .gc(
            [*top],
            GcOptions {
                dry_run: true,
                ..GcOptions::default()
            },
        )
        .unwrap();
    assert_eq!(
        dry,
        GcReport {
            kept: 3,
            removed: vec![*orphan],
            freed: 6,
            temporary: 0
        }
    );
    assert_eq!(chain.remaining().len(), 4);
    assert_eq!(cas.gc([*top, *top], GcOptions::default()).unwrap(), dry);
    assert_eq!(chain.remaining(), [*leaf, *middle, *top]);
    let report = cas.gc([*leaf], GcOptions::default()).unwrap();
    assert_eq!(report.removed.len(), 2);
    assert_eq!(chain.remaining(), [*leaf]);
}

#[test]
fn gc_keeps_recent_content_and_its_references() {
    let chain = chain();
    let ReferenceChain {
        cas,
        leaf,
        middle,
        orphan,
        ..
    } = &chain;
    cas.put_object(&json!({ leaf.to_hex(): [leaf, Hash::digest(b"absent")] }))
        .unwrap();
    cas.put(b"orphan").unwrap();
    cas.gc([], GcOptions::default()).unwrap();
    assert_eq!(chain.remaining(), [*leaf, *middle, *orphan]);
    let without_grace = GcOptions {
        grace: Duration::ZERO,
        dry_run: false,
    };
    assert_eq!(cas.gc([], without_grace).unwrap().kept, 0);
    assert_eq!(chain.remaining(), []);
}

#[test]
fn grace_beyond_the_clock_keeps_everything() {
    let chain = chain();
    let forever = GcOptions {
        grace: Duration::MAX,
        dry_run: false,
    };
    assert_eq!(chain.cas.gc([], forever).unwrap().kept, 4);
}

#[test]
fn gc_aborts_on_a_missing_root_or_a_corrupted_object() {
    let chain = chain();
    let ReferenceChain {
        cas, middle, top, ..
    } = &chain;
    let absent = Hash::digest(b"absent");
    let error = cas.gc([*top, absent], GcOptions::default()).unwrap_err();
    assert!(
        matches!(&error, CasError::GcAborted(e)
            if matches!(**e, CasError::NotFound { hash, .. } if hash == absent)),
        "{error}"
    );
    assert_eq!(chain.remaining().len(), 4);

    let path = chain.path(middle);
    overwrite(&path, b"{}");
    age(&path);
    let error = cas.gc([*top], GcOptions::default()).unwrap_err();
    assert!(
        matches!(&error, CasError::GcAborted(e) if matches!(**e, CasError::Corrupted(_))),
        "{error}"
    );
    assert_eq!(chain.remaining().len(), 4);
    // From this root, the corrupted object is unreachable and is removed.
    cas.gc([chain.orphan], GcOptions::default()).unwrap();
    assert_eq!(chain.remaining(), [chain.orphan]);
}

#[test]
fn gc_removes_abandoned_temporary_files_only() {
    let (_dir, cas) = store();
    let tmp = cas.root().join(TMP);
    for (name, old) in [
        ("put-leftover", true),
        ("put-recent", false),
        ("notes.txt", true),
    ] {
        fs::write(tmp.join(name), "x").unwrap();
        if old {
            age(&tmp.join(name));
        }
    }
    let mut slow = cas.writer().unwrap();
    slow.write_all(b"slow").unwrap();
    for entry in fs::read_dir(&tmp).unwrap() {
        let path = entry.unwrap().path();
        if path != tmp.join("put-recent") {
            age(&path);
        }
    }
    let dry = cas
        .gc(
            [],
            GcOptions {
                dry_run: true,
                ..GcOptions::default()
            },
        )
        .unwrap();
    assert_eq!((dry.temporary, temporary_files(&cas)), (1, 4));
    assert_eq!(cas.gc([], GcOptions::default()).unwrap().temporary, 1);
    assert!(!tmp.join("put-leftover").exists());

    // A blob whose writing took longer than the grace time is recent when it is finished.
    let hash = slow.finish().unwrap().hash;
    cas.gc([], GcOptions::default()).unwrap();
    assert_eq!(cas.get(&hash).unwrap(), b"slow");
}

#[test]
fn gc_never_removes_content_that_was_just_put_again() {
    let (_dir, cas) = store();
    let put_again_and_again = &|thread: u32| {
        let until = Instant::now() + Duration::from_secs(2);
        for n in 0.. {
            let bytes = format!("{thread} {}", n % 3);
            let stored = cas.put(bytes.as_bytes()).unwrap();
            assert_eq!(cas.get(&stored.hash).unwrap(), bytes.as_bytes());
            if Instant::now() > until {
                return;
            }
            // From here on, a garbage collection may remove it, also during the next put.
            age(&cas.path_of(Kind::Blob, &stored.hash));
        }
    };
    let mut removed = 0;
    std::thread::scope(|scope| {
        let putters = [1, 2, 3, 4].map(|n| scope.spawn(move || put_again_and_again(n)));
        while putters.iter().any(|putter| !putter.is_finished()) {
            removed += cas.gc([], GcOptions::default()).unwrap().removed.len();
        }
    });
    assert!(removed > 0, "no garbage collection found an old file");
    assert!(cas.verify_all().unwrap().is_sound());
    assert_eq!(temporary_files(&cas), 0);
}

#[test]
fn put_waits_for_a_sweep_and_rewrites_removed_content() {
    let (_dir, cas) = store();
    let hash = cas.put(b"wanted").unwrap().hash;
    let sweep = cas.lock(LOCK, FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| cas.put(b"wanted").unwrap());
        // A put that does not wait would finish in a fraction of this time.
        std::thread::sleep(Duration::from_millis(100));
        assert!(!put.is_finished(), "the put did not wait for the sweep");
        fs::remove_file(cas.path_of(Kind::Blob, &hash)).unwrap();
        drop(sweep);
        assert!(!put.join().unwrap().existed);
    });
    assert_eq!(cas.get(&hash).unwrap(), b"wanted");
}
