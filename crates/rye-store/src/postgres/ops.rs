//! The operations of a batch as columns, which `rye.commit` takes.

use rye_engine::store::StoreError;
use rye_protocol::{Batch, EntryId, Gate, Millis, SessionId, SessionStatus, ThreadStatus, Usage};
use tokio_postgres::types::ToSql;

use crate::invariants;
use crate::json_text::{self, JsonText};
use crate::prepared_batch::{PreparedBatch, PreparedOp};

/// The columns of the operations, one element per operation.
#[derive(Debug, Default)]
pub(super) struct Ops {
    kinds: Vec<i16>,
    ids: Vec<Option<String>>,
    texts: [Vec<Option<String>>; 5],
    flags: Vec<Option<bool>>,
    times: Vec<Option<i64>>,
    hashes: Vec<Option<Vec<u8>>>,
    docs: Vec<Option<String>>,
    usage: Option<Vec<String>>,
    events: Option<String>,
    event_count: i64,
}

/// One operation.
#[derive(Default)]
struct Row {
    kind: i16,
    id: Option<String>,
    texts: [Option<String>; 5],
    flag: Option<bool>,
    time: Option<i64>,
    hash: Option<Vec<u8>>,
    doc: Option<String>,
}

impl Row {
    fn new<const N: usize>(kind: i16, id: &str, texts: [Option<&str>; N]) -> Self {
        let mut columns: [Option<String>; 5] = Default::default();
        for (column, text) in columns.iter_mut().zip(texts) {
            *column = text.map(str::to_owned);
        }
        Self {
            kind,
            id: Some(id.to_owned()),
            texts: columns,
            ..Self::default()
        }
    }

    fn doc(self, doc: JsonText) -> Result<Self, StoreError> {
        let doc = Some(doc.into_string()?);
        Ok(Self { doc, ..self })
    }
}

impl Ops {
    /// Serialises a batch of a session. Its events get the time `now`.
    pub(super) fn new(session: &SessionId, batch: Batch, now: Millis) -> Result<Self, StoreError> {
        let prepared = PreparedBatch::new(batch, now)?;
        let usage = Some(prepared.usage).filter(|usage| !usage.is_zero());
        let mut ops = Self {
            usage: usage.map(|usage| usage_fields(&usage)),
            ..Self::default()
        };
        if let Some(events) = prepared.events {
            (ops.events, ops.event_count) = (Some(events.json.into_string()?), events.count);
        }
        for op in prepared.ops {
            let row = row(session, op)?;
            ops.kinds.push(row.kind);
            ops.ids.push(row.id);
            for (column, text) in ops.texts.iter_mut().zip(row.texts) {
                column.push(text);
            }
            ops.flags.push(row.flag);
            ops.times.push(row.time);
            ops.hashes.push(row.hash);
            ops.docs.push(row.doc);
        }
        Ok(ops)
    }

    /// Turns the operation that appends an entry into one without effect, because the entry exists.
    pub(super) fn skip_append(&mut self, id: &str) {
        let ids = self.ids.iter();
        for (kind, own) in self.kinds.iter_mut().zip(ids) {
            if *kind == APPEND_ENTRY && own.as_deref() == Some(id) {
                *kind = MERGED;
            }
        }
    }

    /// The documents of the operations that append an entry.
    pub(super) fn appended(&self, id: &str) -> impl Iterator<Item = &str> {
        let rows = self.kinds.iter().zip(&self.ids).zip(&self.docs);
        rows.filter_map(move |((kind, own), doc)| {
            let is_it = *kind == APPEND_ENTRY && own.as_deref() == Some(id);
            doc.as_deref().filter(|_| is_it)
        })
    }

    /// The parameters of `rye.commit` after the first four.
    pub(super) fn params(&self) -> [&(dyn ToSql + Sync); 14] {
        let [first, second, third, fourth, fifth] = &self.texts;
        [
            &self.kinds,
            &self.ids,
            first,
            second,
            third,
            fourth,
            fifth,
            &self.flags,
            &self.times,
            &self.hashes,
            &self.docs,
            &self.usage,
            &self.events,
            &self.event_count,
        ]
    }
}

/// An operation on an object of another session, which the database refuses in its turn.
fn foreign(session: &SessionId, named: &SessionId) -> Option<Row> {
    (session != named).then(|| Row::new(FOREIGN, named.as_str(), []))
}

const APPEND_ENTRY: i16 = 3;
/// Usage or an event, which is written once for all.
const MERGED: i16 = 10;
const FOREIGN: i16 = 11;

fn row(session: &SessionId, op: PreparedOp) -> Result<Row, StoreError> {
    Ok(match op {
        PreparedOp::PutSession(new, doc) => {
            if let Some(foreign) = foreign(session, &new.id) {
                return Ok(foreign);
            }
            let parent = new.parent.as_ref().map(|parent| parent.session.as_str());
            let identity = invariants::session_identity(&new).to_string();
            let usage = format!("{{{}}}", usage_fields(&new.usage).join(","));
            let status = session_status(new.status);
            let texts = [
                new.user_id.as_deref(),
                parent,
                Some(status),
                Some(&*identity),
                Some(&*usage),
            ];
            Row {
                flag: Some(new.run.is_some()),
                ..Row::new(1, new.id.as_str(), texts).doc(doc)?
            }
        }
        PreparedOp::PutThread(thread, doc) => {
            if let Some(foreign) = foreign(session, &thread.session) {
                return Ok(foreign);
            }
            let status = thread_status(thread.status);
            let texts = [Some(&*thread.key), Some(status)];
            Row {
                time: Some(thread.created_at.0.cast_signed()),
                ..Row::new(2, thread.id.as_str(), texts).doc(doc)?
            }
        }
        PreparedOp::AppendEntry(entry, doc) => {
            if let Some(foreign) = foreign(session, &entry.session) {
                return Ok(foreign);
            }
            let parent = entry.parent.as_ref().map(EntryId::as_str);
            let texts = [Some(entry.thread.as_str()), parent];
            Row::new(APPEND_ENTRY, entry.id.as_str(), texts).doc(doc)?
        }
        PreparedOp::ReplaceEntry(entry, doc) => {
            if let Some(foreign) = foreign(session, &entry.session) {
                return Ok(foreign);
            }
            let parent = entry.parent.as_ref().map(EntryId::as_str);
            let texts = [Some(entry.thread.as_str()), parent];
            Row::new(4, entry.id.as_str(), texts).doc(doc)?
        }
        PreparedOp::PutPrompt(prompt, hash, doc) => {
            if let Some(foreign) = foreign(session, &prompt.session) {
                return Ok(foreign);
            }
            let hash = hash.unwrap_or_else(|| invariants::content_hash(&prompt));
            Row {
                flag: Some(!prompt.status.is_finished()),
                hash: Some(hash.as_bytes().to_vec()),
                ..Row::new(5, prompt.id.as_str(), [Some(prompt.thread.as_str())]).doc(doc)?
            }
        }
        PreparedOp::RemovePrompt(id) => Row::new(6, id.as_str(), []),
        PreparedOp::PutGate(gate, doc) => {
            if let Some(foreign) = foreign(session, &gate.origin.session) {
                return Ok(foreign);
            }
            let origin = json_text::encode(&gate.origin)?.into_string()?;
            let texts = [
                Some(gate.origin.thread.as_str()),
                Some(gate.origin.prompt.as_str()),
                Some(origin.as_str()),
            ];
            Row {
                flag: Some(gate.status.is_pending()),
                time: deadline(&gate),
                ..Row::new(7, gate.id.as_str(), texts).doc(doc)?
            }
        }
        PreparedOp::PutGateRef(gate_ref) => {
            let texts = [Some(&*gate_ref.channel), Some(&*gate_ref.message)];
            Row::new(8, gate_ref.gate.as_str(), texts)
        }
        PreparedOp::CompleteCommand(id) => Row::new(9, id.as_str(), []),
        PreparedOp::Merged => Row {
            kind: MERGED,
            ..Row::default()
        },
    })
}

/// The status of a session as a column.
fn session_status(status: SessionStatus) -> &'static str {
    match status {
        SessionStatus::Running => "running",
        SessionStatus::Paused => "paused",
        SessionStatus::Terminated => "terminated",
        SessionStatus::Error => "error",
    }
}

/// The status of a thread as a column.
pub(super) fn thread_status(status: ThreadStatus) -> &'static str {
    match status {
        ThreadStatus::Active => "active",
        ThreadStatus::Paused => "paused",
        ThreadStatus::Archived => "archived",
    }
}

/// When a gate expires; one that is too far away never does.
fn deadline(gate: &Gate) -> Option<i64> {
    gate.expires_at.and_then(|at| i64::try_from(at.0).ok())
}

/// Usage as numbers for the database, which has no unsigned ones of this size.
fn usage_fields(usage: &Usage) -> Vec<String> {
    let Usage {
        turns,
        input_tokens,
        cached_tokens,
        cache_write_tokens,
        output_tokens,
        micro_dollars,
    } = usage;
    [
        turns,
        input_tokens,
        cached_tokens,
        cache_write_tokens,
        output_tokens,
        micro_dollars,
    ]
    .map(u64::to_string)
    .to_vec()
}

/// The reverse of [`usage_fields`].
pub(super) fn parse_usage(fields: &[String]) -> Usage {
    let field = |index: usize| {
        let text = fields.get(index);
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    };
    Usage {
        turns: field(0),
        input_tokens: field(1),
        cached_tokens: field(2),
        cache_write_tokens: field(3),
        output_tokens: field(4),
        micro_dollars: field(5),
    }
}
