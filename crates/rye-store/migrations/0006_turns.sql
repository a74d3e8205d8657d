-- An ordinary turn writes to the end of the log and to the row of its thread, and to nothing
-- else: what is found without an index is in none.

-- Of which rows the ids are named, and where the last prompt is. Within a session the ids of
-- entries are in the order of their making, most often, and so are those of prompts: from the
-- first on that is not higher than the one before it, all of its kind are named.
CREATE TABLE engine_found (
    number INTEGER PRIMARY KEY,
    named  INTEGER NOT NULL,
    prompt INTEGER
) STRICT;
INSERT INTO engine_found
    SELECT number,
           coalesce(max(late) OVER (PARTITION BY number >> 36, kind ORDER BY number), 0),
           max(prompt) OVER (PARTITION BY number >> 36 ORDER BY number)
    FROM (SELECT number, kind, CASE kind WHEN 'item' THEN number END AS prompt,
                 id <= lag(id) OVER (PARTITION BY number >> 36, kind ORDER BY number) AS late
          FROM engine_log);

CREATE TABLE engine_log_6 (
    number   INTEGER PRIMARY KEY,   -- the session's number << 36, and the place in its log
    kind     TEXT NOT NULL,         -- entry; item, which is a prompt; gone, which was one; or events
    sequence INTEGER NOT NULL,      -- the number of the session's last event up to here
    named    INTEGER NOT NULL,      -- whether its id is in engine_ids
    prompt   INTEGER,               -- the last row up to here that is a prompt, or was one
    thread   INTEGER,               -- of an entry or a prompt
    parent   INTEGER,               -- an entry's; always a lower number, so a path cannot run in a circle
    id       TEXT,                  -- of an entry or a prompt
    asked    BLOB,                  -- the hash of what a prompt asked, whatever became of it
    told     TEXT,                  -- a list of all that a commit tells: with its last entry, or alone
    doc      TEXT                   -- the thing itself, of an entry or a prompt
) STRICT;
INSERT INTO engine_log_6
    SELECT number, kind, sequence, engine_found.named, prompt, thread, parent, id, asked,
           CASE kind WHEN 'events' THEN doc END, CASE kind WHEN 'events' THEN NULL ELSE doc END
    FROM engine_log JOIN engine_found USING (number) ORDER BY number;

-- A thread's row is written by nearly every commit, so it has few columns. Those of its prompts
-- that wait or run are listed in it.
CREATE TABLE engine_threads_6 (
    number     INTEGER PRIMARY KEY,
    session    INTEGER NOT NULL,
    id         TEXT NOT NULL,
    key        TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    usage      TEXT NOT NULL,       -- what it has used up
    open       TEXT NOT NULL,       -- the rows of these prompts in the log
    doc        TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;
INSERT INTO engine_threads_6
    SELECT number, session, id, key, created_at,
           json_object('turns', turns, 'input_tokens', input, 'cached_tokens', cached,
                       'cache_write_tokens', cache_write, 'output_tokens', output,
                       'micro_dollars', spend),
           (SELECT json_group_array(item.number ORDER BY item.number)
            FROM engine_ids JOIN engine_log AS item ON item.number = engine_ids.number
            WHERE engine_ids.session = engine_threads.session AND open = 1
            AND item.thread = engine_threads.number),
           doc
    FROM engine_threads ORDER BY number;

-- What is not found by halving the log.
CREATE TABLE engine_ids_6 (
    session INTEGER NOT NULL,
    id      TEXT NOT NULL,
    kind    TEXT NOT NULL,          -- entry or item
    number  INTEGER NOT NULL,       -- the row in the log
    PRIMARY KEY (session, id, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO engine_ids_6
    SELECT number >> 36, id, kind, number FROM engine_log_6 WHERE named = 1 ORDER BY 1, 2, 3;

DROP VIEW engine_entries;
DROP VIEW engine_queue_items;
DROP VIEW engine_events;
DROP TABLE engine_found;
DROP TABLE engine_log;
DROP TABLE engine_threads;
DROP TABLE engine_ids;
ALTER TABLE engine_log_6 RENAME TO engine_log;
ALTER TABLE engine_threads_6 RENAME TO engine_threads;
ALTER TABLE engine_ids_6 RENAME TO engine_ids;

-- For whoever looks.
CREATE VIEW engine_entries AS
    SELECT number, number >> 36 AS session, thread, parent, id, doc
    FROM engine_log WHERE kind = 'entry';
CREATE VIEW engine_queue_items AS
    SELECT number, number >> 36 AS session, thread, id, doc ->> '$.status' AS status, asked, doc
    FROM engine_log WHERE kind = 'item';
CREATE VIEW engine_events AS
    SELECT number, number >> 36 AS session, sequence, told AS doc
    FROM engine_log WHERE told IS NOT NULL;
