//! Queues events for webhooks.
//!
//! For each session, a document has the sequence number of the last event that was queued. It is
//! written together with the deliveries, so each event is queued once, whichever servers read it
//! and wherever they are killed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use lillux::Hash;
use rye_engine::clock::Clock;
use rye_engine::documents::{Document, DocumentKind, DocumentStore, DocumentWrite};
use rye_engine::protocol::{DeliveryId, Event, Millis, Session, SessionId};
use rye_engine::store::{SessionFilter, StoreError};
use rye_engine::{Engine, MissedEvents};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::error::AutomationError;
use crate::stored::{self, Stored as _};
use crate::webhook::{Delivery, DeliveryStatus, StoredWebhook, Webhook, delivery_prefix};

/// How long events are collected before they are queued.
const DELAY: Duration = Duration::from_millis(100);

/// Interval at which all sessions are examined, for what no notification told.
const FULL_SCAN: Duration = Duration::from_secs(30);

/// Number of events that are read at once.
const PAGE: usize = 128;

/// Queues the events of all sessions.
pub struct Outbox {
    store: Arc<dyn DocumentStore>,
    clock: Arc<dyn Clock>,
    engine: Engine,
    /// Positions up to which sessions need not be read again.
    seen: HashMap<SessionId, (Millis, u64)>,
    /// Sessions that other processes held at the last look.
    foreign: BTreeSet<SessionId>,
}

impl Outbox {
    /// An outbox for the sessions of an engine's store.
    pub fn new(store: Arc<dyn DocumentStore>, clock: Arc<dyn Clock>, engine: Engine) -> Self {
        Self {
            store,
            clock,
            engine,
            seen: HashMap::new(),
            foreign: BTreeSet::new(),
        }
    }

    /// Queues events until it is stopped.
    pub async fn run(mut self, stop: CancellationToken) {
        // Before the first scan, so that no event is missed.
        let mut feed = self.engine.feed();
        let mut commits = self.engine.store().subscribe_commits();
        let mut next_scan = Instant::now();
        let mut dirty = BTreeSet::new();
        loop {
            let is_foreign = tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(next_scan) => {
                    next_scan = Instant::now() + FULL_SCAN;
                    if let Err(error) = self.collect_all().await {
                        tracing::warn!(%error, "cannot queue events for webhooks");
                    }
                    continue;
                }
                notice = feed.next() => match notice {
                    Ok(Some(notice)) if notice.event.sequence.is_none() => continue,
                    Ok(Some(notice)) => {
                        dirty.insert(notice.event.session.clone());
                        false
                    }
                    Ok(None) => return,
                    Err(MissedEvents(_)) => {
                        next_scan = Instant::now();
                        continue;
                    }
                },
                changed = commits.changed() => match changed {
                    Ok(()) => true,
                    Err(_) => return,
                },
            };
            sleep(DELAY).await;
            while let Ok(Ok(Some(notice))) = tokio::time::timeout(Duration::ZERO, feed.next()).await
            {
                dirty.insert(notice.event.session.clone());
            }
            let collected = async {
                let webhooks = self.webhooks().await?;
                if webhooks.is_empty() {
                    return Ok(());
                }
                if is_foreign {
                    dirty.extend(self.foreign_sessions().await?);
                }
                self.collect(&dirty, &webhooks).await
            };
            match collected.await {
                Ok(()) => dirty.clear(),
                // They stay to be read again.
                Err(error) => {
                    tracing::warn!(%error, "cannot queue events for webhooks");
                    next_scan = next_scan.min(Instant::now() + Duration::from_secs(1));
                }
            }
        }
    }

    /// The sessions that other processes hold or have just released.
    async fn foreign_sessions(&mut self) -> Result<BTreeSet<SessionId>, StoreError> {
        let holders = self.engine.holders().await?.into_iter();
        let held = holders.map(|holder| holder.session);
        let held: BTreeSet<_> = held
            .filter(|session| self.engine.session(session).is_none())
            .collect();
        let before = std::mem::replace(&mut self.foreign, held.clone());
        Ok(held.into_iter().chain(before).collect())
    }

    /// Queues the new events of all sessions.
    pub async fn collect_all(&mut self) -> Result<(), AutomationError> {
        let filter = SessionFilter {
            limit: usize::MAX,
            ..SessionFilter::default()
        };
        let webhooks = self.webhooks().await?;
        if webhooks.is_empty() {
            return Ok(());
        }
        for session in self.engine.sessions(filter).await? {
            if session.unreadable.is_none() {
                self.collect_session(&session, &webhooks).await?;
            }
        }
        Ok(())
    }

    /// Queues the new events of some sessions.
    async fn collect(
        &mut self,
        sessions: &BTreeSet<SessionId>,
        webhooks: &[Webhook],
    ) -> Result<(), AutomationError> {
        for id in sessions {
            // It may have been deleted.
            if let Some(session) = self.engine.session_data(id).await? {
                self.collect_session(&session, webhooks).await?;
            }
        }
        Ok(())
    }

    async fn webhooks(&self) -> Result<Vec<Webhook>, StoreError> {
        let all: Vec<StoredWebhook> = stored::all(&self.store).await?;
        let all = all.into_iter().map(|it| it.webhook);
        Ok(all.filter(|it| it.disabled.is_none()).collect())
    }

    /// Queues the new events of a session.
    async fn collect_session(
        &mut self,
        session: &Session,
        webhooks: &[Webhook],
    ) -> Result<(), AutomationError> {
        let incarnation = session.imported_at.unwrap_or(session.created_at);
        let last = self.engine.last_event(&session.id).await?;
        if self.seen.get(&session.id) == Some(&(incarnation, last)) {
            return Ok(());
        }
        let first = webhooks.iter().map(|it| it.created_at).min();
        loop {
            let kind = DocumentKind::WebhookCursor;
            let cursor = self.store.get(kind, session.id.as_str()).await?;
            let position = position(cursor.as_ref(), incarnation);
            let is_older = async || {
                // Most sessions ended before there were webhooks.
                let newest = self.engine.events(&session.id, last.saturating_sub(1), 1);
                let newest = newest.await?.pop();
                Ok::<_, StoreError>(newest.is_none_or(|it| Some(it.at) < first))
            };
            if cursor.is_none() && is_older().await? {
                break;
            }
            let events = self.engine.events(&session.id, position, PAGE).await?;
            let Some(end) = events.last().and_then(|event| event.sequence) else {
                break;
            };
            let body = json!({ "incarnation": incarnation, "sequence": end });
            let mut writes = vec![match &cursor {
                Some(cursor) => DocumentWrite::replace(cursor, None, body),
                None => DocumentWrite::create(kind, session.id.as_str(), None, body),
            }];
            for event in &events {
                for webhook in webhooks.iter().filter(|it| it.wants(session, event)) {
                    writes.push(self.delivery(webhook, incarnation, event)?.create()?);
                }
            }
            // If another server was faster, the next round starts where it ended.
            self.store.write(writes).await?;
        }
        self.seen.insert(session.id.clone(), (incarnation, last));
        Ok(())
    }

    fn delivery(
        &self,
        webhook: &Webhook,
        incarnation: Millis,
        event: &Event,
    ) -> Result<Delivery, StoreError> {
        let (session, name) = (&event.session, event.kind.name());
        let sequence = event.sequence.unwrap_or_default();
        let cause = format!("{}\n{session}\n{}\n{sequence}", webhook.id, incarnation.0);
        let hash = Hash::digest(cause).to_hex();
        let id = format!(
            "{}{:011x}{}",
            delivery_prefix(&webhook.id),
            event.at.0,
            &hash[..16]
        );
        let unreadable = |error: String| StoreError::Unreadable(error);
        let id: DeliveryId = id
            .parse()
            .map_err(|error: rye_engine::protocol::IdError| unreadable(error.to_string()))?;
        let payload = json!({
            "type": name,
            "timestamp": lillux::time::format_rfc3339((event.at.0 / 1000).cast_signed()),
            "data": event,
        });
        Ok(Delivery {
            id,
            webhook: webhook.id.clone(),
            event: name.to_owned(),
            session: session.clone(),
            payload: payload.to_string(),
            created_at: event.at,
            status: DeliveryStatus::Pending,
            attempts: 0,
            next: self.clock.now(),
            last_status: None,
            last_error: None,
        })
    }
}

/// The position in a document; the beginning if it is about an earlier session with the id.
fn position(cursor: Option<&Document>, incarnation: Millis) -> u64 {
    let body = cursor.map_or(&Value::Null, |cursor| &cursor.body);
    if body["incarnation"] == json!(incarnation) {
        body["sequence"].as_u64().unwrap_or_default()
    } else {
        0
    }
}
