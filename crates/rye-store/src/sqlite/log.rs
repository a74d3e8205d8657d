//! A session's log: what was written, in the order of writing, and where in it the things are
//! that have an id.

use std::str::FromStr;

use rusqlite::{Connection, OptionalExtension, Row, params};
use rye_engine::store::StoreError;
use rye_protocol::EntryId;

use super::document::Text;
use super::error::Outcome;
use super::news::News;

/// How many rows a log may have: all rows are numbered through, session by session.
const ROWS: i64 = 1 << 36;

/// A log, and where it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    /// The session's row.
    pub(super) session: i64,
    /// The last row, or the one that would be before the first.
    pub(super) last: i64,
    /// The number of the last event.
    pub(super) sequence: i64,
    /// The last row that is a prompt, or was one.
    pub(super) prompt: Option<i64>,
}

/// The entry or the prompt that was appended last.
#[derive(Debug, Clone)]
pub(super) struct Newest<I> {
    pub(super) id: I,
    pub(super) number: i64,
    /// Whether its id is in the index. Ids are in the order of their making, so that things
    /// are found without it; from the first on that is not, all of a session and kind are.
    pub(super) named: bool,
}

/// Between these two numbers lie all rows of a session.
pub(super) fn around(session: i64) -> [i64; 2] {
    [session * ROWS, (session + 1) * ROWS]
}

impl Log {
    /// One in which nothing is.
    pub(super) fn empty(session: i64) -> Self {
        Self {
            session,
            last: around(session)[0],
            sequence: 0,
            prompt: None,
        }
    }

    pub(super) fn of(db: &Connection, session: i64) -> Outcome<Self> {
        let mut find = db.prepare_cached(
            "SELECT number, sequence, prompt FROM engine_log WHERE number > ?1 AND number < ?2
             ORDER BY number DESC LIMIT 1",
        )?;
        let found = find.query_row(around(session), |row| {
            Ok(Self {
                session,
                last: row.get(0)?,
                sequence: row.get(1)?,
                prompt: row.get(2)?,
            })
        });
        let found = found.optional()?;
        Ok(found.unwrap_or_else(|| Self::empty(session)))
    }

    /// The entry that was appended last, if there is any.
    pub(super) fn newest(self, db: &Connection) -> Outcome<Option<Newest<EntryId>>> {
        let [before, _] = around(self.session);
        entry_within(db, before, self.last)
    }

    /// The row of an entry.
    pub(super) fn entry(self, db: &Connection, id: &EntryId) -> Outcome<Option<i64>> {
        match named(db, self.session, id.as_str(), "entry")? {
            Some(number) => Ok(Some(number)),
            None => self.halve(id, |low, high| entry_within(db, low, high)),
        }
    }

    /// The row of what is not in the index, given how to find the last of its kind behind one
    /// row and up to another: each has a higher id than those before it.
    pub(super) fn halve<I: Ord>(
        self,
        id: &I,
        last_within: impl Fn(i64, i64) -> Outcome<Option<Newest<I>>>,
    ) -> Outcome<Option<i64>> {
        let [mut low, _] = around(self.session);
        let mut high = self.last;
        while low < high {
            let middle = high - (high - low) / 2;
            match last_within(low, middle)? {
                Some(it) if it.named || it.id > *id => high = it.number - 1,
                Some(it) if it.id == *id => return Ok(Some(it.number)),
                _ => low = middle,
            }
        }
        Ok(None)
    }

    /// Appends an entry behind the newest, with what its commit tells if that is given; none
    /// if there is one of its id.
    pub(super) fn append_entry(
        &mut self,
        db: &Connection,
        newest: Option<&Newest<EntryId>>,
        (thread, parent): (i64, Option<i64>),
        id: &EntryId,
        (told, doc): (Option<&News>, &Text),
    ) -> Outcome<Option<Newest<EntryId>>> {
        let number = self.last + 1;
        let named = newest.is_some_and(|it| it.named || it.id >= *id);
        if named {
            if self.entry(db, id)?.is_some() {
                return Ok(None);
            }
            name(db, self.session, id.as_str(), "entry", number)?;
        }
        let sequence = self.sequence + told.map_or(0, |it| it.count);
        let mut append = db.prepare_cached(
            "INSERT INTO engine_log
             (number, kind, sequence, named, prompt, thread, parent, id, told, doc)
             VALUES (?1, 'entry', ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        append.execute(params![
            number,
            sequence,
            named,
            self.prompt,
            thread,
            parent,
            id.as_str(),
            told.map(|it| &it.list),
            doc
        ])?;
        self.last = number;
        self.sequence = sequence;
        Ok(Some(Newest {
            id: id.clone(),
            number,
            named,
        }))
    }

    /// Writes down what is told, where no entry is written with it.
    pub(super) fn tell(&mut self, db: &Connection, told: &News) -> Outcome<()> {
        let (number, sequence) = (self.last + 1, self.sequence + told.count);
        let mut tell = db.prepare_cached(
            "INSERT INTO engine_log (number, kind, sequence, named, prompt, told)
             VALUES (?1, 'events', ?2, 0, ?3, ?4)",
        )?;
        tell.execute(params![number, sequence, self.prompt, told.list])?;
        self.last = number;
        self.sequence = sequence;
        Ok(())
    }

    /// The last row up to which nothing was told after an event of this number.
    pub(super) fn behind(self, db: &Connection, sequence: i64) -> Outcome<i64> {
        let [before, _] = around(self.session);
        if sequence >= self.sequence {
            return Ok(self.last);
        }
        let mut find = db.prepare_cached(
            "SELECT sequence FROM engine_log WHERE number > ?1 AND number <= ?2
             ORDER BY number DESC LIMIT 1",
        )?;
        // It grows from row to row, so that half of them can be left out each time.
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

/// The row of what is in the index.
pub(super) fn named(db: &Connection, session: i64, id: &str, kind: &str) -> Outcome<Option<i64>> {
    let mut find = db.prepare_cached(
        "SELECT number FROM engine_ids WHERE session = ?1 AND id = ?2 AND kind = ?3",
    )?;
    let found = find.query_row(params![session, id, kind], |row| row.get(0));
    Ok(found.optional()?)
}

/// Puts an id into the index.
pub(super) fn name(
    db: &Connection,
    session: i64,
    id: &str,
    kind: &str,
    number: i64,
) -> Outcome<()> {
    let mut name = db.prepare_cached(
        "INSERT INTO engine_ids (session, id, kind, number) VALUES (?1, ?2, ?3, ?4)",
    )?;
    name.execute(params![session, id, kind, number])?;
    Ok(())
}

/// The id of a row that was found.
pub(super) fn id_of<I: FromStr>(row: &Row<'_>, column: usize, number: i64) -> Outcome<I> {
    let text = row.get_ref(column)?.as_str().ok();
    let id = text.and_then(|text| text.parse().ok());
    Ok(id.ok_or_else(|| StoreError::Unreadable(format!("the id in row {number} of the log")))?)
}

/// The last entry behind one row and up to another.
fn entry_within(db: &Connection, low: i64, high: i64) -> Outcome<Option<Newest<EntryId>>> {
    let mut find = db.prepare_cached(
        "SELECT number, named, id FROM engine_log
         WHERE number > ?1 AND number <= ?2 AND kind = 'entry' ORDER BY number DESC LIMIT 1",
    )?;
    let mut rows = find.query([low, high])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let number = row.get(0)?;
    Ok(Some(Newest {
        id: id_of(row, 2, number)?,
        number,
        named: row.get(1)?,
    }))
}
