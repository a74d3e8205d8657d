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

fn form() -> SignatureFormat {
    SignatureFormat::config(ITEM, "tools/a.py")
}

fn seen(text: &str) -> CachedVerification {
    CachedVerification {
        hash: Hash::digest(text),
        key: Hash::digest("key"),
        coverage: Coverage::Whole,
    }
}

#[test]
fn what_was_entered_is_found_in_the_same_state_and_in_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let cache = VerificationCache::open(Some(folder.path()));
    for inode in 0..500 {
        cache.put(
            &state(inode, 7),
            &form(),
            CoarseInstant(8),
            &seen(&inode.to_string()),
        );
    }
    cache.save();
    let cache = VerificationCache::open(Some(folder.path()));
    for inode in 0..500 {
        let found = cache.get(&state(inode, 7), &form());
        assert_eq!(found, Some(seen(&inode.to_string())));
        assert_eq!(cache.get(&state(inode, 6), &form()), None);
    }
    let markup = SignatureFormat {
        comment: CommentStyle::MARKUP,
        ..form()
    };
    assert_eq!(cache.get(&state(3, 7), &markup), None);
    let elsewhere = SignatureFormat::config(ITEM, "tools/b.py");
    assert_eq!(cache.get(&state(3, 7), &elsewhere), None);
    cache.put(&state(3, 7), &form(), CoarseInstant(9), &seen("new"));
    cache.save();
    let cache = VerificationCache::open(Some(folder.path()));
    assert_eq!(cache.get(&state(3, 7), &form()), Some(seen("new")));
    assert_eq!(cache.get(&state(4, 7), &form()), Some(seen("4")));
}

#[test]
fn a_file_that_could_still_change_unnoticed_is_not_entered() {
    let folder = tempfile::tempdir().unwrap();
    let cache = VerificationCache::open(Some(folder.path()));
    cache.put(&state(1, 7), &form(), CoarseInstant(7), &seen("same tick"));
    cache.put(&state(2, 8), &form(), CoarseInstant(7), &seen("later"));
    cache.put(&state(3, 6), &form(), CoarseInstant(7), &seen("before"));
    cache.save();
    let cache = VerificationCache::open(Some(folder.path()));
    assert_eq!(cache.get(&state(1, 7), &form()), None);
    assert_eq!(cache.get(&state(2, 8), &form()), None);
    assert_eq!(cache.get(&state(3, 6), &form()), Some(seen("before")));
}

#[test]
fn a_file_system_with_coarse_times_is_given_the_time_it_needs() {
    const SECOND: i64 = 1_000_000_000;
    let cache = VerificationCache::open(None);
    for (changed, tick, entered) in [
        // Whole seconds: FAT has steps of two.
        (1_000 * SECOND, 1_001 * SECOND, false),
        (1_000 * SECOND, 1_003 * SECOND, true),
        // exFAT: ten milliseconds.
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
            &form(),
            CoarseInstant(tick),
            &seen("x"),
        );
        let new = cache.new.lock().unwrap().drain(..).count();
        assert_eq!(new == 1, entered, "{changed} at {tick}");
    }
}

#[test]
fn a_damaged_cache_is_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    let cache = VerificationCache::open(Some(folder.path()));
    cache.put(&state(1, 7), &form(), CoarseInstant(8), &seen("x"));
    cache.save();
    let file = folder.path().join("verified");
    let good = fs::read(&file).unwrap();
    for length in 0..good.len() {
        fs::write(&file, &good[..length]).unwrap();
        assert_eq!(
            VerificationCache::open(Some(folder.path())).get(&state(1, 7), &form()),
            None
        );
    }
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&file, &bad).unwrap();
        assert_eq!(
            VerificationCache::open(Some(folder.path())).get(&state(1, 7), &form()),
            None
        );
    }
}

#[test]
fn without_a_folder_nothing_is_kept_and_nothing_fails() {
    for folder in [None, Some(Path::new("/proc/none"))] {
        let cache = VerificationCache::open(folder);
        cache.put(&state(1, 7), &form(), CoarseInstant(8), &seen("x"));
        cache.save();
    }
}
