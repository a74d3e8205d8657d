//! A session's log: what was written, in the order of writing, and where in it the things are
//! that have an id.

use rusqlite::{Connection, OptionalExtension, params};
use rye_engine::store::StoreError;
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

/// The entry that was appended last.
#[derive(Debug, Clone)]
pub(super) struct Newest {
    pub(super) id: EntryId,
    pub(super) number: i64,
    /// Whether its id is in the index. Ids are in the order of their making, so that an entry
    /// is found without it; from the first on that is not, all of a session are.
    named: bool,
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

    /// The entry that was appended last, if there is any.
    pub(super) fn newest(self, db: &Connection) -> Outcome<Option<Newest>> {
        let [before, _] = around(self.session);
        entry_within(db, before, self.last)
    }

    /// The row of an entry.
    pub(super) fn entry(self, db: &Connection, id: &EntryId) -> Outcome<Option<i64>> {
        let mut find = db.prepare_cached(
            "SELECT number FROM engine_ids
             WHERE session = ?1 AND open = 0 AND id = ?2 AND kind = 'entry'",
        )?;
        let found = find.query_row(params![self.session, id.as_str()], |row| row.get(0));
        if let Some(number) = found.optional()? {
            return Ok(Some(number));
        }
        let [mut low, _] = around(self.session);
        let mut high = self.last;
        while low < high {
            let middle = high - (high - low) / 2;
            match entry_within(db, low, middle)? {
                Some(it) if it.named || it.id > *id => high = it.number - 1,
                Some(it) if it.id == *id => return Ok(Some(it.number)),
                _ => low = middle,
            }
        }
        Ok(None)
    }

    /// Appends an entry behind the newest; none if there is one of its id.
    pub(super) fn append_entry(
        &mut self,
        db: &Connection,
        newest: Option<&Newest>,
        (thread, parent): (i64, Option<i64>),
        id: &EntryId,
        doc: &str,
    ) -> Outcome<Option<Newest>> {
        let number = self.last + 1;
        let named = newest.is_some_and(|it| it.named || it.id >= *id);
        if named {
            if self.entry(db, id)?.is_some() {
                return Ok(None);
            }
            name(db, self.session, false, id.as_str(), "entry", number)?;
        }
        let mut append = db.prepare_cached(
            "INSERT INTO engine_log (number, kind, sequence, named, thread, parent, id, doc)
             VALUES (?1, 'entry', ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        let row = params![
            number,
            self.sequence,
            named,
            thread,
            parent,
            id.as_str(),
            doc
        ];
        append.execute(row)?;
        self.last = number;
        Ok(Some(Newest {
            id: id.clone(),
            number,
            named,
        }))
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
        let (number, id, open) = (self.last + 1, item.id.as_str(), !item.status.is_over());
        name(db, self.session, open, id, "item", number)?;
        let mut append = db.prepare_cached(
            "INSERT INTO engine_log (number, kind, sequence, named, thread, id, asked, doc)
             VALUES (?1, 'item', ?2, 1, ?3, ?4, ?5, ?6)",
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
        let doc = ["[", &told.join(","), "]"].concat();
        let mut tell = db.prepare_cached(
            "INSERT INTO engine_log (number, kind, sequence, named, doc)
             VALUES (?1, 'events', ?2, 0, ?3)",
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

/// Puts an id into the index.
fn name(
    db: &Connection,
    session: i64,
    open: bool,
    id: &str,
    kind: &str,
    number: i64,
) -> Outcome<()> {
    let mut name = db.prepare_cached(
        "INSERT INTO engine_ids (session, open, id, kind, number) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    name.execute(params![session, open, id, kind, number])?;
    Ok(())
}

/// The last entry behind one row and up to another.
fn entry_within(db: &Connection, low: i64, high: i64) -> Outcome<Option<Newest>> {
    let mut find = db.prepare_cached(
        "SELECT number, named, id FROM engine_log
         WHERE number > ?1 AND number <= ?2 AND kind = 'entry' ORDER BY number DESC LIMIT 1",
    )?;
    let found = find.query_row([low, high], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?))
    });
    let Some((number, named, id)) = found.optional()? else {
        return Ok(None);
    };
    let id = id.parse();
    let id = id.map_err(|_| StoreError::Unreadable(format!("the id of entry {number}")))?;
    Ok(Some(Newest { id, number, named }))
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
