use super::*;
use crate::comment::CommentStyle;
use crate::signature::ITEM;

fn state(inode: u64, changed: i128) -> FileIdentity {
    FileIdentity {
        device: 1,
        inode,
        size: 10,
        modified: 5,
        changed,
    }
}

fn format() -> SignatureFormat {
    SignatureFormat::config(ITEM, "tools/a.py")
}

fn result(text: &str) -> CachedVerification {
    CachedVerification {
        hash: Hash::digest(text),
        key: Hash::digest("key"),
        coverage: Coverage::Whole,
    }
}

#[test]
fn entry_is_found_only_for_the_same_state_and_format() {
    let dir = tempfile::tempdir().unwrap();
    let cache = VerificationCache::open(Some(dir.path()));
    for inode in 0..500 {
        cache.put(
            &state(inode, 7),
            &format(),
            CoarseInstant(8),
            &result(&inode.to_string()),
        );
    }
    cache.save();
    let cache = VerificationCache::open(Some(dir.path()));
    for inode in 0..500 {
        let found = cache.get(&state(inode, 7), &format());
        assert_eq!(found, Some(result(&inode.to_string())));
        assert_eq!(cache.get(&state(inode, 6), &format()), None);
    }
    let markup = SignatureFormat {
        comment: CommentStyle::MARKUP,
        ..format()
    };
    assert_eq!(cache.get(&state(3, 7), &markup), None);
    let elsewhere = SignatureFormat::config(ITEM, "tools/b.py");
    assert_eq!(cache.get(&state(3, 7), &elsewhere), None);
    cache.put(&state(3, 7), &format(), CoarseInstant(9), &result("new"));
    cache.save();
    let cache = VerificationCache::open(Some(dir.path()));
    assert_eq!(cache.get(&state(3, 7), &format()), Some(result("new")));
    assert_eq!(cache.get(&state(4, 7), &format()), Some(result("4")));
}

#[test]
fn file_that_can_change_in_the_same_tick_is_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let cache = VerificationCache::open(Some(dir.path()));
    cache.put(
        &state(1, 7),
        &format(),
        CoarseInstant(7),
        &result("same tick"),
    );
    cache.put(&state(2, 8), &format(), CoarseInstant(7), &result("later"));
    cache.put(&state(3, 6), &format(), CoarseInstant(7), &result("before"));
    cache.save();
    let cache = VerificationCache::open(Some(dir.path()));
    assert_eq!(cache.get(&state(1, 7), &format()), None);
    assert_eq!(cache.get(&state(2, 8), &format()), None);
    assert_eq!(cache.get(&state(3, 6), &format()), Some(result("before")));
}

#[test]
fn coarse_timestamps_need_a_longer_wait() {
    const SECOND: i64 = 1_000_000_000;
    let cache = VerificationCache::open(None);
    for (changed, tick, is_stored) in [
        // Whole seconds, or 2 s on FAT.
        (1_000 * SECOND, 1_001 * SECOND, false),
        (1_000 * SECOND, 1_003 * SECOND, true),
        // exFAT: 10 ms.
        (
            1_000 * SECOND + 10_000_000,
            1_000 * SECOND + 15_000_000,
            false,
        ),
        (
            1_000 * SECOND + 10_000_000,
            1_000 * SECOND + 25_000_000,
            true,
        ),
    ] {
        cache.put(
            &state(1, changed.into()),
            &format(),
            CoarseInstant(tick),
            &result("x"),
        );
        let new = cache.new.lock().unwrap().drain(..).count();
        assert_eq!(new == 1, is_stored, "{changed} at {tick}");
    }
}

#[test]
fn damaged_cache_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let cache = VerificationCache::open(Some(dir.path()));
    cache.put(&state(1, 7), &format(), CoarseInstant(8), &result("x"));
    cache.save();
    let file = dir.path().join("verified");
    let good = fs::read(&file).unwrap();
    for length in 0..good.len() {
        fs::write(&file, &good[..length]).unwrap();
        assert_eq!(
            VerificationCache::open(Some(dir.path())).get(&state(1, 7), &format()),
            None
        );
    }
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&file, &bad).unwrap();
        assert_eq!(
            VerificationCache::open(Some(dir.path())).get(&state(1, 7), &format()),
            None
        );
    }
}

#[test]
fn cache_directory_is_optional() {
    for dir in [None, Some(Path::new("/proc/none"))] {
        let cache = VerificationCache::open(dir);
        cache.put(&state(1, 7), &format(), CoarseInstant(8), &result("x"));
        cache.save();
    }
}
