-- The record. `doc` is the thing itself, as JSON; beside it stands what is looked for.
-- A `number` is a row's own, given in the order of writing, so ordering by it is ordering by
-- the time of making. Rows name each other by number, which is short and quick to follow.
-- `doc` is the last column, so that what stands before it is read without it.

CREATE TABLE engine_sessions (
    number  INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    user_id TEXT,
    fixed   TEXT NOT NULL,          -- what never changes: a second session of the same id differs in it
    usage   TEXT NOT NULL,          -- the truth of it; that in `doc` is as old as the row
    doc     TEXT NOT NULL
) STRICT;
CREATE INDEX engine_sessions_user ON engine_sessions (user_id);

CREATE TABLE engine_threads (
    number     INTEGER PRIMARY KEY,
    session    INTEGER NOT NULL,
    id         TEXT NOT NULL,
    key        TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    doc        TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;

CREATE TABLE engine_entries (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    thread  INTEGER NOT NULL,
    parent  INTEGER,                -- always a lower number, so a path cannot run in a circle
    id      TEXT NOT NULL,
    doc     TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;
-- A thread's number is of one session, and an index ends with the row's number: this is
-- (session, thread, created).
CREATE INDEX engine_entries_thread ON engine_entries (thread);

CREATE TABLE engine_queue_items (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    thread  INTEGER NOT NULL,
    id      TEXT NOT NULL,
    status  TEXT NOT NULL,
    asked   BLOB NOT NULL,          -- the hash of what was asked, whatever became of it
    doc     TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;
CREATE INDEX engine_queue_items_active ON engine_queue_items (session, thread, status)
    WHERE status IN ('waiting', 'running');

CREATE TABLE engine_decision_gates (
    number  INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL,
    item    TEXT NOT NULL,
    pending INTEGER NOT NULL,
    doc     TEXT NOT NULL
) STRICT;
CREATE INDEX engine_decision_gates_item ON engine_decision_gates (session, item);
CREATE INDEX engine_decision_gates_pending ON engine_decision_gates (session) WHERE pending = 1;

CREATE TABLE engine_decision_gate_refs (
    number  INTEGER PRIMARY KEY,
    gate    INTEGER NOT NULL,
    channel TEXT NOT NULL,
    message TEXT NOT NULL,
    UNIQUE (gate, channel, message)
) STRICT;

CREATE TABLE engine_suspended_turns (
    number  INTEGER PRIMARY KEY,
    gate    TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL,
    doc     TEXT NOT NULL
) STRICT;
CREATE INDEX engine_suspended_turns_session ON engine_suspended_turns (session);

-- Most are short, so they lie in their index: one page to write rather than two.
CREATE TABLE engine_events (
    session  INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    doc      TEXT NOT NULL,
    PRIMARY KEY (session, sequence)
) STRICT, WITHOUT ROWID;

-- A row is a session that somebody has. The epoch is the row's number, which never comes
-- again, not even when the row is gone.
CREATE TABLE engine_leases (
    epoch    INTEGER PRIMARY KEY AUTOINCREMENT,
    session  TEXT NOT NULL UNIQUE,
    host     TEXT NOT NULL,
    process  TEXT NOT NULL,         -- PID:START:BOOT
    instance INTEGER NOT NULL       -- which store of that process
) STRICT;

-- Orders that nobody has taken yet.
CREATE TABLE engine_inbox (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    doc     TEXT NOT NULL
) STRICT;
CREATE INDEX engine_inbox_session ON engine_inbox (session);

-- The last posts, for processes that listen. Its numbers never come again, so that whoever
-- has seen one knows what came after it.
CREATE TABLE engine_posts (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    source  TEXT NOT NULL
) STRICT;
