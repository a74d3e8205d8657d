//! What every blob store does.

use lillux::Hash;
use rye_engine::blob::BlobStore;
use rye_store::{FileBlobs, MemoryBlobs};

async fn keeps(store: &dyn BlobStore) {
    let missing = Hash::digest(b"missing");
    assert_eq!(store.get(&missing).await, Ok(None));
    assert_eq!(store.contains(&missing).await, Ok(false));
    let long = vec![7; 300_000];
    for bytes in [b"".as_slice(), b"a", b"\xff\0", &long, b"a"] {
        let hash = store.put(bytes.to_vec()).await.unwrap();
        assert_eq!(hash, Hash::digest(bytes));
        assert_eq!(store.get(&hash).await.unwrap().as_deref(), Some(bytes));
        assert_eq!(store.contains(&hash).await, Ok(true));
    }
    assert_eq!(store.get(&missing).await, Ok(None));
}

#[tokio::test]
async fn what_is_put_can_be_had_back() {
    keeps(&MemoryBlobs::new()).await;
    let folder = tempfile::tempdir().unwrap();
    keeps(&FileBlobs::new(folder.path().join("state/blobs"))).await;
}

#[tokio::test]
async fn nothing_is_made_before_there_is_something_to_keep() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("blobs");
    let store = FileBlobs::new(&root);
    assert_eq!(store.get(&Hash::digest(b"a")).await, Ok(None));
    assert!(!root.exists());
    let hash = store.put(b"a".to_vec()).await.unwrap();
    // Another process finds it.
    let other = FileBlobs::new(&root);
    assert_eq!(other.get(&hash).await, Ok(Some(b"a".to_vec())));
}

#[tokio::test]
async fn damaged_bytes_are_an_error_and_never_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileBlobs::new(folder.path());
    let hash = store.put(b"whole".to_vec()).await.unwrap();
    let (name, blobs) = (hash.to_hex(), folder.path().join("blobs"));
    let file = blobs.join(&name[..2]).join(&name[2..4]).join(&name);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, b"other").unwrap();
    let error = store.get(&hash).await.unwrap_err().to_string();
    assert!(
        error.starts_with("the blob store cannot be used: "),
        "{error}"
    );
}
