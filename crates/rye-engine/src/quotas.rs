//! Quotas of users and organisations: budgets of tokens and money, and how many turns run at once,
//! across all their sessions and all processes of a database.
//!
//! Quotas, counters and turn slots are [documents](crate::documents). A counter holds what a user
//! or organisation has used in the current period. A slot belongs to one turn; the process that
//! runs the turn renews it, so the slot of a killed process becomes free by itself.

mod slots;

use std::fmt;
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, Zoned};
use rye_protocol::{Millis, Session, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use slots::TurnSlot;

use slots::Slots;

use crate::clock::Clock;
use crate::documents::{Document, DocumentKind, DocumentQuery, DocumentStore, DocumentWrite};
use crate::store::StoreError;

/// Name of the quota of everyone who has none of their own.
pub const EVERYONE: &str = "*";

/// How often a write is repeated because another process was faster.
const MAX_ATTEMPTS: usize = 50;

/// How many counters of past periods are deleted when a new period begins.
const MAX_DELETED: usize = 32;

/// Whose quota it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SubjectKind {
    /// A user.
    User,
    /// An organisation.
    Org,
}

/// A user or an organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Which of both.
    pub kind: SubjectKind,
    /// The name; [`EVERYONE`] for all without a quota of their own.
    pub name: String,
}

impl Subject {
    /// A subject.
    pub fn new(kind: SubjectKind, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { kind, name }
    }

    /// Who pays for a session.
    fn of_session(session: &Session) -> Vec<Self> {
        Self::of_owner(session.user_id.as_deref(), session.org_id.as_deref())
    }

    /// A user and their organisation.
    fn of_owner(user: Option<&str>, org: Option<&str>) -> Vec<Self> {
        let user = user.map(|name| Self::new(SubjectKind::User, name));
        let org = org.map(|name| Self::new(SubjectKind::Org, name));
        user.into_iter().chain(org).collect()
    }

    /// Id of its quota.
    fn id(&self) -> String {
        let kind: &str = self.kind.into();
        format!("{kind}:{}", self.name)
    }

    fn parse(id: &str) -> Option<Self> {
        let (kind, name) = id.split_once(':')?;
        let kind = match kind {
            "user" => SubjectKind::User,
            "org" => SubjectKind::Org,
            _ => return None,
        };
        Some(Self::new(kind, name))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            SubjectKind::User => "user",
            SubjectKind::Org => "organisation",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// After which time a budget renews, in UTC.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Period {
    /// At midnight.
    #[default]
    Day,
    /// On the first of the month.
    Month,
}

impl Period {
    /// Name of the period that contains a time, and when it ends.
    fn at(self, now: Millis) -> (String, Millis) {
        let now = i64::try_from(now.0).unwrap_or(i64::MAX);
        let now = Timestamp::from_millisecond(now).unwrap_or(Timestamp::MAX);
        let now = now.to_zoned(TimeZone::UTC);
        let day = now.start_of_day().unwrap_or(now);
        let (name, start, next) = match self {
            Self::Day => (day.strftime("%Y-%m-%d").to_string(), Ok(day), 1.day()),
            Self::Month => {
                let start = day.first_of_month();
                (day.strftime("%Y-%m").to_string(), start, 1.month())
            }
        };
        let end: Result<Zoned, _> = start.and_then(|start| start.checked_add(next));
        let end = end.map_or(i64::MAX, |end| end.timestamp().as_millisecond());
        (name, Millis(u64::try_from(end).unwrap_or(u64::MAX)))
    }
}

/// What a user or organisation may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Input and output tokens in a period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money in a period, in millionths of a dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_dollars: Option<u64>,
    /// When both renew.
    pub period: Period,
    /// Turns that run at once. Turns that wait for a decision don't count, and those of one session
    /// count as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Requests to a server in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
}

impl Quota {
    fn has_budget(&self) -> bool {
        self.tokens.is_some() || self.micro_dollars.is_some()
    }
}

/// A quota, with what is used of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuotaState {
    /// Whose quota it is.
    #[serde(flatten)]
    pub subject: Subject,
    /// The limits.
    pub quota: Quota,
    /// What was used in the current period; 0 for [`EVERYONE`].
    pub used: Usage,
    /// When the current period ends.
    pub renews_at: Millis,
    /// Turns that run now.
    pub running_turns: usize,
}

/// A limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum QuotaLimit {
    /// The tokens of the period.
    Tokens,
    /// The money of the period.
    MicroDollars,
    /// The turns that run at once.
    Turns,
}

/// Why a turn cannot run now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// Whose quota it is.
    pub subject: Subject,
    /// Which limit is reached.
    pub limit: QuotaLimit,
    /// The limit.
    pub allowed: u64,
    /// What is used of it.
    pub used: u64,
    /// When it renews; for turns, when it is worth trying again.
    pub renews_at: Millis,
}

impl fmt::Display for QuotaExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            subject,
            allowed,
            used,
            ..
        } = self;
        let dollars = |micro: u64| {
            format!(
                "{}.{:02} USD",
                micro / 1_000_000,
                micro % 1_000_000 / 10_000
            )
        };
        let (used, allowed) = match self.limit {
            QuotaLimit::Turns => {
                return write!(
                    f,
                    "the {subject} runs {used} of {allowed} turns that may run at once"
                );
            }
            QuotaLimit::Tokens => (used.to_string(), format!("{allowed} tokens")),
            QuotaLimit::MicroDollars => (dollars(*used), dollars(*allowed)),
        };
        let seconds = i64::try_from(self.renews_at.0 / 1000).unwrap_or(i64::MAX);
        let renews = lillux::time::format_rfc3339(seconds);
        write!(
            f,
            "the budget of the {subject} is used up: {used} of {allowed}. It renews at {renews}"
        )
    }
}

/// Why quotas could not be applied.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// A limit is reached.
    #[error("{0}")]
    Exceeded(Box<QuotaExceeded>),
    /// The documents could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The quotas of a database.
#[derive(Debug, Clone)]
pub struct Quotas {
    documents: Arc<dyn DocumentStore>,
    clock: Arc<dyn Clock>,
    slots: Arc<Slots>,
}

impl Quotas {
    /// The quotas in a document store.
    pub fn new(documents: Arc<dyn DocumentStore>, clock: Arc<dyn Clock>) -> Self {
        let slots = Slots::new(Arc::clone(&documents), Arc::clone(&clock));
        Self {
            slots: Arc::new(slots),
            documents,
            clock,
        }
    }

    /// Sets or replaces a quota.
    pub async fn set(&self, subject: &Subject, quota: &Quota) -> Result<(), StoreError> {
        let body = encode(quota);
        self.change(DocumentKind::Quota, &subject.id(), |_| {
            Some((None, body.clone()))
        })
        .await
    }

    /// Removes a quota; false if there was none.
    pub async fn remove(&self, subject: &Subject) -> Result<bool, StoreError> {
        let id = subject.id();
        let exists = self
            .documents
            .get(DocumentKind::Quota, &id)
            .await?
            .is_some();
        self.change(DocumentKind::Quota, &id, |_| None).await?;
        Ok(exists)
    }

    /// All quotas with their use, sorted by kind and name.
    pub async fn list(&self) -> Result<Vec<QuotaState>, StoreError> {
        let quotas = self
            .documents
            .list(DocumentQuery::all(DocumentKind::Quota))
            .await?;
        let mut states = Vec::new();
        for document in quotas {
            let Some(subject) = Subject::parse(&document.id) else {
                continue;
            };
            let quota: Quota = decode(&document)?;
            states.push(self.state(subject, quota).await?);
        }
        Ok(states)
    }

    async fn state(&self, subject: Subject, quota: Quota) -> Result<QuotaState, StoreError> {
        let now = self.clock.now();
        let (period, renews_at) = quota.period.at(now);
        Ok(QuotaState {
            used: self.used(&subject, &period).await?,
            running_turns: self.slots.taken(&subject, now).await?,
            subject,
            quota,
            renews_at,
        })
    }

    /// The quotas of a user and their organisation, own ones or those of everyone.
    pub async fn of_owner(
        &self,
        user: Option<&str>,
        org: Option<&str>,
    ) -> Result<Vec<(Subject, Quota)>, StoreError> {
        let mut quotas = Vec::new();
        for subject in Subject::of_owner(user, org) {
            let everyone = Subject::new(subject.kind, EVERYONE);
            let mut found = None;
            for owner in [&subject, &everyone] {
                if found.is_none() {
                    found = self.documents.get(DocumentKind::Quota, &owner.id()).await?;
                }
            }
            if let Some(found) = found {
                quotas.push((subject, decode(&found)?));
            }
        }
        Ok(quotas)
    }

    /// Fails if the budget of a user or organisation is used up.
    pub async fn check_budget(&self, session: &Session) -> Result<(), QuotaError> {
        let (user, org) = (session.user_id.as_deref(), session.org_id.as_deref());
        for (subject, quota) in self.of_owner(user, org).await? {
            if !quota.has_budget() {
                continue;
            }
            let (period, renews_at) = quota.period.at(self.clock.now());
            let used = self.used(&subject, &period).await?;
            let checks = [
                (QuotaLimit::Tokens, quota.tokens, used.tokens()),
                (
                    QuotaLimit::MicroDollars,
                    quota.micro_dollars,
                    used.micro_dollars,
                ),
            ];
            for (limit, allowed, used) in checks {
                if let Some(allowed) = allowed.filter(|allowed| used >= *allowed) {
                    return Err(QuotaError::Exceeded(Box::new(QuotaExceeded {
                        subject,
                        limit,
                        allowed,
                        used,
                        renews_at,
                    })));
                }
            }
        }
        Ok(())
    }

    /// Fails if no further turn of the owner of a session may run now. A turn of the session that
    /// runs already counts for it.
    pub async fn check_turns(&self, session: &Session) -> Result<(), QuotaError> {
        let limits = self.turn_limits(session).await?;
        self.slots.check(&limits, session).await
    }

    /// Takes a slot for a turn. A task runs in the slot of its parent session.
    pub async fn start_turn(&self, session: &Session) -> Result<Option<TurnSlot>, QuotaError> {
        if session.parent.is_some() {
            return Ok(None);
        }
        let limits = self.turn_limits(session).await?;
        if limits.is_empty() {
            return Ok(None);
        }
        self.slots.take(&limits, session).await.map(Some)
    }

    async fn turn_limits(&self, session: &Session) -> Result<Vec<(Subject, u32)>, StoreError> {
        let (user, org) = (session.user_id.as_deref(), session.org_id.as_deref());
        let quotas = self.of_owner(user, org).await?.into_iter();
        Ok(quotas
            .filter_map(|(subject, quota)| Some((subject, quota.turns?)))
            .collect())
    }

    /// Adds the usage of a model call to the counters of the owners that have a budget.
    pub async fn record(&self, session: &Session, usage: Usage) -> Result<(), StoreError> {
        if usage.is_zero() || Subject::of_session(session).is_empty() {
            return Ok(());
        }
        let (user, org) = (session.user_id.as_deref(), session.org_id.as_deref());
        for (subject, quota) in self.of_owner(user, org).await? {
            if !quota.has_budget() {
                continue;
            }
            let (period, ends_at) = quota.period.at(self.clock.now());
            let id = counter_id(&subject, &period);
            let mut is_new = false;
            let add = |known: Option<&Document>| {
                is_new = known.is_none();
                let before = known.and_then(|known| decode::<Usage>(known).ok());
                let sum = before.unwrap_or_default().plus(usage);
                Some((Some(ends_at), encode(&sum)))
            };
            self.change(DocumentKind::QuotaUsage, &id, add).await?;
            if is_new {
                self.forget_past_periods().await?;
            }
        }
        Ok(())
    }

    async fn used(&self, subject: &Subject, period: &str) -> Result<Usage, StoreError> {
        let id = counter_id(subject, period);
        let counter = self.documents.get(DocumentKind::QuotaUsage, &id).await?;
        Ok(counter
            .as_ref()
            .map(decode)
            .transpose()?
            .unwrap_or_default())
    }

    async fn forget_past_periods(&self) -> Result<(), StoreError> {
        let now = self.clock.now();
        let past = self
            .documents
            .due(DocumentKind::QuotaUsage, now, MAX_DELETED)
            .await?;
        if !past.is_empty() {
            // If another process deletes them too, nothing is left to do.
            let writes = past.iter().map(DocumentWrite::remove).collect();
            self.documents.write(writes).await?;
        }
        Ok(())
    }

    /// Replaces a document by what `next` makes of it, also if others change it at the same time.
    async fn change(
        &self,
        kind: DocumentKind,
        id: &str,
        mut next: impl FnMut(Option<&Document>) -> Option<(Option<Millis>, Value)>,
    ) -> Result<(), StoreError> {
        for _ in 0..MAX_ATTEMPTS {
            let known = self.documents.get(kind, id).await?;
            let content = next(known.as_ref());
            if known.is_none() && content.is_none() {
                return Ok(());
            }
            let write = DocumentWrite {
                kind,
                id: id.to_owned(),
                expected: known.map(|known| known.version),
                content,
            };
            if self.documents.write(vec![write]).await? {
                return Ok(());
            }
        }
        let reason = format!("{} {id} changes all the time", kind.as_str());
        Err(StoreError::Unavailable(reason))
    }

    /// Releases the slots of this process.
    pub(crate) async fn release_all(&self) -> Result<(), StoreError> {
        self.slots.release_all().await
    }
}

fn counter_id(subject: &Subject, period: &str) -> String {
    format!("{}:{period}", subject.id())
}

fn encode(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_else(|_| json!({}))
}

fn decode<T: for<'de> Deserialize<'de>>(document: &Document) -> Result<T, StoreError> {
    serde_json::from_value(document.body.clone()).map_err(|error| {
        let (kind, id) = (document.kind.as_str(), &document.id);
        StoreError::Unreadable(format!("{kind} {id}: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_end_at_midnight_and_at_the_first_of_the_month_in_utc() {
        let at = |text: &str| {
            let time: Timestamp = text.parse().unwrap();
            Millis(u64::try_from(time.as_millisecond()).unwrap())
        };
        for (period, now, name, end) in [
            (
                Period::Day,
                "2026-11-19T23:59:59.999Z",
                "2026-11-19",
                "2026-11-20T00:00:00Z",
            ),
            (
                Period::Day,
                "2026-11-20T00:00:00Z",
                "2026-11-20",
                "2026-11-21T00:00:00Z",
            ),
            (
                Period::Month,
                "2026-12-31T12:00:00Z",
                "2026-12",
                "2027-01-01T00:00:00Z",
            ),
            (
                Period::Month,
                "2028-02-29T12:00:00Z",
                "2028-02",
                "2028-03-01T00:00:00Z",
            ),
        ] {
            assert_eq!(period.at(at(now)), (name.to_owned(), at(end)), "{now}");
        }
    }

    #[test]
    fn message_names_the_owner_the_amounts_and_the_renewal() {
        let exceeded = QuotaExceeded {
            subject: Subject::new(SubjectKind::User, "alice"),
            limit: QuotaLimit::MicroDollars,
            allowed: 5_000_000,
            used: 5_012_345,
            renews_at: Millis(1_795_132_800_000),
        };
        assert_eq!(
            exceeded.to_string(),
            "the budget of the user alice is used up: 5.01 USD of 5.00 USD. \
             It renews at 2026-11-20T00:00:00Z"
        );
    }
}
