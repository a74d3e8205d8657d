-- `doc` is the record itself, as JSON; the other columns are what records are looked up by.
-- A `number` is a row's own, given in the order of writing, so ordering by it is ordering by
-- the time of creation. Rows refer to each other by number, which is short and quick to follow.
-- `doc` is the last column, so that the columns before it are read without it.

CREATE TABLE engine_sessions (
    number  INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    user_id TEXT,
    fixed   TEXT NOT NULL,          -- what never changes: a second session of the same id differs in it
    usage   TEXT NOT NULL,          -- without that of its threads; that in `doc` is as old as the row
    doc     TEXT NOT NULL,
    -- The parent session, so that children are found without reading all sessions.
    parent  TEXT GENERATED ALWAYS AS (doc ->> '$.parent.session') VIRTUAL
) STRICT;
CREATE INDEX engine_sessions_user ON engine_sessions (user_id);
CREATE INDEX engine_sessions_parent ON engine_sessions (parent) WHERE parent IS NOT NULL;

-- Nearly every commit writes the row of a thread, so it has few columns.
CREATE TABLE engine_threads (
    number     INTEGER PRIMARY KEY,
    session    INTEGER NOT NULL,
    id         TEXT NOT NULL,
    key        TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    usage      TEXT NOT NULL,       -- what it has used up
    open       TEXT NOT NULL,       -- the rows in the log of its prompts that wait or run
    doc        TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;

-- Entries, prompts and events of a session are one log, so that an ordinary turn writes to the
-- end of the log and to the row of its thread, and to no other page. Session and place are both
-- in a row's number, so that rows are in order without an index, and a full page stays as it is.
CREATE TABLE engine_log (
    number   INTEGER PRIMARY KEY,   -- the session's number << 36, and the place in its log
    kind     TEXT NOT NULL,         -- entry, prompt, removed_prompt or events
    sequence INTEGER NOT NULL,      -- the number of the session's last event up to here
    named    INTEGER NOT NULL,      -- whether its id is in engine_ids
    prompt   INTEGER,               -- the last row up to here that is a prompt, or was one
    thread   INTEGER,               -- of an entry or a prompt
    parent   INTEGER,               -- an entry's; always a lower number, so a path cannot run in a circle
    id       TEXT,                  -- of an entry or a prompt
    asked    BLOB,                  -- the hash of what a prompt asked, whatever its status
    told     TEXT,                  -- all events of a commit, as a list: with its last entry, or alone
    doc      TEXT                   -- of an entry or a prompt
) STRICT;

-- Ids that a binary search of the log does not find: within a session the ids of entries are
-- mostly in the order of their creation, and so are those of prompts. From the first on that is
-- not higher than the one before it, all of its kind are listed here.
CREATE TABLE engine_ids (
    session INTEGER NOT NULL,
    id      TEXT NOT NULL,
    kind    TEXT NOT NULL,          -- entry or prompt
    number  INTEGER NOT NULL,       -- the row in the log
    PRIMARY KEY (session, id, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE engine_decision_gates (
    number  INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL,
    prompt  TEXT NOT NULL,
    pending INTEGER NOT NULL,
    doc     TEXT NOT NULL
) STRICT;
CREATE INDEX engine_decision_gates_prompt ON engine_decision_gates (session, prompt);
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

-- A row is a session that a process holds. The epoch is the row's number, which is never given
-- again, not even when the row is gone.
CREATE TABLE engine_leases (
    epoch    INTEGER PRIMARY KEY AUTOINCREMENT,
    session  TEXT NOT NULL UNIQUE,
    host     TEXT NOT NULL,
    process  TEXT NOT NULL,         -- PID:START:BOOT, its PID namespace and the name of its lock
    instance INTEGER NOT NULL       -- which store of that process
) STRICT;

-- Orders to the holder of a session. One stays until the commit that carries it out.
CREATE TABLE engine_inbox (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    id      TEXT NOT NULL,
    doc     TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;

-- The last posts, for processes that listen. Numbers are never given again, so that a listener
-- which has seen one knows what came after it.
CREATE TABLE engine_posts (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    source  TEXT NOT NULL
) STRICT;

-- Keys and passwords for tools. `sealed` is an envelope that only the user's own key opens; its
-- owner and service are no secret.
CREATE TABLE engine_credentials (
    number     INTEGER PRIMARY KEY,
    owner      TEXT NOT NULL,       -- session:ID, user:ID or org:ID
    service    TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    sealed     TEXT NOT NULL,
    UNIQUE (owner, service)
) STRICT;

-- For people who look into the file.
CREATE VIEW engine_entries AS
    SELECT number, number >> 36 AS session, thread, parent, id, doc
    FROM engine_log WHERE kind = 'entry';
CREATE VIEW engine_queue_items AS
    SELECT number, number >> 36 AS session, thread, id, doc ->> '$.status' AS status, asked, doc
    FROM engine_log WHERE kind = 'prompt';
CREATE VIEW engine_events AS
    SELECT number, number >> 36 AS session, sequence, told AS doc
    FROM engine_log WHERE told IS NOT NULL;
