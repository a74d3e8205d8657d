//! Tests that every store of documents must pass.
//!
//! ```
//! use std::sync::Arc;
//! use rye_testkit::document_contract::Subject;
//!
//! fn empty_store() -> Subject {
//!     Subject::new(Arc::new(rye_store::MemoryDocuments::new()))
//! }
//!
//! // Expands to one `#[test]` per behaviour.
//! rye_testkit::document_contract!(empty_store());
//! ```

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use rye_engine::documents::{Document, DocumentKind, DocumentQuery, DocumentStore, DocumentWrite};
use rye_protocol::Millis;
use serde_json::{Value, json};

const KIND: DocumentKind = DocumentKind::Schedule;

/// An empty store to test.
pub struct Subject {
    /// The first handle.
    pub store: Arc<dyn DocumentStore>,
    /// A second handle to the same store; the first one unless set.
    pub other: Arc<dyn DocumentStore>,
    guards: Vec<Box<dyn Any + Send>>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").finish_non_exhaustive()
    }
}

impl Subject {
    /// Tests a store through one handle.
    pub fn new(store: Arc<dyn DocumentStore>) -> Self {
        Self {
            other: Arc::clone(&store),
            store,
            guards: Vec::new(),
        }
    }

    /// Adds a second handle to the same store.
    #[must_use]
    pub fn with_other(mut self, other: Arc<dyn DocumentStore>) -> Self {
        self.other = other;
        self
    }

    /// Keeps a value alive as long as the store, such as a temporary directory.
    #[must_use]
    pub fn with_guard(mut self, guard: impl Any + Send) -> Self {
        self.guards.push(Box::new(guard));
        self
    }
}

/// Defines a test for each behaviour. The expression must return a new [`Subject`] each time.
#[macro_export]
macro_rules! document_contract {
    ($subject:expr) => {
        $crate::document_contract! { @all $subject;
            document_is_read_as_written
            document_that_exists_is_not_created_again
            outdated_version_is_not_written
            version_of_a_removed_document_is_not_reused
            writes_are_all_or_nothing
            documents_are_listed_in_the_order_of_their_ids
            due_documents_are_listed_in_the_order_of_their_due_times
            one_of_several_concurrent_claims_succeeds
        }
    };
    (@all $subject:expr; $($name:ident)*) => {$(
        #[test]
        fn $name() {
            $crate::store_contract::run($crate::document_contract::$name($subject));
        }
    )*};
}

fn create(id: &str, due_at: Option<u64>, body: Value) -> DocumentWrite {
    DocumentWrite::create(KIND, id, due_at.map(Millis), body)
}

/// The document with an id, through both handles.
async fn get(subject: &Subject, id: &str) -> Option<Document> {
    let found = subject.store.get(KIND, id).await.unwrap();
    assert_eq!(subject.other.get(KIND, id).await.unwrap(), found);
    found
}

async fn write(subject: &Subject, writes: impl Into<Vec<DocumentWrite>>) -> bool {
    subject.store.write(writes.into()).await.unwrap()
}

fn ids(documents: &[Document]) -> Vec<&str> {
    documents.iter().map(|it| it.id.as_str()).collect()
}

/// Numbers and text survive, and kinds do not share ids.
pub async fn document_is_read_as_written(subject: Subject) {
    assert_eq!(get(&subject, "a").await, None);
    let body = json!({ "text": "ä\u{0}\n'\"", "number": u64::MAX, "list": [null, 1.5, {}] });
    assert!(write(&subject, [create("a", Some(7), body.clone())]).await);
    let found = get(&subject, "a").await.unwrap();
    assert_eq!((&found.body, found.due_at), (&body, Some(Millis(7))));
    assert_eq!((found.kind, found.id.as_str()), (KIND, "a"));
    let other = subject.store.get(DocumentKind::Webhook, "a").await.unwrap();
    assert_eq!(other, None);
    assert!(write(&subject, [DocumentWrite::replace(&found, None, json!(2))]).await);
    let replaced = get(&subject, "a").await.unwrap();
    assert_eq!((&replaced.body, replaced.due_at), (&json!(2), None));
    assert_ne!(replaced.version, found.version);
    assert!(write(&subject, [DocumentWrite::remove(&replaced)]).await);
    assert_eq!(get(&subject, "a").await, None);
}

/// Of two creators, the second one learns about the first one.
pub async fn document_that_exists_is_not_created_again(subject: Subject) {
    assert!(write(&subject, [create("a", None, json!(1))]).await);
    let again = vec![create("a", None, json!(2))];
    assert!(!subject.other.write(again).await.unwrap());
    assert_eq!(get(&subject, "a").await.unwrap().body, json!(1));
}

/// Neither replaced nor removed.
pub async fn outdated_version_is_not_written(subject: Subject) {
    write(&subject, [create("a", None, json!(1))]).await;
    let first = get(&subject, "a").await.unwrap();
    assert!(write(&subject, [DocumentWrite::replace(&first, None, json!(2))]).await);
    assert!(!write(&subject, [DocumentWrite::replace(&first, None, json!(3))]).await);
    assert!(!write(&subject, [DocumentWrite::remove(&first)]).await);
    assert_eq!(get(&subject, "a").await.unwrap().body, json!(2));
}

/// A claim of a document that was removed and created again fails.
pub async fn version_of_a_removed_document_is_not_reused(subject: Subject) {
    write(&subject, [create("a", None, json!(1))]).await;
    let first = get(&subject, "a").await.unwrap();
    write(&subject, [DocumentWrite::remove(&first)]).await;
    assert!(!write(&subject, [DocumentWrite::replace(&first, None, json!(2))]).await);
    write(&subject, [create("a", None, json!(3))]).await;
    assert!(!write(&subject, [DocumentWrite::replace(&first, None, json!(4))]).await);
    assert_eq!(get(&subject, "a").await.unwrap().body, json!(3));
}

/// A write that fails undoes the others of the same call, whichever comes first.
pub async fn writes_are_all_or_nothing(subject: Subject) {
    write(&subject, [create("a", None, json!(1))]).await;
    write(&subject, [create("b", None, json!(1))]).await;
    let (a, b) = (get(&subject, "a").await.unwrap(), get(&subject, "b").await);
    let b = b.unwrap();
    let both = [
        DocumentWrite::replace(&a, None, json!(2)),
        create("b", None, json!(2)),
    ];
    assert!(!write(&subject, both).await);
    let both = [
        create("b", None, json!(2)),
        DocumentWrite::remove(&a),
        create("c", None, json!(2)),
    ];
    assert!(!write(&subject, both).await);
    assert_eq!(get(&subject, "a").await, Some(a.clone()));
    assert_eq!(get(&subject, "b").await, Some(b.clone()));
    assert_eq!(get(&subject, "c").await, None);
    let all = [
        DocumentWrite::remove(&b),
        create("c", None, json!(2)),
        DocumentWrite::replace(&a, None, json!(2)),
    ];
    assert!(write(&subject, all).await);
    assert_eq!(get(&subject, "a").await.unwrap().body, json!(2));
    assert_eq!(get(&subject, "b").await, None);
    assert_eq!(get(&subject, "c").await.unwrap().body, json!(2));
    assert!(write(&subject, []).await);
}

/// By prefix and in pages, in both directions.
pub async fn documents_are_listed_in_the_order_of_their_ids(subject: Subject) {
    for id in ["b/2", "a", "b/10", "c", "b/1", "b", "b/ä", "B/1"] {
        assert!(write(&subject, [create(id, None, json!({}))]).await);
    }
    let foreign = DocumentWrite::create(DocumentKind::Hook, "b/3", None, json!({}));
    assert!(write(&subject, [foreign]).await);
    let list = async |query: DocumentQuery| {
        let found = subject.store.list(query.clone()).await.unwrap();
        assert_eq!(subject.other.list(query).await.unwrap(), found);
        ids(&found).join(" ")
    };
    let all = DocumentQuery::all(KIND);
    assert_eq!(list(all.clone()).await, "B/1 a b b/1 b/10 b/2 b/ä c");
    let prefixed = DocumentQuery {
        prefix: "b/".to_owned(),
        ..all
    };
    assert_eq!(list(prefixed.clone()).await, "b/1 b/10 b/2 b/ä");
    let mut page = DocumentQuery {
        limit: 2,
        after: Some("b/1".to_owned()),
        ..prefixed
    };
    assert_eq!(list(page.clone()).await, "b/10 b/2");
    page.descending = true;
    page.after = None;
    assert_eq!(list(page.clone()).await, "b/ä b/2");
    page.after = Some("b/2".to_owned());
    assert_eq!(list(page).await, "b/10 b/1");
}

/// Documents without a due time and of other kinds are never due.
pub async fn due_documents_are_listed_in_the_order_of_their_due_times(subject: Subject) {
    for (id, due) in [
        ("late", Some(30)),
        ("first", Some(10)),
        ("never", None),
        ("second", Some(20)),
    ] {
        assert!(write(&subject, [create(id, due, json!({}))]).await);
    }
    let foreign = DocumentWrite::create(DocumentKind::Hook, "x", Some(Millis(1)), json!({}));
    assert!(write(&subject, [foreign]).await);
    let due = async |now: u64, limit| {
        let found = subject.store.due(KIND, Millis(now), limit).await.unwrap();
        assert_eq!(
            subject.other.due(KIND, Millis(now), limit).await.unwrap(),
            found
        );
        ids(&found).join(" ")
    };
    assert_eq!(due(9, 10).await, "");
    assert_eq!(due(10, 10).await, "first");
    assert_eq!(due(29, 10).await, "first second");
    assert_eq!(due(u64::MAX, 2).await, "first second");
    let first = get(&subject, "first").await.unwrap();
    let later = DocumentWrite::replace(&first, Some(Millis(40)), json!({}));
    assert!(write(&subject, [later]).await);
    assert_eq!(due(40, 10).await, "second late first");
}

/// Processes that claim the same due document.
pub async fn one_of_several_concurrent_claims_succeeds(subject: Subject) {
    write(&subject, [create("a", Some(1), json!(0))]).await;
    let document = get(&subject, "a").await.unwrap();
    let claims = (0..8).map(|number| {
        let handle = if number % 2 == 0 {
            &subject.store
        } else {
            &subject.other
        };
        let (handle, document) = (Arc::clone(handle), document.clone());
        tokio::spawn(async move {
            let claim = DocumentWrite::replace(&document, Some(Millis(9)), json!(number));
            (number, handle.write(vec![claim]).await.unwrap())
        })
    });
    let mut winners = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        let (number, has_won) = claim.await.unwrap();
        winners.extend(has_won.then_some(number));
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(get(&subject, "a").await.unwrap().body, json!(winners[0]));
}
