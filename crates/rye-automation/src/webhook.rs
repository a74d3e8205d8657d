//! Webhooks: URLs to which events are sent, and what became of each event.

use std::sync::Arc;

use rye_engine::clock::Clock;
use rye_engine::documents::{DocumentKind, DocumentQuery, DocumentStore};
use rye_engine::protocol::{DeliveryId, Event, Millis, Session, SessionId, WebhookId};
use rye_engine::store::StoreError;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::action::Owner;
use crate::error::AutomationError;
use crate::secret::{Sealer, SigningSecret};
use crate::stored::{self, Stored};

/// A webhook to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWebhook {
    /// Name for people.
    pub name: Option<String>,
    /// Where events are sent.
    pub url: String,
    /// Types of the events; all if there are none.
    pub events: Vec<String>,
    /// Whether the URL may lead to an address that is not public.
    pub allow_private: bool,
    /// Whose events are sent.
    pub owner: Owner,
}

/// A webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Webhook {
    /// Unique id.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: WebhookId,
    /// Name for people.
    pub name: Option<String>,
    /// Where events are sent.
    pub url: String,
    /// Types of the events; all if there are none.
    pub events: Vec<String>,
    /// Whether the URL may lead to an address that is not public.
    pub allow_private: bool,
    /// Whose events are sent.
    pub owner: Owner,
    /// Creation time. Earlier events are not sent.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub created_at: Millis,
    /// Why nothing is sent any more.
    pub disabled: Option<String>,
}

/// A webhook as it is stored.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StoredWebhook {
    #[serde(flatten)]
    pub(crate) webhook: Webhook,
    /// The encrypted secret.
    pub(crate) sealed_secret: String,
}

impl Stored for StoredWebhook {
    const KIND: DocumentKind = DocumentKind::Webhook;
    const NAME: &'static str = "webhook";

    fn id(&self) -> &str {
        self.webhook.id.as_str()
    }

    fn due_at(&self) -> Option<Millis> {
        None
    }
}

impl Webhook {
    /// The label of its encrypted secret.
    pub(crate) fn label(&self) -> String {
        format!("rye webhook {}", self.id)
    }

    /// Whether an event of a session is sent to it.
    pub(crate) fn wants(&self, session: &Session, event: &Event) -> bool {
        let is_type = || self.events.iter().any(|it| it == event.kind.name());
        self.disabled.is_none()
            && event.at >= self.created_at
            && session.project.as_ref() == Some(&self.owner.project)
            && self.owner.can_use(session)
            && (self.events.is_empty() || is_type())
    }
}

/// What became of an event that is sent to a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DeliveryStatus {
    /// It is sent, or sent again, at `next`.
    Pending,
    /// The receiver has accepted it.
    Delivered,
    /// The receiver has not accepted it, and it is not sent again.
    Failed,
}

/// An event that is sent to a webhook. The session may have been deleted in the meantime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Delivery {
    /// Unique id, the header `webhook-id` of each attempt.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: DeliveryId,
    /// The webhook.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub webhook: WebhookId,
    /// Type of the event.
    pub event: String,
    /// The session of the event.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// What is sent.
    pub payload: String,
    /// Time of the event.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub created_at: Millis,
    /// What became of it.
    pub status: DeliveryStatus,
    /// Number of attempts.
    pub attempts: u32,
    /// When it is sent next, or when its record is deleted.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub next: Millis,
    /// HTTP status of the last attempt.
    pub last_status: Option<u16>,
    /// Error of the last attempt.
    pub last_error: Option<String>,
}

impl Stored for Delivery {
    const KIND: DocumentKind = DocumentKind::WebhookDelivery;
    const NAME: &'static str = "delivery";

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn due_at(&self) -> Option<Millis> {
        Some(self.next)
    }
}

/// Prefix of the ids of a webhook's deliveries. It contains only part of the webhook's id, because
/// receivers see it.
pub(crate) fn delivery_prefix(webhook: &WebhookId) -> String {
    format!("msg_{}_", webhook.short())
}

/// The webhooks of a store.
#[derive(Clone)]
pub struct Webhooks {
    store: Arc<dyn DocumentStore>,
    clock: Arc<dyn Clock>,
    sealer: Sealer,
}

impl Webhooks {
    /// The webhooks of a store.
    pub fn new(store: Arc<dyn DocumentStore>, clock: Arc<dyn Clock>, sealer: Sealer) -> Self {
        Self {
            store,
            clock,
            sealer,
        }
    }

    /// Creates a webhook and returns the secret that signs what is sent.
    pub async fn add(
        &self,
        new: NewWebhook,
    ) -> Result<(Webhook, Zeroizing<String>), AutomationError> {
        check_url(&new.url)?;
        let webhook = Webhook {
            id: WebhookId::new(),
            name: new.name,
            url: new.url,
            events: new.events,
            allow_private: new.allow_private,
            owner: new.owner,
            created_at: self.clock.now(),
            disabled: None,
        };
        let secret = SigningSecret::generate()?;
        let stored = StoredWebhook {
            sealed_secret: self.sealer.seal(&secret, &webhook.label())?,
            webhook,
        };
        self.store.write(vec![stored.create()?]).await?;
        Ok((stored.webhook, secret.to_text()))
    }

    /// All webhooks, oldest first.
    pub async fn list(&self) -> Result<Vec<Webhook>, StoreError> {
        let all: Vec<StoredWebhook> = stored::all(&self.store).await?;
        Ok(all.into_iter().map(|it| it.webhook).collect())
    }

    /// A webhook; `None` if it does not exist.
    pub async fn get(&self, id: &str) -> Result<Option<Webhook>, StoreError> {
        let found = stored::find::<StoredWebhook>(&self.store, id).await?;
        Ok(found.map(|(_, stored)| stored.webhook))
    }

    /// Removes a webhook. What was not delivered is not sent any more.
    pub async fn remove(&self, id: &str) -> Result<Webhook, AutomationError> {
        let removed: StoredWebhook = stored::remove(&self.store, id).await?;
        Ok(removed.webhook)
    }

    /// The deliveries of a webhook, newest first, before one of them.
    pub async fn deliveries(
        &self,
        webhook: &WebhookId,
        before: Option<String>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let query = DocumentQuery {
            prefix: delivery_prefix(webhook),
            after: before,
            descending: true,
            limit,
            ..DocumentQuery::all(DocumentKind::WebhookDelivery)
        };
        let documents = self.store.list(query).await?;
        let deliveries = documents.iter().map(Delivery::from_document);
        let deliveries: Vec<Delivery> = deliveries.collect::<Result<_, _>>()?;
        let own = deliveries.into_iter().filter(|it| it.webhook == *webhook);
        Ok(own.collect())
    }

    /// Sends an event again, with the same id. A disabled webhook is enabled.
    pub async fn replay(
        &self,
        webhook: &WebhookId,
        delivery: &str,
    ) -> Result<Delivery, AutomationError> {
        let now = self.clock.now();
        let again = |delivery: &mut Delivery| {
            if delivery.webhook != *webhook {
                return Err(AutomationError::not_found("delivery", delivery.id.as_str()));
            }
            delivery.status = DeliveryStatus::Pending;
            (delivery.attempts, delivery.next) = (0, now);
            Ok(())
        };
        let enable = |stored: &mut StoredWebhook| {
            stored.webhook.disabled = None;
            Ok(())
        };
        stored::change(&self.store, webhook.as_str(), enable).await?;
        stored::change(&self.store, delivery, again).await
    }
}

/// Fails unless events can be sent to a URL.
fn check_url(url: &str) -> Result<(), AutomationError> {
    let invalid = |reason: &str| AutomationError::Invalid {
        field: "url",
        reason: reason.to_owned(),
    };
    let parsed = reqwest::Url::parse(url).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(parsed.scheme(), "https" | "http") || parsed.host_str().is_none() {
        return Err(invalid("expected a URL such as https://example.org/hook"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(invalid("it has a user name or a password"));
    }
    Ok(())
}
