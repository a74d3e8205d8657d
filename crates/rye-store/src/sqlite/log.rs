//! A session's log: entries, prompts and events in the order of writing, and lookups by id.

use std::str::FromStr;

use rusqlite::{Connection, OptionalExtension, Row, params};
use rye_engine::store::StoreError;
use rye_protocol::EntryId;

use super::error::DbResult;
use crate::events::EventBatch;
use crate::json_text::JsonText;

/// Maximum number of rows in a log. The session number times this is the first row number.
const MAX_ROWS: i64 = 1 << 36;

/// The end of a log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    /// The session's row number.
    pub(super) session: i64,
    /// The last row, or the number before the first row if the log is empty.
    pub(super) last: i64,
    /// Sequence number of the last event.
    pub(super) sequence: i64,
    /// The last row that is or was a prompt.
    pub(super) last_prompt: Option<i64>,
}

/// The entry or the prompt that was appended last.
#[derive(Debug, Clone)]
pub(super) struct LastAppended<I> {
    pub(super) id: I,
    pub(super) number: i64,
    /// Whether its id is in `engine_ids`. Ids are usually ascending and found by binary search;
    /// from the first one that is not, all ids of this kind in the session are indexed.
    pub(super) indexed: bool,
}

/// The row numbers of a session are between these two, exclusively.
pub(super) fn row_range(session: i64) -> [i64; 2] {
    [session * MAX_ROWS, (session + 1) * MAX_ROWS]
}

impl Log {
    /// The log of a new session.
    pub(super) fn empty(session: i64) -> Self {
        Self {
            session,
            last: row_range(session)[0],
            sequence: 0,
            last_prompt: None,
        }
    }

    pub(super) fn load(db: &Connection, session: i64) -> DbResult<Self> {
        let mut find = db.prepare_cached(
            "SELECT number, sequence, last_prompt FROM engine_log WHERE number > ?1 AND number < ?2
             ORDER BY number DESC LIMIT 1",
        )?;
        let found = find.query_row(row_range(session), |row| {
            Ok(Self {
                session,
                last: row.get(0)?,
                sequence: row.get(1)?,
                last_prompt: row.get(2)?,
            })
        });
        let found = found.optional()?;
        Ok(found.unwrap_or_else(|| Self::empty(session)))
    }

    /// The entry that was appended last.
    pub(super) fn last_entry(self, db: &Connection) -> DbResult<Option<LastAppended<EntryId>>> {
        let [before, _] = row_range(self.session);
        last_entry_in(db, before, self.last)
    }

    /// The row number of an entry.
    pub(super) fn find_entry(self, db: &Connection, id: &EntryId) -> DbResult<Option<i64>> {
        match find_indexed(db, self.session, id.as_str(), "entry")? {
            Some(number) => Ok(Some(number)),
            None => self.binary_search(id, |low, high| last_entry_in(db, low, high)),
        }
    }

    /// Finds an id that is not in the index. `last_within(low, high)` returns the last object of
    /// the kind with `low < number <= high`.
    pub(super) fn binary_search<I: Ord>(
        self,
        id: &I,
        last_within: impl Fn(i64, i64) -> DbResult<Option<LastAppended<I>>>,
    ) -> DbResult<Option<i64>> {
        let [mut low, _] = row_range(self.session);
        let mut high = self.last;
        while low < high {
            let middle = high - (high - low) / 2;
            match last_within(low, middle)? {
                Some(it) if it.indexed || it.id > *id => high = it.number - 1,
                Some(it) if it.id == *id => return Ok(Some(it.number)),
                _ => low = middle,
            }
        }
        Ok(None)
    }

    /// Appends an entry, with the events of its commit if given. Returns none if the id exists.
    pub(super) fn append_entry(
        &mut self,
        db: &Connection,
        last: Option<&LastAppended<EntryId>>,
        (thread, parent): (i64, Option<i64>),
        id: &EntryId,
        (events, doc): (Option<&EventBatch>, &JsonText),
    ) -> DbResult<Option<LastAppended<EntryId>>> {
        let number = self.last + 1;
        let indexed = last.is_some_and(|it| it.indexed || it.id >= *id);
        if indexed {
            if self.find_entry(db, id)?.is_some() {
                return Ok(None);
            }
            index_id(db, self.session, id.as_str(), "entry", number)?;
        }
        let sequence = self.sequence + events.map_or(0, |it| it.count);
        let mut append = db.prepare_cached(
            "INSERT INTO engine_log
             (number, kind, sequence, indexed, last_prompt, thread, parent, id, events, doc)
             VALUES (?1, 'entry', ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        append.execute(params![
            number,
            sequence,
            indexed,
            self.last_prompt,
            thread,
            parent,
            id.as_str(),
            events.map(|it| &it.json),
            doc
        ])?;
        self.last = number;
        self.sequence = sequence;
        Ok(Some(LastAppended {
            id: id.clone(),
            number,
            indexed,
        }))
    }

    /// Appends events in a row of their own.
    pub(super) fn append_events(&mut self, db: &Connection, events: &EventBatch) -> DbResult<()> {
        let (number, sequence) = (self.last + 1, self.sequence + events.count);
        let mut append = db.prepare_cached(
            "INSERT INTO engine_log (number, kind, sequence, indexed, last_prompt, events)
             VALUES (?1, 'events', ?2, 0, ?3, ?4)",
        )?;
        append.execute(params![number, sequence, self.last_prompt, events.json])?;
        self.last = number;
        self.sequence = sequence;
        Ok(())
    }

    /// The last row before the first event after this sequence number.
    pub(super) fn last_row_up_to(self, db: &Connection, sequence: i64) -> DbResult<i64> {
        let [before, _] = row_range(self.session);
        if sequence >= self.sequence {
            return Ok(self.last);
        }
        let mut find = db.prepare_cached(
            "SELECT sequence FROM engine_log WHERE number > ?1 AND number <= ?2
             ORDER BY number DESC LIMIT 1",
        )?;
        // Binary search: the sequence number grows from row to row.
        let (mut low, mut high) = (before, self.last);
        while low < high {
            let middle = high - (high - low) / 2;
            let found = find.query_row([before, middle], |row| row.get::<_, i64>(0));
            if found.optional()?.unwrap_or(0) <= sequence {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        Ok(low)
    }
}

/// The row number of an indexed id.
pub(super) fn find_indexed(
    db: &Connection,
    session: i64,
    id: &str,
    kind: &str,
) -> DbResult<Option<i64>> {
    let mut find = db.prepare_cached(
        "SELECT number FROM engine_ids WHERE session = ?1 AND id = ?2 AND kind = ?3",
    )?;
    let found = find.query_row(params![session, id, kind], |row| row.get(0));
    Ok(found.optional()?)
}

/// Adds an id to the index.
pub(super) fn index_id(
    db: &Connection,
    session: i64,
    id: &str,
    kind: &str,
    number: i64,
) -> DbResult<()> {
    let mut name = db.prepare_cached(
        "INSERT INTO engine_ids (session, id, kind, number) VALUES (?1, ?2, ?3, ?4)",
    )?;
    name.execute(params![session, id, kind, number])?;
    Ok(())
}

/// Parses the id in a column of a row.
pub(super) fn parse_id<I: FromStr>(row: &Row<'_>, column: usize, number: i64) -> DbResult<I> {
    let text = row.get_ref(column)?.as_str().ok();
    let id = text.and_then(|text| text.parse().ok());
    Ok(id.ok_or_else(|| {
        StoreError::Unreadable(format!("row {number} of the log has an invalid id"))
    })?)
}

/// The last entry with `low < number <= high`.
fn last_entry_in(db: &Connection, low: i64, high: i64) -> DbResult<Option<LastAppended<EntryId>>> {
    let mut find = db.prepare_cached(
        "SELECT number, indexed, id FROM engine_log
         WHERE number > ?1 AND number <= ?2 AND kind = 'entry' ORDER BY number DESC LIMIT 1",
    )?;
    let mut rows = find.query([low, high])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let number = row.get(0)?;
    Ok(Some(LastAppended {
        id: parse_id(row, 2, number)?,
        number,
        indexed: row.get(1)?,
    }))
}
