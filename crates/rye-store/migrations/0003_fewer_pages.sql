-- What a commit writes lies on fewer pages, since each page that it touches is written whole
-- and waited for.

-- What a thread has used up lies beside its text, which every step of a turn writes anyway.
-- That of a session is what its own row says and what those of its threads say.
CREATE TABLE engine_threads_3 (
    number      INTEGER PRIMARY KEY,
    session     INTEGER NOT NULL,
    id          TEXT NOT NULL,
    key         TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    turns       INTEGER NOT NULL,
    input       INTEGER NOT NULL,
    cached      INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    spend       INTEGER NOT NULL,
    doc         TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;
INSERT INTO engine_threads_3
    SELECT number, session, id, key, created_at, 0, 0, 0, 0, 0, 0, doc FROM engine_threads;
DROP TABLE engine_threads;
ALTER TABLE engine_threads_3 RENAME TO engine_threads;

-- One index where there were two. The ids of entries are in the order of their making, so
-- this is (session, thread, created). That an id is unique in its session, and not only in
-- its thread, is looked at before it is written.
CREATE TABLE engine_entries_3 (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    thread  INTEGER NOT NULL,
    parent  INTEGER,                -- always a lower number, so a path cannot run in a circle
    id      TEXT NOT NULL,
    doc     TEXT NOT NULL
) STRICT;
INSERT INTO engine_entries_3
    SELECT number, session, thread, parent, id, doc FROM engine_entries ORDER BY number;
DROP TABLE engine_entries;
ALTER TABLE engine_entries_3 RENAME TO engine_entries;
CREATE UNIQUE INDEX engine_entries_thread ON engine_entries (session, thread, id);

-- All that a commit tells is one row: `sequence` is the number of the last of its events, and
-- `doc` a list of them. Session and sequence are both in the row's number, so that rows lie
-- in their order without an index, and a page that is full is left as it is.
CREATE TABLE engine_events_3 (
    number   INTEGER PRIMARY KEY,
    session  INTEGER GENERATED ALWAYS AS (number >> 36) VIRTUAL,
    sequence INTEGER GENERATED ALWAYS AS (number & 68719476735) VIRTUAL,
    doc      TEXT NOT NULL
) STRICT;
INSERT INTO engine_events_3 (number, doc)
    SELECT (session << 36) | sequence, '[' || doc || ']' FROM engine_events
    ORDER BY session, sequence;
DROP TABLE engine_events;
ALTER TABLE engine_events_3 RENAME TO engine_events;

-- An order has an id, and stays until the commit that carries it out.
CREATE TABLE engine_inbox_3 (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    id      TEXT NOT NULL,
    doc     TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;
INSERT INTO engine_inbox_3
    SELECT number, session, 'order-' || number, json_set(doc, '$.id', 'order-' || number)
    FROM engine_inbox ORDER BY number;
DROP TABLE engine_inbox;
ALTER TABLE engine_inbox_3 RENAME TO engine_inbox;
