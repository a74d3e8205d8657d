//! Blob stores.

use lillux::Hash;
use rye_engine::blob::BlobStore;
use rye_store::{FileBlobs, MemoryBlobs};

async fn check_store(store: &dyn BlobStore) {
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
async fn stored_blobs_can_be_read() {
    check_store(&MemoryBlobs::new()).await;
    let dir = tempfile::tempdir().unwrap();
    check_store(&FileBlobs::new(dir.path().join("state/blobs"))).await;
}

#[tokio::test]
async fn directory_is_created_with_the_first_blob() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("blobs");
    let store = FileBlobs::new(&root);
    assert_eq!(store.get(&Hash::digest(b"a")).await, Ok(None));
    assert!(!root.exists());
    let hash = store.put(b"a".to_vec()).await.unwrap();
    // A second store of the same directory finds it.
    let other = FileBlobs::new(&root);
    assert_eq!(other.get(&hash).await, Ok(Some(b"a".to_vec())));
}

#[tokio::test]
async fn damaged_blob_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileBlobs::new(dir.path());
    let hash = store.put(b"whole".to_vec()).await.unwrap();
    let (name, blobs) = (hash.to_hex(), dir.path().join("blobs"));
    let file = blobs.join(&name[..2]).join(&name[2..4]).join(&name);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, b"other").unwrap();
    assert!(store.get(&hash).await.is_err());
}

#[cfg(feature = "cluster")]
#[tokio::test]
async fn blobs_in_postgres_are_shared_and_unused_ones_are_removed_after_an_hour() {
    let server = rye_testkit::postgres::server();
    let url = server.create_database();
    let database = url.rsplit('/').next().unwrap();
    let open = || rye_store::PostgresStore::open(url.parse().unwrap()).unwrap();
    let (store, other) = (open(), open());
    check_store(&store.blobs()).await;
    let used = store.blobs().put(b"used".to_vec()).await.unwrap();
    let unused = store.blobs().put(b"unused".to_vec()).await.unwrap();
    let (blobs, other) = (store.blobs(), other.blobs());
    other.collect_garbage(vec![used]).await.unwrap();
    // It was stored a moment ago.
    assert_eq!(other.get(&unused).await, Ok(Some(b"unused".to_vec())));
    server.sql(
        database,
        "UPDATE rye.blobs SET stored = stored - interval '2 h'",
    );
    blobs.collect_garbage(vec![used]).await.unwrap();
    assert_eq!(other.contains(&unused).await, Ok(false));
    assert_eq!(other.contains(&used).await, Ok(true));
    server.sql(database, "UPDATE rye.blobs SET bytes = 'other'");
    assert!(other.get(&used).await.is_err());
}
