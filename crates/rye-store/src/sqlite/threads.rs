//! The rows of threads. Beside its text stands what a thread has used up, and where in the log
//! those of its prompts are that wait or run.

use rusqlite::{Connection, OptionalExtension, params};
use rye_protocol::{Thread, ThreadId, Usage};

use super::error::Outcome;
use super::{document, rows};
use crate::rules::{THREAD, not_found};

/// A thread that is there.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) id: ThreadId,
    /// Its row.
    pub(super) number: i64,
    /// Its prompts that wait or run, by row.
    open: Vec<i64>,
    /// Whether they are others than those in the row.
    changed: bool,
}

/// A thread, if there is one of this id.
pub(super) fn known(db: &Connection, session: i64, id: &ThreadId) -> Outcome<Option<Known>> {
    let mut find = db
        .prepare_cached("SELECT number, open FROM engine_threads WHERE session = ?1 AND id = ?2")?;
    let found = find.query_row(params![session, id.as_str()], |row| {
        Ok((row.get(0)?, row.get::<_, String>(1)?))
    });
    let Some((number, open)) = found.optional()? else {
        return Ok(None);
    };
    Ok(Some(Known {
        id: id.clone(),
        number,
        open: document::read(&open)?,
        changed: false,
    }))
}

/// A thread.
pub(super) fn get(db: &Connection, session: i64, id: &ThreadId) -> Outcome<Known> {
    Ok(known(db, session, id)?.ok_or_else(|| not_found(THREAD, id))?)
}

/// Makes a thread.
pub(super) fn insert(
    db: &Connection,
    session: i64,
    thread: &Thread,
    usage: Usage,
    doc: &str,
) -> Outcome<Known> {
    let [turns, input, cached, cache_write, output, spend] = rows::columns(usage);
    let mut insert = db.prepare_cached(
        "INSERT INTO engine_threads (session, id, key, created_at,
             turns, input, cached, cache_write, output, spend, open, doc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, '[]', ?11)",
    )?;
    let number = insert.insert(params![
        session,
        thread.id.as_str(),
        thread.key,
        thread.created_at.0.cast_signed(),
        turns,
        input,
        cached,
        cache_write,
        output,
        spend,
        doc
    ])?;
    Ok(Known {
        id: thread.id.clone(),
        number,
        open: Vec::new(),
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
    /// Whether a prompt waits or runs. It is written later, with the thread most often.
    pub(super) fn keep(&mut self, prompt: i64, open: bool) {
        match self.open.binary_search(&prompt) {
            Ok(at) if !open => drop(self.open.remove(at)),
            Err(at) if open => self.open.insert(at, prompt),
            _ => return,
        }
        self.changed = true;
    }

    /// Puts the thread, with what was used up since. Tells whether it could: not if it was made
    /// as another.
    pub(super) fn update(
        &mut self,
        db: &Connection,
        thread: &Thread,
        usage: Option<Usage>,
        doc: &str,
    ) -> Outcome<bool> {
        let (number, key) = (self.number, &thread.key);
        let (created_at, open) = (thread.created_at.0.cast_signed(), self.list());
        let changed = if let Some(usage) = usage {
            let [turns, input, cached, cache_write, output, spend] = rows::columns(usage);
            let mut update = db.prepare_cached(
                "UPDATE engine_threads SET open = ?4, doc = ?5,
                     turns = min(turns, 9223372036854775807 - ?6) + ?6,
                     input = min(input, 9223372036854775807 - ?7) + ?7,
                     cached = min(cached, 9223372036854775807 - ?8) + ?8,
                     cache_write = min(cache_write, 9223372036854775807 - ?9) + ?9,
                     output = min(output, 9223372036854775807 - ?10) + ?10,
                     spend = min(spend, 9223372036854775807 - ?11) + ?11
                 WHERE number = ?1 AND key = ?2 AND created_at = ?3",
            )?;
            update.execute(params![
                number,
                key,
                created_at,
                open,
                doc,
                turns,
                input,
                cached,
                cache_write,
                output,
                spend
            ])?
        } else {
            let mut update = db.prepare_cached(
                "UPDATE engine_threads SET open = ?4, doc = ?5
                 WHERE number = ?1 AND key = ?2 AND created_at = ?3",
            )?;
            update.execute(params![number, key, created_at, open, doc])?
        };
        self.changed = false;
        Ok(changed > 0)
    }

    /// Writes down which prompts wait or run, if that is not written yet.
    pub(super) fn file(&mut self, db: &Connection) -> Outcome<()> {
        if self.changed {
            let mut file =
                db.prepare_cached("UPDATE engine_threads SET open = ?2 WHERE number = ?1")?;
            file.execute(params![self.number, self.list()])?;
            self.changed = false;
        }
        Ok(())
    }

    fn list(&self) -> String {
        let rows: Vec<_> = self.open.iter().map(i64::to_string).collect();
        ["[", &rows.join(","), "]"].concat()
    }
}
