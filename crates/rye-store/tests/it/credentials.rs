//! Credentials in the PostgreSQL database.

use std::sync::Arc;

use lillux::envelope::OpeningKey;
use rye_engine::credential::{Credential, CredentialStore as _, Owner};
use rye_store::{KeyProvider, PostgresStore};

#[tokio::test]
async fn credentials_are_shared_by_hosts_with_the_key_and_sealed_in_the_database() {
    let server = rye_testkit::postgres::server();
    let url = server.create_database();
    let database = url.rsplit('/').next().unwrap();
    let open = || PostgresStore::open(url.parse().unwrap()).unwrap();
    let (store, other) = (open(), open());
    let pem = OpeningKey::generate().unwrap().to_pem();
    let key: KeyProvider = Arc::new(move |_| Ok(Some(OpeningKey::from_pem(&pem).unwrap())));
    let (ours, theirs) = (store.credentials(Arc::clone(&key)), other.credentials(key));
    let user = Owner::User("ada".to_owned());
    assert!(ours.get(&user, "github").await.unwrap().is_none());
    for secret in ["first", "s3cret"] {
        ours.put(&user, "github", &Credential::new(secret))
            .await
            .unwrap();
    }
    let found = theirs.get(&user, "github").await.unwrap().unwrap();
    assert_eq!(*found.secret, "s3cret");
    assert_eq!(
        theirs.list().await.unwrap(),
        [(user.clone(), "github".to_owned())]
    );
    let stored = server.sql(database, "SELECT envelope FROM rye.credentials");
    assert!(
        !stored.contains("s3cret") && stored.contains("rye"),
        "{stored}"
    );
    // An envelope that was moved to another owner does not open.
    server.sql(database, "UPDATE rye.credentials SET owner = 'user:eve'");
    let moved = theirs.get(&Owner::User("eve".to_owned()), "github").await;
    assert!(moved.is_err());
    let eve = Owner::User("eve".to_owned());
    assert!(ours.remove(&eve, "github").await.unwrap());
    assert!(!ours.remove(&eve, "github").await.unwrap());
}
