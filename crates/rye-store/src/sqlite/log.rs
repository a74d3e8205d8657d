//! A session's log: what was written, in the order of writing, and where in it the things are
//! that have an id.

use rusqlite::{Connection, OptionalExtension, params};
use rye_protocol::{EntryId, QueueItem, QueueItemId};

use super::error::Outcome;

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
}

/// A prompt that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// Its row.
    pub(super) number: i64,
    /// Whether it waits or runs.
    open: bool,
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
        }
    }

    pub(super) fn of(db: &Connection, session: i64) -> Outcome<Self> {
        let mut find = db.prepare_cached(
            "SELECT number, sequence FROM engine_log WHERE number > ?1 AND number < ?2
             ORDER BY number DESC LIMIT 1",
        )?;
        let found = find.query_row(around(session), |row| {
            Ok(Self {
                session,
                last: row.get(0)?,
                sequence: row.get(1)?,
            })
        });
        let found = found.optional()?;
        Ok(found.unwrap_or_else(|| Self::empty(session)))
    }

    /// Appends an entry and gives its row; or none, if there is one of its id.
    pub(super) fn append_entry(
        &mut self,
        db: &Connection,
        thread: i64,
        parent: Option<i64>,
        id: &EntryId,
        doc: &str,
    ) -> Outcome<Option<i64>> {
        let number = self.last + 1;
        let mut name = db.prepare_cached(
            "INSERT INTO engine_ids (session, open, id, kind, number)
             VALUES (?1, 0, ?2, 'entry', ?3) ON CONFLICT DO NOTHING",
        )?;
        if name.execute(params![self.session, id.as_str(), number])? == 0 {
            return Ok(None);
        }
        let mut append = db.prepare_cached(
            "INSERT INTO engine_log (number, kind, sequence, thread, parent, id, doc)
             VALUES (?1, 'entry', ?2, ?3, ?4, ?5, ?6)",
        )?;
        let row = params![number, self.sequence, thread, parent, id.as_str(), doc];
        append.execute(row)?;
        self.last = number;
        Ok(Some(number))
    }

    /// Appends a prompt of an id that is not known.
    pub(super) fn append_item(
        &mut self,
        db: &Connection,
        thread: i64,
        item: &QueueItem,
        asked: &[u8],
        doc: &str,
    ) -> Outcome<()> {
        let (number, id) = (self.last + 1, item.id.as_str());
        let mut name = db.prepare_cached(
            "INSERT INTO engine_ids (session, open, id, kind, number)
             VALUES (?1, ?2, ?3, 'item', ?4)",
        )?;
        name.execute(params![self.session, !item.status.is_over(), id, number])?;
        let mut append = db.prepare_cached(
            "INSERT INTO engine_log (number, kind, sequence, thread, id, asked, doc)
             VALUES (?1, 'item', ?2, ?3, ?4, ?5, ?6)",
        )?;
        append.execute(params![number, self.sequence, thread, id, asked, doc])?;
        self.last = number;
        Ok(())
    }

    /// Puts a prompt that is known. Tells whether it could: not if it is another thread's.
    pub(super) fn update_item(
        self,
        db: &Connection,
        known: Known,
        thread: i64,
        item: &QueueItem,
        doc: &str,
    ) -> Outcome<bool> {
        let mut update =
            db.prepare_cached("UPDATE engine_log SET doc = ?3 WHERE number = ?1 AND thread = ?2")?;
        if update.execute(params![known.number, thread, doc])? == 0 {
            return Ok(false);
        }
        let open = !item.status.is_over();
        if open != known.open {
            let mut file = db.prepare_cached(
                "UPDATE engine_ids SET open = ?2
                 WHERE session = ?1 AND open = ?3 AND id = ?4 AND kind = 'item'",
            )?;
            file.execute(params![self.session, open, known.open, item.id.as_str()])?;
        }
        Ok(true)
    }

    /// Forgets a prompt.
    pub(super) fn remove_item(self, db: &Connection, id: &QueueItemId) -> Outcome<()> {
        let Some(known) = item(db, self.session, id)? else {
            return Ok(());
        };
        db.prepare_cached("DELETE FROM engine_log WHERE number = ?1")?
            .execute([known.number])?;
        let mut remove = db.prepare_cached(
            "DELETE FROM engine_ids
             WHERE session = ?1 AND open = ?2 AND id = ?3 AND kind = 'item'",
        )?;
        remove.execute(params![self.session, known.open, id.as_str()])?;
        Ok(())
    }

    /// Writes down what is told.
    pub(super) fn tell(&mut self, db: &Connection, told: &[String]) -> Outcome<()> {
        let Ok(more @ 1..) = i64::try_from(told.len()) else {
            return Ok(());
        };
        let doc = format!("[{}]", told.join(","));
        let mut tell = db.prepare_cached(
            "INSERT INTO engine_log (number, kind, sequence, doc) VALUES (?1, 'events', ?2, ?3)",
        )?;
        tell.execute(params![self.last + 1, self.sequence + more, doc])?;
        self.last += 1;
        self.sequence += more;
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

/// The row of an entry.
pub(super) fn entry(db: &Connection, session: i64, id: &EntryId) -> Outcome<Option<i64>> {
    let mut find = db.prepare_cached(
        "SELECT number FROM engine_ids
         WHERE session = ?1 AND open = 0 AND id = ?2 AND kind = 'entry'",
    )?;
    let found = find.query_row(params![session, id.as_str()], |row| row.get(0));
    Ok(found.optional()?)
}

/// A prompt, whether or not it is over.
pub(super) fn item(db: &Connection, session: i64, id: &QueueItemId) -> Outcome<Option<Known>> {
    let mut find = db.prepare_cached(
        "SELECT number FROM engine_ids
         WHERE session = ?1 AND open = ?2 AND id = ?3 AND kind = 'item'",
    )?;
    // One after the other: to be asked for both at once, SQLite makes a table of the two.
    for open in [true, false] {
        let found = find.query_row(params![session, open, id.as_str()], |row| row.get(0));
        if let Some(number) = found.optional()? {
            return Ok(Some(Known { number, open }));
        }
    }
    Ok(None)
}
