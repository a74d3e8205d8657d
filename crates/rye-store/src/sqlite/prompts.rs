//! The prompts in a session's log. Many rows may lie between two of them, so each row says
//! where the last one up to it is.

use rusqlite::{Connection, params};
use rye_protocol::{PromptId, QueuedPrompt};

use super::document::Text;
use super::error::Outcome;
use super::log::{self, Log, Newest};

/// The prompt that was appended last.
pub(super) type Last = Newest<PromptId>;

impl Log {
    /// The prompt that was appended last, if there is any.
    pub(super) fn last_prompt(self, db: &Connection) -> Outcome<Option<Last>> {
        let [before, _] = log::around(self.session);
        match self.prompt {
            Some(number) => prompt_within(db, before, number),
            None => Ok(None),
        }
    }

    /// The row of a prompt, whether or not it is over.
    pub(super) fn prompt(
        self,
        db: &Connection,
        last: Option<&Last>,
        id: &PromptId,
    ) -> Outcome<Option<i64>> {
        let Some(last) = last else {
            return Ok(None);
        };
        if last.id == *id {
            return Ok(Some(last.number));
        }
        if last.named {
            let found = log::named(db, self.session, id.as_str(), "prompt")?;
            if found.is_some() {
                return Ok(found);
            }
        } else if last.id < *id {
            return Ok(None);
        }
        self.halve(id, |low, high| prompt_within(db, low, high))
    }

    /// Appends a prompt of an id that is not known, behind the last.
    pub(super) fn append_prompt(
        &mut self,
        db: &Connection,
        last: Option<&Last>,
        thread: i64,
        prompt: &QueuedPrompt,
        (asked, doc): (&[u8], &Text),
    ) -> Outcome<Last> {
        let (number, id) = (self.last + 1, prompt.id.as_str());
        let named = last.is_some_and(|last| last.named || last.id >= prompt.id);
        if named {
            log::name(db, self.session, id, "prompt", number)?;
        }
        let mut append = db.prepare_cached(
            "INSERT INTO engine_log
             (number, kind, sequence, named, prompt, thread, id, asked, doc)
             VALUES (?1, 'prompt', ?2, ?3, ?1, ?4, ?5, ?6, ?7)",
        )?;
        append.execute(params![
            number,
            self.sequence,
            named,
            thread,
            id,
            asked,
            doc
        ])?;
        self.last = number;
        self.prompt = Some(number);
        Ok(Last {
            id: prompt.id.clone(),
            number,
            named,
        })
    }

    /// Forgets a prompt, and tells of which thread it was. Its row stays, since others say
    /// that it is there.
    pub(super) fn remove_prompt(self, db: &Connection, number: i64, id: &PromptId) -> Outcome<i64> {
        let mut thread = db.prepare_cached("SELECT thread FROM engine_log WHERE number = ?1")?;
        let thread = thread.query_row([number], |row| row.get(0))?;
        let mut remove = db.prepare_cached(
            "UPDATE engine_log SET kind = 'removed_prompt', named = 0, thread = NULL, id = NULL,
                 asked = NULL, doc = NULL
             WHERE number = ?1",
        )?;
        remove.execute([number])?;
        let mut forget = db.prepare_cached(
            "DELETE FROM engine_ids WHERE session = ?1 AND id = ?2 AND kind = 'prompt'",
        )?;
        forget.execute(params![self.session, id.as_str()])?;
        Ok(thread)
    }
}

/// Puts a prompt that is known. Tells whether it could: not if it is another thread's.
pub(super) fn update(db: &Connection, number: i64, thread: i64, doc: &Text) -> Outcome<bool> {
    let mut update =
        db.prepare_cached("UPDATE engine_log SET doc = ?3 WHERE number = ?1 AND thread = ?2")?;
    Ok(update.execute(params![number, thread, doc])? > 0)
}

/// The last prompt behind one row and up to another.
fn prompt_within(db: &Connection, low: i64, mut high: i64) -> Outcome<Option<Last>> {
    let mut find = db.prepare_cached(
        "SELECT number, kind = 'prompt', named, id FROM engine_log WHERE number =
         (SELECT prompt FROM engine_log WHERE number > ?1 AND number <= ?2
          ORDER BY number DESC LIMIT 1)",
    )?;
    loop {
        let mut rows = find.query([low, high])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let number = row.get(0)?;
        // A damaged file must not send us around in a circle.
        if number <= low || number > high {
            return Ok(None);
        }
        if row.get(1)? {
            return Ok(Some(Last {
                id: log::id_of(row, 3, number)?,
                number,
                named: row.get(2)?,
            }));
        }
        high = number - 1;
    }
}
