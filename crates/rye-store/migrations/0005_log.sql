-- What a commit writes lies on as few pages as can be: what happens in a session is one log,
-- to whose end all is written, and one index says where in it things are.

-- Which row becomes which. Within a session prompts come first, then entries, then events,
-- each in their order.
CREATE TABLE engine_moved (
    number INTEGER PRIMARY KEY,
    kind   TEXT NOT NULL,
    before INTEGER NOT NULL,
    UNIQUE (kind, before)
) STRICT;
INSERT INTO engine_moved
    SELECT (session << 36) | row_number() OVER (PARTITION BY session ORDER BY rank, before),
           kind, before
    FROM (SELECT session, 1 AS rank, 'item' AS kind, number AS before FROM engine_queue_items
          UNION ALL SELECT session, 2, 'entry', number FROM engine_entries
          UNION ALL SELECT session, 3, 'events', number FROM engine_events);

-- Session and place are both in a row's number, so that rows lie in their order without an
-- index, and a page that is full is left as it is.
CREATE TABLE engine_log (
    number   INTEGER PRIMARY KEY,   -- the session's number << 36, and the place in its log
    kind     TEXT NOT NULL,         -- entry; item, which is a prompt; or events
    sequence INTEGER NOT NULL,      -- the number of the session's last event up to here
    named    INTEGER NOT NULL,      -- whether its id is in engine_ids
    thread   INTEGER,               -- of an entry or a prompt
    parent   INTEGER,               -- an entry's; always a lower number, so a path cannot run in a circle
    id       TEXT,                  -- of an entry or a prompt
    asked    BLOB,                  -- the hash of what a prompt asked, whatever became of it
    doc      TEXT NOT NULL          -- the thing itself; of events, a list of all that a commit tells
) STRICT;
INSERT INTO engine_log
    SELECT moved.number, moved.kind, coalesce(events.sequence, 0), moved.kind <> 'events',
           coalesce(entry.thread, item.thread), parent.number, coalesce(entry.id, item.id),
           item.asked, coalesce(entry.doc, item.doc, events.doc)
    FROM engine_moved AS moved
    LEFT JOIN engine_entries AS entry ON moved.kind = 'entry' AND entry.number = moved.before
    LEFT JOIN engine_moved AS parent ON parent.kind = 'entry' AND parent.before = entry.parent
    LEFT JOIN engine_queue_items AS item ON moved.kind = 'item' AND item.number = moved.before
    LEFT JOIN engine_events AS events ON moved.kind = 'events' AND events.number = moved.before
    ORDER BY moved.number;

-- Where things are, by id. Prompts that wait or run are `open`, and lie behind all others of
-- their session: beside the newest, since ids are in the order of their making. For that
-- reason entries are found in the log itself, where each has a higher id than those before
-- it; from the first on that has not, all of a session are named here.
CREATE TABLE engine_ids (
    session INTEGER NOT NULL,
    open    INTEGER NOT NULL,
    id      TEXT NOT NULL,
    kind    TEXT NOT NULL,          -- entry or item
    number  INTEGER NOT NULL,       -- the row in the log
    PRIMARY KEY (session, open, id, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO engine_ids
    SELECT session, status IN ('waiting', 'running'), id, kind, moved.number
    FROM engine_moved AS moved JOIN engine_queue_items AS item
    ON moved.kind = 'item' AND item.number = moved.before;
INSERT INTO engine_ids
    SELECT session, 0, id, kind, moved.number
    FROM engine_moved AS moved JOIN engine_entries AS entry
    ON moved.kind = 'entry' AND entry.number = moved.before
    ORDER BY session, id;

DROP TABLE engine_moved;
DROP TABLE engine_entries;
DROP TABLE engine_queue_items;
DROP TABLE engine_events;

-- For whoever looks.
CREATE VIEW engine_entries AS
    SELECT number, number >> 36 AS session, thread, parent, id, doc
    FROM engine_log WHERE kind = 'entry';
CREATE VIEW engine_queue_items AS
    SELECT number, number >> 36 AS session, thread, id, doc ->> '$.status' AS status, asked, doc
    FROM engine_log WHERE kind = 'item';
CREATE VIEW engine_events AS
    SELECT number, number >> 36 AS session, sequence, doc
    FROM engine_log WHERE kind = 'events';
