//! Sends queued events to webhooks.
//!
//! An event is sent at least once, always with the same id. A server claims it before it sends it;
//! if the server dies, it is sent again after that time.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, StatusCode, Url};
use rye_engine::clock::Clock;
use rye_engine::documents::{Document, DocumentKind, DocumentStore, DocumentWrite};
use rye_engine::protocol::Millis;
use rye_sandbox::is_public;
use tokio_util::sync::CancellationToken;

use crate::error::AutomationError;
use crate::secret::Sealer;
use crate::stored::{self, Stored as _};
use crate::webhook::{Delivery, DeliveryStatus, StoredWebhook};

/// Interval at which due deliveries are looked up.
const INTERVAL: Duration = Duration::from_millis(500);

/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(15);

/// How long a server may work on a delivery before another one sends it again.
const CLAIM: Duration = Duration::from_secs(20);

/// Delays before the second and later attempts; then the delivery has failed.
const DELAYS: [u64; 9] = [
    5,
    5 * 60,
    30 * 60,
    2 * 3600,
    5 * 3600,
    10 * 3600,
    14 * 3600,
    20 * 3600,
    24 * 3600,
];

/// How long the record of a finished delivery is kept.
const KEPT: Duration = Duration::from_hours(7 * 24);

/// Number of deliveries that are sent at a time.
const CONCURRENCY: usize = 16;

/// Number of due deliveries that are read at once.
const PAGE: usize = 256;

/// Sends what is queued.
pub struct Sender {
    store: Arc<dyn DocumentStore>,
    clock: Arc<dyn Clock>,
    sealer: Sealer,
    public: Client,
    unrestricted: Client,
}

/// What became of an attempt.
enum Attempt {
    Accepted(StatusCode),
    /// The receiver wants nothing more.
    Gone,
    Refused(Option<StatusCode>, String),
}

impl Sender {
    /// A sender for the deliveries of a store.
    pub fn new(
        store: Arc<dyn DocumentStore>,
        clock: Arc<dyn Clock>,
        sealer: Sealer,
    ) -> Result<Self, AutomationError> {
        // Fails if it is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            Client::builder()
                .timeout(TIMEOUT)
                // A redirect could lead anywhere.
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")))
        };
        let unusable = |error: reqwest::Error| AutomationError::HttpClient(error.to_string());
        let public = builder().dns_resolver(Arc::new(PublicResolver));
        Ok(Self {
            store,
            clock,
            sealer,
            public: public.build().map_err(unusable)?,
            unrestricted: builder().build().map_err(unusable)?,
        })
    }

    /// Sends what is due, until it is stopped.
    pub async fn run(&self, stop: CancellationToken) {
        let mut is_failing = false;
        loop {
            let sent = tokio::select! {
                // What is on its way is sent again.
                () = stop.cancelled() => return,
                sent = self.send_due() => sent,
            };
            if let Err(error) = &sent
                && !is_failing
            {
                tracing::warn!(%error, "cannot send events to webhooks");
            }
            is_failing = sent.is_err();
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    /// Sends everything that is due now.
    pub async fn send_due(&self) -> Result<(), AutomationError> {
        let now = self.clock.now();
        let due = self.store.due(DocumentKind::WebhookDelivery, now, PAGE);
        let sending = stream::iter(due.await?).map(|document| self.send(document, now));
        let mut sending = sending.buffer_unordered(CONCURRENCY);
        let mut outcome = Ok(());
        while let Some(sent) = sending.next().await {
            outcome = outcome.and(sent);
        }
        outcome
    }

    /// Claims and sends a delivery, or deletes the record of a finished one.
    async fn send(&self, document: Document, now: Millis) -> Result<(), AutomationError> {
        let mut delivery = Delivery::from_document(&document)?;
        let webhook = stored::find::<StoredWebhook>(&self.store, delivery.webhook.as_str()).await?;
        let is_pending = delivery.status == DeliveryStatus::Pending;
        let Some((_, stored)) = webhook.filter(|_| is_pending) else {
            self.store
                .write(vec![DocumentWrite::remove(&document)])
                .await?;
            return Ok(());
        };
        delivery.next = now.after(CLAIM);
        delivery.attempts += 1;
        if !self.store.write(vec![delivery.replace(&document)?]).await? {
            return Ok(());
        }
        let attempt = match &stored.webhook.disabled {
            Some(why) => Attempt::Refused(None, format!("the webhook is disabled: {why}")),
            None => self.post(&stored, &delivery).await,
        };
        if matches!(attempt, Attempt::Gone) {
            let disable = |stored: &mut StoredWebhook| {
                stored.webhook.disabled = Some("the receiver answered 410 Gone".to_owned());
                Ok(())
            };
            stored::change(&self.store, stored.id(), disable).await?;
        }
        let now = self.clock.now();
        let is_disabled = stored.webhook.disabled.is_some();
        let record = |current: &mut Delivery| {
            // Somebody has asked to send it again in the meantime.
            if current.attempts != delivery.attempts {
                return Ok(());
            }
            record_attempt(current, &attempt, is_disabled, now);
            Ok(())
        };
        stored::change(&self.store, delivery.id(), record).await?;
        Ok(())
    }

    async fn post(&self, stored: &StoredWebhook, delivery: &Delivery) -> Attempt {
        let webhook = &stored.webhook;
        let secret = match self.sealer.open(&stored.sealed_secret, &webhook.label()) {
            Ok(secret) => secret,
            Err(error) => return Attempt::Refused(None, error.to_string()),
        };
        let Ok(url) = Url::parse(&webhook.url) else {
            return Attempt::Refused(None, "the URL is invalid".to_owned());
        };
        let client = if webhook.allow_private {
            &self.unrestricted
        } else if let Some(address) = literal_address(&url).filter(|it| !is_public(*it)) {
            let why = format!("the address {address} is not public");
            return Attempt::Refused(None, why);
        } else {
            &self.public
        };
        let id = delivery.id.as_str();
        let timestamp = (self.clock.now().0 / 1000).to_string();
        let signature = secret.sign(id, &timestamp, delivery.payload.as_bytes());
        let request = client
            .post(url)
            .header("content-type", "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", &timestamp)
            .header("webhook-signature", signature)
            .body(delivery.payload.clone());
        match request.send().await {
            Ok(response) => match response.status() {
                status if status.is_success() => Attempt::Accepted(status),
                StatusCode::GONE => Attempt::Gone,
                status => Attempt::Refused(Some(status), format!("the receiver answered {status}")),
            },
            Err(error) => Attempt::Refused(None, describe(&error)),
        }
    }
}

/// Records an attempt, and when the next one is due.
fn record_attempt(delivery: &mut Delivery, attempt: &Attempt, is_disabled: bool, now: Millis) {
    let (status, error) = match attempt {
        Attempt::Accepted(status) => (Some(*status), None),
        Attempt::Gone => (
            Some(StatusCode::GONE),
            Some("the receiver answered 410 Gone"),
        ),
        Attempt::Refused(status, error) => (*status, Some(error.as_str())),
    };
    delivery.last_status = status.map(|status| status.as_u16());
    delivery.last_error = error.map(str::to_owned);
    let delay = usize::try_from(delivery.attempts).unwrap_or(usize::MAX);
    let delay = DELAYS.get(delay.saturating_sub(1)).filter(|_| !is_disabled);
    (delivery.status, delivery.next) = match (attempt, delay) {
        (Attempt::Accepted(_), _) => (DeliveryStatus::Delivered, now.after(KEPT)),
        (Attempt::Refused(..), Some(seconds)) => {
            let delay = jitter(delivery, Duration::from_secs(*seconds));
            (DeliveryStatus::Pending, now.after(delay))
        }
        (Attempt::Gone | Attempt::Refused(..), _) => (DeliveryStatus::Failed, now.after(KEPT)),
    };
}

/// Adds up to a tenth, so that what failed together is not sent together.
fn jitter(delivery: &Delivery, delay: Duration) -> Duration {
    let hash = lillux::Hash::digest(format!("{}{}", delivery.id, delivery.attempts)).to_hex();
    let part = hash
        .get(..2)
        .and_then(|it| u32::from_str_radix(it, 16).ok());
    delay + delay / 10 * part.unwrap_or_default() / 255
}

/// The causes of an error, without the URL.
fn describe(error: &reqwest::Error) -> String {
    let mut source = std::error::Error::source(error);
    let mut text = if error.is_timeout() {
        format!("no response within {} s", TIMEOUT.as_secs())
    } else {
        "cannot be reached".to_owned()
    };
    while let Some(cause) = source {
        if cause.source().is_none() {
            text = format!("{text}: {cause}");
        }
        source = cause.source();
    }
    text
}

/// The address of a URL that names no host.
fn literal_address(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    let host = host
        .strip_prefix('[')
        .and_then(|it| it.strip_suffix(']'))
        .unwrap_or(host);
    host.parse().ok()
}

/// Resolves names to public addresses only.
struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let (public, private): (Vec<SocketAddr>, Vec<_>) =
                found.partition(|address| is_public(address.ip()));
            match private.first() {
                Some(address) if public.is_empty() => {
                    Err(format!("the address {} is not public", address.ip()).into())
                }
                _ => Ok(Box::new(public.into_iter()) as Addrs),
            }
        })
    }
}
