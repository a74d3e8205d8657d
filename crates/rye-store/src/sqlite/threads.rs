//! The rows of threads. Beside its text stands what a thread has used up, and where in the log
//! those of its prompts are that wait or run.

use rusqlite::{Connection, OptionalExtension, params};
use rye_protocol::{Millis, Thread, ThreadId, Usage};

use super::document::{self, Text};
use super::error::Outcome;
use crate::rules::{THREAD, not_found};

/// A thread that is there.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) id: ThreadId,
    /// Its row.
    pub(super) number: i64,
    key: String,
    created_at: Millis,
    usage: Usage,
    /// Its prompts that wait or run, by row.
    open: Vec<i64>,
    /// Its text, if that is another by now than the one in the row.
    doc: Option<Text>,
    /// Whether what stands beside it is.
    changed: bool,
}

/// A thread, if there is one of this id.
pub(super) fn known(db: &Connection, session: i64, id: &ThreadId) -> Outcome<Option<Known>> {
    let mut find = db.prepare_cached(
        "SELECT number, key, created_at, usage, open FROM engine_threads
         WHERE session = ?1 AND id = ?2",
    )?;
    let found = find.query_row(params![session, id.as_str()], |row| {
        let known = Known {
            id: id.clone(),
            number: row.get(0)?,
            key: row.get(1)?,
            created_at: Millis(row.get::<_, i64>(2)?.cast_unsigned()),
            usage: Usage::default(),
            open: Vec::new(),
            doc: None,
            changed: false,
        };
        Ok((known, row.get::<_, String>(3)?, row.get::<_, String>(4)?))
    });
    let Some((mut known, usage, open)) = found.optional()? else {
        return Ok(None);
    };
    known.usage = document::read(&usage)?;
    known.open = document::read(&open)?;
    Ok(Some(known))
}

/// A thread.
pub(super) fn get(db: &Connection, session: i64, id: &ThreadId) -> Outcome<Known> {
    Ok(known(db, session, id)?.ok_or_else(|| not_found(THREAD, id))?)
}

/// Makes a thread.
pub(super) fn insert(db: &Connection, session: i64, thread: &Thread, doc: &Text) -> Outcome<Known> {
    let usage = Usage::default();
    let used = document::write(&usage)?;
    let (key, created_at) = (thread.key.clone(), thread.created_at);
    let mut insert = db.prepare_cached(
        "INSERT INTO engine_threads (session, id, key, created_at, usage, open, doc)
         VALUES (?1, ?2, ?3, ?4, ?5, '[]', ?6)",
    )?;
    let at = created_at.0.cast_signed();
    let number = insert.insert(params![session, thread.id.as_str(), key, at, used, doc])?;
    Ok(Known {
        id: thread.id.clone(),
        number,
        key,
        created_at,
        usage,
        open: Vec::new(),
        doc: None,
        changed: false,
    })
}

/// A prompt waits or runs no more, of whichever thread it is.
pub(super) fn close(db: &Connection, thread: i64, prompt: i64) -> Outcome<()> {
    let mut close = db.prepare_cached(
        "UPDATE engine_threads SET open =
         (SELECT json_group_array(value) FROM json_each(open) WHERE value <> ?2)
         WHERE number = ?1",
    )?;
    close.execute([thread, prompt])?;
    Ok(())
}

impl Known {
    /// Puts the thread. Tells whether it could: not if it was made as another.
    pub(super) fn put(&mut self, thread: &Thread, doc: Text) -> bool {
        self.doc = Some(doc);
        self.key == thread.key && self.created_at == thread.created_at
    }

    /// Adds what was used up.
    pub(super) fn add(&mut self, usage: Usage) {
        self.usage = self.usage.plus(usage);
        self.changed = true;
    }

    /// Whether a prompt waits or runs.
    pub(super) fn keep(&mut self, prompt: i64, open: bool) {
        match self.open.binary_search(&prompt) {
            Ok(at) if !open => drop(self.open.remove(at)),
            Err(at) if open => self.open.insert(at, prompt),
            _ => return,
        }
        self.changed = true;
    }

    /// Writes all of that, in one.
    pub(super) fn write(&mut self, db: &Connection) -> Outcome<()> {
        if self.doc.is_none() && !self.changed {
            return Ok(());
        }
        let (number, usage) = (self.number, document::write(&self.usage)?);
        let open = document::write(&self.open)?;
        if let Some(doc) = self.doc.take() {
            let mut write = db.prepare_cached(
                "UPDATE engine_threads SET usage=?2, open=?3, doc=?4 WHERE number=?1",
            )?;
            write.execute(params![number, usage, open, doc])?;
        } else {
            let mut write =
                db.prepare_cached("UPDATE engine_threads SET usage=?2, open=?3 WHERE number=?1")?;
            write.execute(params![number, usage, open])?;
        }
        self.changed = false;
        Ok(())
    }
}
