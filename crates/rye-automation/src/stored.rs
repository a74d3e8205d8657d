//! Reads and changes definitions that are stored as documents.

use std::sync::Arc;

use rye_engine::documents::{Document, DocumentKind, DocumentQuery, DocumentStore, DocumentWrite};
use rye_engine::store::StoreError;
use rye_protocol::Millis;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::AutomationError;

/// Number of attempts to change a document that others change too.
const ATTEMPTS: usize = 16;

/// A definition that is stored as a document.
pub(crate) trait Stored: Serialize + DeserializeOwned {
    /// Kind of its documents.
    const KIND: DocumentKind;
    /// Name of the kind for people.
    const NAME: &'static str;

    /// Id of its document.
    fn id(&self) -> &str;

    /// When it is due.
    fn due_at(&self) -> Option<Millis>;

    /// Its JSON.
    fn body(&self) -> Result<Value, StoreError> {
        let body = serde_json::to_value(self);
        body.map_err(|error| StoreError::Unreadable(error.to_string()))
    }

    /// The write that creates it.
    fn create(&self) -> Result<DocumentWrite, StoreError> {
        let (id, due) = (self.id(), self.due_at());
        Ok(DocumentWrite::create(Self::KIND, id, due, self.body()?))
    }

    /// The write that replaces an earlier version.
    fn replace(&self, document: &Document) -> Result<DocumentWrite, StoreError> {
        let body = self.body()?;
        Ok(DocumentWrite::replace(document, self.due_at(), body))
    }

    /// Reads it from its document.
    fn from_document(document: &Document) -> Result<Self, StoreError> {
        Self::deserialize(&document.body).map_err(|error| {
            let (kind, id) = (Self::NAME, &document.id);
            StoreError::Unreadable(format!("{kind} {id}: {error}"))
        })
    }
}

/// The definition with an id, and its document.
pub(crate) async fn find<T: Stored>(
    store: &Arc<dyn DocumentStore>,
    id: &str,
) -> Result<Option<(Document, T)>, StoreError> {
    let document = store.get(T::KIND, id).await?;
    let read = |document: Document| Ok((T::from_document(&document)?, document));
    let found: Option<Result<_, StoreError>> = document.map(read);
    Ok(found
        .transpose()?
        .map(|(value, document)| (document, value)))
}

/// Like [`find`], for one that must exist.
pub(crate) async fn get<T: Stored>(
    store: &Arc<dyn DocumentStore>,
    id: &str,
) -> Result<(Document, T), AutomationError> {
    let found = find(store, id).await?;
    found.ok_or_else(|| AutomationError::not_found(T::NAME, id))
}

/// All definitions of a kind, oldest first.
pub(crate) async fn all<T: Stored>(store: &Arc<dyn DocumentStore>) -> Result<Vec<T>, StoreError> {
    let documents = store.list(DocumentQuery::all(T::KIND)).await?;
    documents.iter().map(T::from_document).collect()
}

/// Changes a definition and returns its new version.
pub(crate) async fn change<T: Stored>(
    store: &Arc<dyn DocumentStore>,
    id: &str,
    change: impl Fn(&mut T) -> Result<(), AutomationError>,
) -> Result<T, AutomationError> {
    for _ in 0..ATTEMPTS {
        let (document, mut value) = get::<T>(store, id).await?;
        change(&mut value)?;
        if store.write(vec![value.replace(&document)?]).await? {
            return Ok(value);
        }
    }
    let (kind, id) = (T::NAME, id.to_owned());
    Err(AutomationError::Busy { kind, id })
}

/// Removes a definition and returns it.
pub(crate) async fn remove<T: Stored>(
    store: &Arc<dyn DocumentStore>,
    id: &str,
) -> Result<T, AutomationError> {
    for _ in 0..ATTEMPTS {
        let (document, value) = get::<T>(store, id).await?;
        if store.write(vec![DocumentWrite::remove(&document)]).await? {
            return Ok(value);
        }
    }
    let (kind, id) = (T::NAME, id.to_owned());
    Err(AutomationError::Busy { kind, id })
}
