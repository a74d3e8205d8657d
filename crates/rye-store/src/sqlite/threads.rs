//! Rows of threads, with usage and open prompts in separate columns.

use rusqlite::{Connection, OptionalExtension, params};
use rye_engine::store::StoreError;
use rye_protocol::{Millis, Thread, ThreadId, Usage};

use super::error::DbResult;
use crate::invariants::{THREAD, not_found};
use crate::json_text::{self, JsonText};

/// The row of a thread, with changes that are not written yet.
#[derive(Debug)]
pub(super) struct ThreadRow {
    pub(super) id: ThreadId,
    /// The row number.
    pub(super) number: i64,
    key: String,
    created_at: Millis,
    usage: Usage,
    /// Row numbers of its waiting and running prompts, sorted.
    open_prompts: Vec<i64>,
    /// The new document, if it has changed.
    doc: Option<JsonText>,
    usage_changed: bool,
    prompts_changed: bool,
}

/// Finds a thread.
pub(super) fn find(db: &Connection, session: i64, id: &ThreadId) -> DbResult<Option<ThreadRow>> {
    let mut query = db.prepare_cached(
        "SELECT number, key, created_at, usage, open_prompts FROM engine_threads
         WHERE session = ?1 AND id = ?2",
    )?;
    let row = query.query_row(params![session, id.as_str()], |row| {
        let thread = ThreadRow {
            id: id.clone(),
            number: row.get(0)?,
            key: row.get(1)?,
            created_at: Millis(row.get::<_, i64>(2)?.cast_unsigned()),
            usage: Usage::default(),
            open_prompts: Vec::new(),
            doc: None,
            usage_changed: false,
            prompts_changed: false,
        };
        Ok((thread, row.get::<_, String>(3)?, row.get::<_, String>(4)?))
    });
    let Some((mut thread, usage, open_prompts)) = row.optional()? else {
        return Ok(None);
    };
    thread.usage = json_text::decode(&usage)?;
    thread.open_prompts = json_text::decode(&open_prompts)?;
    Ok(Some(thread))
}

/// Finds a thread that must exist.
pub(super) fn get(db: &Connection, session: i64, id: &ThreadId) -> DbResult<ThreadRow> {
    Ok(find(db, session, id)?.ok_or_else(|| not_found(THREAD, id))?)
}

/// The id of the thread with a key.
pub(super) fn id_with_key(db: &Connection, session: i64, key: &str) -> DbResult<Option<ThreadId>> {
    let mut query =
        db.prepare_cached("SELECT id FROM engine_threads WHERE session = ?1 AND key = ?2")?;
    let id = query.query_row(params![session, key], |row| row.get::<_, String>(0));
    let id = id.optional()?.map(|id| id.parse());
    Ok(id
        .transpose()
        .map_err(|_| StoreError::Unreadable(format!("the thread {key} has an invalid id")))?)
}

/// Inserts a new thread.
pub(super) fn insert(
    db: &Connection,
    session: i64,
    thread: &Thread,
    doc: &JsonText,
) -> DbResult<ThreadRow> {
    let usage = Usage::default();
    let encoded = json_text::encode(&usage)?;
    let (key, created_at) = (thread.key.clone(), thread.created_at);
    let mut insert = db.prepare_cached(
        "INSERT INTO engine_threads (session, id, key, created_at, usage, open_prompts, doc)
         VALUES (?1, ?2, ?3, ?4, ?5, '[]', ?6)",
    )?;
    let at = created_at.0.cast_signed();
    let number = insert.insert(params![session, thread.id.as_str(), key, at, encoded, doc])?;
    Ok(ThreadRow {
        id: thread.id.clone(),
        number,
        key,
        created_at,
        usage,
        open_prompts: Vec::new(),
        doc: None,
        usage_changed: false,
        prompts_changed: false,
    })
}

/// Removes a prompt from the open prompts of a thread.
pub(super) fn remove_open_prompt(db: &Connection, thread: i64, prompt: i64) -> DbResult<()> {
    let mut update = db.prepare_cached(
        "UPDATE engine_threads SET open_prompts =
         (SELECT json_group_array(value) FROM json_each(open_prompts) WHERE value <> ?2)
         WHERE number = ?1",
    )?;
    update.execute([thread, prompt])?;
    Ok(())
}

impl ThreadRow {
    /// Sets a new document. Returns false if the immutable fields differ.
    pub(super) fn update(&mut self, thread: &Thread, doc: JsonText) -> bool {
        self.doc = Some(doc);
        self.key == thread.key && self.created_at == thread.created_at
    }

    pub(super) fn add_usage(&mut self, usage: Usage) {
        self.usage = self.usage.plus(usage);
        self.usage_changed = true;
    }

    /// Adds a prompt to the open prompts, or removes it.
    pub(super) fn set_open(&mut self, prompt: i64, is_open: bool) {
        match self.open_prompts.binary_search(&prompt) {
            Ok(at) if !is_open => drop(self.open_prompts.remove(at)),
            Err(at) if is_open => self.open_prompts.insert(at, prompt),
            _ => return,
        }
        self.prompts_changed = true;
    }

    /// Writes the changes.
    pub(super) fn write(&mut self, db: &Connection) -> DbResult<()> {
        if self.prompts_changed {
            // On its own: writing the column updates an index, even if its value is the same.
            let open_prompts = json_text::encode(&self.open_prompts)?;
            let sql = "UPDATE engine_threads SET open_prompts = ?2 WHERE number = ?1";
            let mut write = db.prepare_cached(sql)?;
            write.execute(params![self.number, open_prompts])?;
        }
        let (number, usage) = (self.number, json_text::encode(&self.usage)?);
        if let Some(doc) = self.doc.take() {
            let sql = "UPDATE engine_threads SET usage = ?2, doc = ?3 WHERE number = ?1";
            db.prepare_cached(sql)?
                .execute(params![number, usage, doc])?;
        } else if self.usage_changed {
            let sql = "UPDATE engine_threads SET usage = ?2 WHERE number = ?1";
            db.prepare_cached(sql)?.execute(params![number, usage])?;
        }
        (self.usage_changed, self.prompts_changed) = (false, false);
        Ok(())
    }
}
