//! The prompts in a session's log. They are far apart, so each row stores the number of the last
//! prompt up to it.

use rusqlite::{Connection, params};
use rye_protocol::{PromptId, QueuedPrompt};

use super::error::DbResult;
use super::log::{self, LastAppended, Log};
use crate::json_text::JsonText;

/// The prompt that was appended last.
pub(super) type LastPrompt = LastAppended<PromptId>;

impl Log {
    /// The prompt that was appended last.
    pub(super) fn read_last_prompt(self, db: &Connection) -> DbResult<Option<LastPrompt>> {
        let [before, _] = log::row_range(self.session);
        match self.last_prompt {
            Some(number) => last_prompt_in(db, before, number),
            None => Ok(None),
        }
    }

    /// The row number of a prompt.
    pub(super) fn find_prompt(
        self,
        db: &Connection,
        last: Option<&LastPrompt>,
        id: &PromptId,
    ) -> DbResult<Option<i64>> {
        let Some(last) = last else {
            return Ok(None);
        };
        if last.id == *id {
            return Ok(Some(last.number));
        }
        if last.indexed {
            let found = log::find_indexed(db, self.session, id.as_str(), "prompt")?;
            if found.is_some() {
                return Ok(found);
            }
        } else if last.id < *id {
            return Ok(None);
        }
        self.binary_search(id, |low, high| last_prompt_in(db, low, high))
    }

    /// Appends a prompt with a new id.
    pub(super) fn append_prompt(
        &mut self,
        db: &Connection,
        last: Option<&LastPrompt>,
        thread: i64,
        prompt: &QueuedPrompt,
        (content_hash, doc): (&[u8], &JsonText),
    ) -> DbResult<LastPrompt> {
        let (number, id) = (self.last + 1, prompt.id.as_str());
        let indexed = last.is_some_and(|last| last.indexed || last.id >= prompt.id);
        if indexed {
            log::index_id(db, self.session, id, "prompt", number)?;
        }
        let mut append = db.prepare_cached(
            "INSERT INTO engine_log
             (number, kind, sequence, indexed, last_prompt, thread, id, content_hash, doc)
             VALUES (?1, 'prompt', ?2, ?3, ?1, ?4, ?5, ?6, ?7)",
        )?;
        append.execute(params![
            number,
            self.sequence,
            indexed,
            thread,
            id,
            content_hash,
            doc
        ])?;
        self.last = number;
        self.last_prompt = Some(number);
        Ok(LastPrompt {
            id: prompt.id.clone(),
            number,
            indexed,
        })
    }

    /// Removes a prompt and returns its thread's row number. The row itself stays, because later
    /// rows refer to it.
    pub(super) fn remove_prompt(
        self,
        db: &Connection,
        number: i64,
        id: &PromptId,
    ) -> DbResult<i64> {
        let mut thread = db.prepare_cached("SELECT thread FROM engine_log WHERE number = ?1")?;
        let thread = thread.query_row([number], |row| row.get(0))?;
        let mut remove = db.prepare_cached(
            "UPDATE engine_log SET kind = 'removed_prompt', indexed = 0, thread = NULL, id = NULL,
                 content_hash = NULL, doc = NULL
             WHERE number = ?1",
        )?;
        remove.execute([number])?;
        let mut unindex = db.prepare_cached(
            "DELETE FROM engine_ids WHERE session = ?1 AND id = ?2 AND kind = 'prompt'",
        )?;
        unindex.execute(params![self.session, id.as_str()])?;
        Ok(thread)
    }
}

/// Updates a prompt. Returns false if it belongs to another thread.
pub(super) fn update(db: &Connection, number: i64, thread: i64, doc: &JsonText) -> DbResult<bool> {
    let mut update =
        db.prepare_cached("UPDATE engine_log SET doc = ?3 WHERE number = ?1 AND thread = ?2")?;
    Ok(update.execute(params![number, thread, doc])? > 0)
}

/// The last prompt with `low < number <= high`.
fn last_prompt_in(db: &Connection, low: i64, mut high: i64) -> DbResult<Option<LastPrompt>> {
    let mut find = db.prepare_cached(
        "SELECT number, kind = 'prompt', indexed, id FROM engine_log WHERE number =
         (SELECT last_prompt FROM engine_log WHERE number > ?1 AND number <= ?2
          ORDER BY number DESC LIMIT 1)",
    )?;
    loop {
        let mut rows = find.query([low, high])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let number = row.get(0)?;
        // Prevents an endless loop in a damaged file.
        if number <= low || number > high {
            return Ok(None);
        }
        if row.get(1)? {
            return Ok(Some(LastPrompt {
                id: log::parse_id(row, 3, number)?,
                number,
                indexed: row.get(2)?,
            }));
        }
        high = number - 1;
    }
}
