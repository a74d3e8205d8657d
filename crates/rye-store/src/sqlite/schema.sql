-- `doc` is the record itself as JSON; the other columns exist for lookups and updates.
-- `number` is assigned in order of creation, so ordering by it is ordering by creation time.
-- Rows refer to each other by number, which is compact.
-- `doc` is the last column, so that SQLite can read the others without it.

CREATE TABLE engine_sessions (
    number   INTEGER PRIMARY KEY,
    id       TEXT NOT NULL UNIQUE,
    user_id  TEXT,
    identity TEXT NOT NULL,         -- the immutable fields, to detect a different session with the same id
    usage    TEXT NOT NULL,         -- usage outside of threads; `usage` in `doc` may be outdated
    doc      TEXT NOT NULL,
    -- The parent session, to find child sessions without reading all sessions.
    parent   TEXT GENERATED ALWAYS AS (doc ->> '$.parent.session') VIRTUAL
) STRICT;
CREATE INDEX engine_sessions_user ON engine_sessions (user_id);
CREATE INDEX engine_sessions_parent ON engine_sessions (parent) WHERE parent IS NOT NULL;

-- Nearly every commit writes a thread's row, so it has few columns.
CREATE TABLE engine_threads (
    number       INTEGER PRIMARY KEY,
    session      INTEGER NOT NULL,
    id           TEXT NOT NULL,
    key          TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    usage        TEXT NOT NULL,
    open_prompts TEXT NOT NULL,     -- rows in engine_log of its waiting and running prompts, as a JSON array
    doc          TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;
-- Threads with waiting or running prompts, to find those that no process runs.
CREATE INDEX engine_threads_open ON engine_threads (session) WHERE open_prompts <> '[]';

-- Entries, prompts and events of a session form one log, so that an ordinary turn writes only to
-- the end of the log and to its thread's row. The row number contains the session and the
-- position, so that the order needs no index and full pages are not modified.
CREATE TABLE engine_log (
    number       INTEGER PRIMARY KEY, -- session number << 36 | position in the session's log
    kind         TEXT NOT NULL,       -- entry, prompt, removed_prompt or events
    sequence     INTEGER NOT NULL,    -- sequence number of the session's last event up to this row
    indexed      INTEGER NOT NULL,    -- whether the id is in engine_ids
    last_prompt  INTEGER,             -- the last row up to this one that is or was a prompt
    thread       INTEGER,             -- of an entry or a prompt
    parent       INTEGER,             -- of an entry; always a lower number, so that paths have no cycles
    id           TEXT,                -- of an entry or a prompt
    content_hash BLOB,                -- of a prompt: identifies the same prompt if it is sent again
    events       TEXT,                -- all events of a commit as a JSON array, in the row of its last entry
                                      -- or in a row of their own
    doc          TEXT                 -- of an entry or a prompt
) STRICT;

-- Ids that a binary search of the log does not find. Within a session, entries usually have
-- ascending ids, and so do prompts. From the first id that is not higher than its predecessor,
-- all further ids of that kind are listed here.
CREATE TABLE engine_ids (
    session INTEGER NOT NULL,
    id      TEXT NOT NULL,
    kind    TEXT NOT NULL,          -- entry or prompt
    number  INTEGER NOT NULL,       -- the row in engine_log
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
CREATE INDEX engine_decision_gates_deadline ON engine_decision_gates (doc ->> '$.expires_at')
    WHERE pending = 1;

CREATE TABLE engine_decision_gate_refs (
    number  INTEGER PRIMARY KEY,
    gate    INTEGER NOT NULL,
    channel TEXT NOT NULL,
    message TEXT NOT NULL,
    UNIQUE (gate, channel, message)
) STRICT;

-- One row per session that a process holds. AUTOINCREMENT never reuses an epoch.
CREATE TABLE engine_leases (
    epoch    INTEGER PRIMARY KEY AUTOINCREMENT,
    session  TEXT NOT NULL UNIQUE,
    host     TEXT NOT NULL,
    process  TEXT NOT NULL,         -- PID:START:BOOT, PID namespace and name of the lock file
    instance INTEGER NOT NULL       -- distinguishes several stores in one process
) STRICT;

-- Commands to the holder of a session. The commit that carries a command out deletes it.
CREATE TABLE engine_inbox (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    id      TEXT NOT NULL,
    doc     TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;

-- The most recent posts and claims, for listening processes. AUTOINCREMENT never reuses a number, so that a
-- listener can ask for posts after the last one it read.
CREATE TABLE engine_posts (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    source  TEXT NOT NULL
) STRICT;

-- Credentials for tools. The envelope is encrypted to the user's key; owner and service are not
-- secret.
CREATE TABLE engine_credentials (
    number     INTEGER PRIMARY KEY,
    owner      TEXT NOT NULL,       -- session:ID, user:ID or org:ID
    service    TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    envelope   TEXT NOT NULL,
    UNIQUE (owner, service)
) STRICT;

-- Access tokens of the HTTP server, login links and cookies. Their secrets have 256 random bits, so
-- a plain SHA-256 hash does not reveal them.
CREATE TABLE engine_access_tokens (
    number      INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    secret_hash TEXT NOT NULL UNIQUE,
    expires_at  INTEGER,
    doc         TEXT NOT NULL
) STRICT;

-- Schedules, webhooks, hooks and the like. Each write of a document assigns a new version;
-- AUTOINCREMENT never reuses one.
CREATE TABLE engine_documents (
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    kind    TEXT NOT NULL,
    id      TEXT NOT NULL,
    due_at  INTEGER,
    doc     TEXT NOT NULL,
    UNIQUE (kind, id)
) STRICT;
CREATE INDEX engine_documents_due ON engine_documents (kind, due_at) WHERE due_at IS NOT NULL;

-- Views of the log, for people who inspect the file.
CREATE VIEW engine_entries AS
    SELECT number, number >> 36 AS session, thread, parent, id, doc
    FROM engine_log WHERE kind = 'entry';
CREATE VIEW engine_queue_items AS
    SELECT number, number >> 36 AS session, thread, id, doc ->> '$.status' AS status,
        content_hash, doc
    FROM engine_log WHERE kind = 'prompt';
CREATE VIEW engine_events AS
    SELECT number, number >> 36 AS session, sequence, events AS doc
    FROM engine_log WHERE events IS NOT NULL;
