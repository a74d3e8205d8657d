-- `doc` is the record itself as JSON text, exactly as the engine wrote it; the other columns exist
-- for lookups and conditions. Times in bigint columns are milliseconds since 1970.
--
-- Hosts of the previous version use the same database: a function that changes gets a new name, and
-- a column is removed one version after its last use.

CREATE SEQUENCE rye.epochs;
-- Raised by each commit and each post, so that a host without notifications can tell that there
-- was one.
CREATE SEQUENCE rye.changes;

-- The processes that have the store open.
CREATE TABLE rye.hosts (
    instance bigint PRIMARY KEY,    -- random; also the key of the advisory lock that the host holds
    name     text NOT NULL,         -- of the machine
    process  text NOT NULL,         -- PID:START:BOOT
    version  text NOT NULL,         -- of Rye
    address  text,                  -- where the other hosts reach it
    slots    integer,               -- how many sessions it runs at once; null if it takes no work
    draining boolean NOT NULL DEFAULT false,
    started  timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen     timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- The holder of each session, and the counters of its log. Every commit and every post updates the
-- row first, so its lock orders them.
CREATE TABLE rye.leases (
    session         text PRIMARY KEY,
    number          bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- ascending in order of creation
    epoch           bigint NOT NULL DEFAULT 0,
    instance        bigint,         -- of the holder; null if there is none
    request         bigint,         -- the claim, to recognise it if its answer is lost
    commit          bigint NOT NULL DEFAULT 0, -- number of commits under this epoch
    commit_sequence bigint NOT NULL DEFAULT 0, -- sequence number of the last event at the last commit
    takeovers       integer NOT NULL DEFAULT 0, -- from dead holders, since the last commit
    position        bigint NOT NULL DEFAULT 0, -- of the last entry or prompt
    sequence        bigint NOT NULL DEFAULT 0, -- of the last event
    usage           numeric[] NOT NULL DEFAULT '{}',
    posts           bigint NOT NULL DEFAULT 0, -- number of posts, claims and releases
    touched         timestamptz NOT NULL DEFAULT clock_timestamp(), -- the last one
    due_at          bigint          -- when the session has something to do; maintained while nobody
                                    -- holds it
) WITH (fillfactor = 50);
CREATE INDEX leases_instance ON rye.leases (instance) WHERE instance IS NOT NULL;
CREATE INDEX leases_due ON rye.leases (due_at) WHERE instance IS NULL AND due_at IS NOT NULL;

CREATE TABLE rye.sessions (
    number   bigint PRIMARY KEY,    -- that of the lease
    id       text NOT NULL UNIQUE,
    user_id  text,
    parent   text,
    status   text NOT NULL,
    is_run   boolean NOT NULL,      -- whether a graph or a single call drives it
    identity text NOT NULL,         -- the immutable fields, to detect a different session with the same id
    doc      text NOT NULL          -- `usage` in it is outdated
) WITH (fillfactor = 80);
CREATE INDEX sessions_user ON rye.sessions (user_id, number) WHERE user_id IS NOT NULL;
CREATE INDEX sessions_parent ON rye.sessions (parent, number) WHERE parent IS NOT NULL;

CREATE TABLE rye.threads (
    session    bigint NOT NULL,
    id         text NOT NULL,
    number     bigint GENERATED ALWAYS AS IDENTITY,
    key        text NOT NULL,
    created_at bigint NOT NULL,
    status     text NOT NULL,
    doc        text NOT NULL,
    PRIMARY KEY (session, id),
    UNIQUE (session, key)
) WITH (fillfactor = 50);

CREATE TABLE rye.entries (
    session  bigint NOT NULL,
    position bigint NOT NULL,
    id       text NOT NULL,
    thread   text NOT NULL,
    parent   bigint,                -- position of the parent, always a lower one
    doc      text NOT NULL,
    PRIMARY KEY (session, position),
    UNIQUE (session, id)
);

CREATE TABLE rye.prompts (
    session  bigint NOT NULL,
    id       text NOT NULL,
    position bigint NOT NULL,
    thread   text NOT NULL,
    open     boolean NOT NULL,      -- waiting or running
    hash     bytea NOT NULL,        -- identifies the same prompt if it is sent again
    doc      text NOT NULL,
    PRIMARY KEY (session, id)
) WITH (fillfactor = 80);
CREATE INDEX prompts_open ON rye.prompts (session, position) WHERE open;

-- One row for all events of a commit or a post.
CREATE TABLE rye.events (
    session  bigint NOT NULL,
    sequence bigint NOT NULL,       -- of the last event in the row
    doc      text NOT NULL,         -- JSON array
    PRIMARY KEY (session, sequence)
);

CREATE TABLE rye.gates (
    id         text PRIMARY KEY,
    number     bigint GENERATED ALWAYS AS IDENTITY,
    session    bigint NOT NULL,
    thread     text NOT NULL,
    prompt     text NOT NULL,
    origin     text NOT NULL,
    pending    boolean NOT NULL,
    expires_at bigint,
    doc        text NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX gates_prompt ON rye.gates (session, prompt);
CREATE INDEX gates_pending ON rye.gates (session) WHERE pending;

CREATE TABLE rye.gate_refs (
    gate    text NOT NULL,
    channel text NOT NULL,
    message text NOT NULL,
    number  bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (gate, channel, message)
);

-- Commands to the holder of a session. The commit that carries a command out deletes it.
CREATE TABLE rye.inbox (
    session bigint NOT NULL,
    id      text NOT NULL,
    number  bigint GENERATED ALWAYS AS IDENTITY,
    doc     text NOT NULL,
    PRIMARY KEY (session, id)
);

-- Schedules, webhooks and budgets. Ids are compared byte by byte.
CREATE SEQUENCE rye.document_versions;
CREATE TABLE rye.documents (
    kind    text NOT NULL,
    id      text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    due_at  bigint,
    doc     text NOT NULL,
    PRIMARY KEY (kind, id)
) WITH (fillfactor = 80);
CREATE INDEX documents_due ON rye.documents (kind, due_at) WHERE due_at IS NOT NULL;

-- Data that is too long for the record, under its SHA-256.
CREATE TABLE rye.blobs (
    hash   bytea PRIMARY KEY,
    bytes  bytea NOT NULL,
    stored timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX blobs_stored ON rye.blobs (stored);

-- Credentials for tools. The envelope is encrypted to the user's key; owner and service are not
-- secret.
CREATE TABLE rye.credentials (
    owner    text COLLATE "C" NOT NULL, -- session:ID, user:ID or org:ID
    service  text COLLATE "C" NOT NULL,
    envelope text NOT NULL,
    updated  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner, service)
);

-- Errors that the functions below raise: RY001 fenced, RY002 not found, RY003 conflict,
-- RY004 gate closed, RY005 an entry with this id exists and may differ. TABLE names the kind of the
-- object and DETAIL its id.
CREATE FUNCTION rye.fail(p_code text, p_kind text, p_id text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = p_code, MESSAGE = p_kind || ' ' || p_id, TABLE = p_kind, DETAIL = p_id;
END $$;

-- Adds usage, field by field. The sums stop at the largest 64-bit number.
CREATE FUNCTION rye.add_usage(p_a numeric[], p_b numeric[]) RETURNS numeric[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(least(coalesce(a, 0) + coalesce(b, 0), 18446744073709551615) ORDER BY n)
    FROM unnest(p_a, p_b) WITH ORDINALITY AS fields (a, b, n)
$$;

-- Whether a host is dead: its lock is free and it was not seen for 3 s, or it was not seen for
-- 15 s. After a restart of the database, hosts have 15 s to come back.
CREATE FUNCTION rye.is_dead(p_instance bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_seen timestamptz;
    v_now timestamptz := clock_timestamp();
BEGIN
    SELECT seen INTO v_seen FROM rye.hosts WHERE instance = p_instance;
    IF NOT FOUND THEN
        RETURN true;
    ELSIF v_seen > v_now - interval '3 s' THEN
        RETURN false;
    ELSIF v_seen < pg_postmaster_start_time() AND pg_postmaster_start_time() > v_now - interval '15 s' THEN
        RETURN false;
    ELSIF v_seen <= v_now - interval '15 s' THEN
        RETURN true;
    END IF;
    RETURN pg_try_advisory_xact_lock_shared(p_instance);
END $$;

-- The time at which a session has something to do; null if never.
-- Volatile, so that it sees what was committed while its caller waited for the lease.
CREATE FUNCTION rye.due_at(p_number bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN s.status IN ('terminated', 'error') OR s.is_run THEN NULL
        WHEN EXISTS (SELECT FROM rye.inbox i WHERE i.session = s.number) THEN 0
        WHEN s.status = 'running' AND EXISTS (
            SELECT FROM rye.prompts p JOIN rye.threads t ON t.session = p.session AND t.id = p.thread
            WHERE p.session = s.number AND p.open AND t.status = 'active' AND NOT EXISTS (
                SELECT FROM rye.gates g
                WHERE g.session = s.number AND g.pending AND g.thread = t.id)) THEN 0
        ELSE (SELECT min(g.expires_at) FROM rye.gates g WHERE g.session = s.number AND g.pending)
    END
    FROM rye.sessions s WHERE s.number = p_number
$$;

-- Claims a session. Without an epoch in the result, `holder` has it.
CREATE FUNCTION rye.claim(
    p_session text, p_instance bigint, p_request bigint, p_take_over boolean, p_judges boolean,
    OUT epoch bigint, OUT is_stored boolean, OUT takeovers integer, OUT holder bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_lease rye.leases;
BEGIN
    LOOP
        SELECT l.* INTO v_lease FROM rye.leases l WHERE l.session = p_session FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO rye.leases (session) VALUES (p_session) ON CONFLICT DO NOTHING;
    END LOOP;
    is_stored := v_lease.position > 0;
    takeovers := v_lease.takeovers;
    IF v_lease.instance = p_instance AND v_lease.request = p_request THEN
        epoch := v_lease.epoch;
        RETURN;
    END IF;
    IF v_lease.instance IS NOT NULL THEN
        IF NOT p_take_over AND (v_lease.instance = p_instance OR NOT p_judges
            OR NOT rye.is_dead(v_lease.instance)) THEN
            holder := v_lease.instance;
            RETURN;
        END IF;
        IF NOT p_take_over THEN
            takeovers := takeovers + 1;
        END IF;
    END IF;
    epoch := nextval('rye.epochs');
    UPDATE rye.leases l
    SET epoch = claim.epoch, instance = p_instance, request = p_request, commit = 0,
        takeovers = claim.takeovers, posts = l.posts + 1, touched = clock_timestamp()
    WHERE l.session = p_session;
END $$;

-- Releases the leases of a host: the given one, or all.
CREATE FUNCTION rye.release(p_instance bigint, p_session text, p_epoch bigint) RETURNS SETOF text
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM rye.leases l
    WHERE l.instance = p_instance AND (p_session IS NULL OR l.session = p_session AND l.epoch = p_epoch)
    ORDER BY l.session FOR UPDATE;
    DELETE FROM rye.leases l
    WHERE l.instance = p_instance AND (p_session IS NULL OR l.session = p_session AND l.epoch = p_epoch)
    AND l.position = 0;
    RETURN QUERY UPDATE rye.leases l
    SET instance = NULL, due_at = rye.due_at(l.number), posts = l.posts + 1, touched = clock_timestamp()
    WHERE l.instance = p_instance AND (p_session IS NULL OR l.session = p_session AND l.epoch = p_epoch)
    RETURNING l.session;
END $$;

-- Commits a batch and returns the sequence number of the session's last event. The operations come
-- as columns; what `a` to `e` mean depends on the kind.
CREATE FUNCTION rye.commit(
    p_session text, p_epoch bigint, p_instance bigint, p_commit bigint,
    p_kinds smallint[], p_ids text[], p_a text[], p_b text[], p_c text[], p_d text[], p_e text[],
    p_flags boolean[], p_times bigint[], p_hashes bytea[], p_docs text[],
    p_usage text[], p_events text, p_event_count bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_number bigint;
    v_base bigint;
    v_sequence bigint;
    v_exists boolean;
    v_thread text;
    v_entry text;
    v_position bigint;
    v_parent bigint;
    v_gate rye.gates;
    v_op record;
BEGIN
    UPDATE rye.leases l
    SET commit = p_commit, takeovers = 0, position = l.position + cardinality(p_kinds),
        sequence = l.sequence + p_event_count, commit_sequence = l.sequence + p_event_count,
        usage = CASE WHEN p_usage IS NULL THEN l.usage ELSE rye.add_usage(l.usage, p_usage::numeric[]) END
    WHERE l.session = p_session AND l.epoch = p_epoch AND l.instance = p_instance
    AND l.commit = p_commit - 1
    RETURNING l.number, l.position - cardinality(p_kinds), l.sequence INTO v_number, v_base, v_sequence;
    IF NOT FOUND THEN
        -- The commit may have been applied before, and the answer was lost.
        SELECT l.commit_sequence INTO v_sequence FROM rye.leases l
        WHERE l.session = p_session AND l.epoch = p_epoch AND l.instance = p_instance
        AND l.commit = p_commit;
        IF NOT FOUND THEN
            PERFORM rye.fail('RY001', 'session', p_session);
        END IF;
        RETURN v_sequence;
    END IF;
    PERFORM nextval('rye.changes');
    v_exists := v_base > 0;
    FOR v_op IN
        SELECT * FROM unnest(p_kinds, p_ids, p_a, p_b, p_c, p_d, p_e, p_flags, p_times, p_hashes, p_docs)
        WITH ORDINALITY AS ops (kind, id, a, b, c, d, e, flag, at, hash, doc, n)
    LOOP
        IF v_op.kind = 11 THEN -- an object of another session
            PERFORM rye.fail('RY001', 'session', v_op.id);
        END IF;
        IF v_op.kind = 1 THEN -- PutSession: user, parent, status, identity, usage
            INSERT INTO rye.sessions AS s (number, id, user_id, parent, status, is_run, identity, doc)
            VALUES (v_number, v_op.id, v_op.a, v_op.b, v_op.c, v_op.flag, v_op.d, v_op.doc)
            ON CONFLICT (number) DO UPDATE
            SET status = excluded.status, is_run = excluded.is_run, doc = excluded.doc
            WHERE s.identity = excluded.identity;
            IF NOT FOUND THEN
                PERFORM rye.fail('RY003', 'session', v_op.id);
            END IF;
            IF NOT v_exists THEN
                v_exists := true;
                UPDATE rye.leases l SET usage = rye.add_usage(l.usage, v_op.e::numeric[])
                WHERE l.session = p_session;
            END IF;
            CONTINUE;
        END IF;
        IF NOT v_exists THEN
            PERFORM rye.fail('RY002', 'session', p_session);
        END IF;
        IF v_op.kind IN (3, 5) AND v_op.a IS DISTINCT FROM v_thread THEN
            PERFORM FROM rye.threads t WHERE t.session = v_number AND t.id = v_op.a;
            IF NOT FOUND THEN
                PERFORM rye.fail('RY002', 'thread', v_op.a);
            END IF;
            v_thread := v_op.a;
        END IF;
        CASE v_op.kind
        WHEN 2 THEN -- PutThread: key, status; created at
            UPDATE rye.threads t SET status = v_op.b, doc = v_op.doc
            WHERE t.session = v_number AND t.id = v_op.id AND t.key = v_op.a AND t.created_at = v_op.at;
            IF NOT FOUND THEN
                IF EXISTS (SELECT FROM rye.threads t WHERE t.session = v_number AND t.id = v_op.id) THEN
                    PERFORM rye.fail('RY003', 'thread', v_op.id);
                END IF;
                INSERT INTO rye.threads (session, id, key, created_at, status, doc)
                VALUES (v_number, v_op.id, v_op.a, v_op.at, v_op.b, v_op.doc)
                ON CONFLICT (session, key) DO NOTHING;
                IF NOT FOUND THEN
                    PERFORM rye.fail('RY003', 'thread', v_op.a);
                END IF;
            END IF;
        WHEN 3 THEN -- AppendEntry: thread, parent
            v_parent := NULL;
            IF v_op.b = v_entry THEN
                v_parent := v_position;
            ELSIF v_op.b IS NOT NULL THEN
                SELECT e.position INTO v_parent FROM rye.entries e
                WHERE e.session = v_number AND e.id = v_op.b;
                IF NOT FOUND THEN
                    PERFORM rye.fail('RY002', 'entry', v_op.b);
                END IF;
            END IF;
            INSERT INTO rye.entries (session, position, id, thread, parent, doc)
            VALUES (v_number, v_base + v_op.n, v_op.id, v_op.a, v_parent, v_op.doc)
            ON CONFLICT (session, id) DO NOTHING;
            IF FOUND THEN
                v_entry := v_op.id;
                v_position := v_base + v_op.n;
            ELSIF NOT EXISTS (SELECT FROM rye.entries e
                WHERE e.session = v_number AND e.id = v_op.id AND e.doc = v_op.doc) THEN
                PERFORM rye.fail('RY005', 'entry', v_op.id);
            END IF;
        WHEN 4 THEN -- ReplaceEntry: thread, parent
            SELECT e.position INTO v_position FROM rye.entries e
            WHERE e.session = v_number AND e.id = v_op.id;
            IF NOT FOUND THEN
                PERFORM rye.fail('RY002', 'entry', v_op.id);
            END IF;
            UPDATE rye.entries e SET doc = v_op.doc
            WHERE e.session = v_number AND e.position = v_position AND e.thread = v_op.a
            AND CASE WHEN v_op.b IS NULL THEN e.parent IS NULL ELSE e.parent = (
                SELECT p.position FROM rye.entries p
                WHERE p.session = v_number AND p.id = v_op.b) END;
            IF NOT FOUND THEN
                PERFORM rye.fail('RY003', 'entry', v_op.id);
            END IF;
            v_entry := NULL;
        WHEN 5 THEN -- PutPrompt: thread; whether it is open
            INSERT INTO rye.prompts AS p (session, id, position, thread, open, hash, doc)
            VALUES (v_number, v_op.id, v_base + v_op.n, v_op.a, v_op.flag, v_op.hash, v_op.doc)
            ON CONFLICT (session, id) DO UPDATE SET open = excluded.open, doc = excluded.doc
            WHERE p.thread = excluded.thread;
            IF NOT FOUND THEN
                PERFORM rye.fail('RY003', 'prompt', v_op.id);
            END IF;
        WHEN 6 THEN -- RemovePrompt
            DELETE FROM rye.prompts p WHERE p.session = v_number AND p.id = v_op.id;
        WHEN 7 THEN -- PutGate: thread, prompt, origin; whether it is pending, deadline
            UPDATE rye.gates g SET pending = v_op.flag, expires_at = v_op.at, doc = v_op.doc
            WHERE g.id = v_op.id AND g.session = v_number AND g.origin = v_op.c AND g.pending;
            IF NOT FOUND THEN
                SELECT g.* INTO v_gate FROM rye.gates g WHERE g.id = v_op.id;
                IF NOT FOUND THEN
                    PERFORM FROM rye.threads t WHERE t.session = v_number AND t.id = v_op.a;
                    IF NOT FOUND THEN
                        PERFORM rye.fail('RY002', 'thread', v_op.a);
                    END IF;
                    INSERT INTO rye.gates (id, session, thread, prompt, origin, pending, expires_at, doc)
                    VALUES (v_op.id, v_number, v_op.a, v_op.b, v_op.c, v_op.flag, v_op.at, v_op.doc);
                ELSIF v_gate.session <> v_number OR v_gate.origin <> v_op.c THEN
                    PERFORM rye.fail('RY003', 'gate', v_op.id);
                ELSE
                    PERFORM rye.fail('RY004', 'gate', v_op.id);
                END IF;
            END IF;
        WHEN 8 THEN -- PutGateRef: channel, message
            PERFORM FROM rye.gates g WHERE g.id = v_op.id AND g.session = v_number;
            IF NOT FOUND THEN
                PERFORM rye.fail('RY002', 'gate', v_op.id);
            END IF;
            INSERT INTO rye.gate_refs (gate, channel, message) VALUES (v_op.id, v_op.a, v_op.b)
            ON CONFLICT DO NOTHING;
        WHEN 9 THEN -- CompleteCommand
            DELETE FROM rye.inbox i WHERE i.session = v_number AND i.id = v_op.id;
        ELSE -- usage or an event, which are written once for all
            NULL;
        END CASE;
    END LOOP;
    IF p_event_count > 0 THEN
        INSERT INTO rye.events (session, sequence, doc) VALUES (v_number, v_sequence, p_events);
    END IF;
    RETURN v_sequence;
END $$;

-- Locks a session for a post and returns its number.
CREATE FUNCTION rye.lock_for_post(p_session text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_number bigint;
BEGIN
    SELECT l.number INTO v_number FROM rye.leases l
    WHERE l.session = p_session AND l.position > 0 FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM rye.fail('RY002', 'session', p_session);
    END IF;
    RETURN v_number;
END $$;

-- Ends a post that changed something: counts it, stores its events, makes the session due, and
-- tells the holder.
CREATE FUNCTION rye.finish_post(p_session text, p_number bigint, p_events text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_sequence bigint;
BEGIN
    UPDATE rye.leases l
    SET position = l.position + 1, posts = l.posts + 1, touched = clock_timestamp(),
        sequence = l.sequence + CASE WHEN p_events IS NULL THEN 0 ELSE 1 END,
        due_at = CASE WHEN l.instance IS NULL THEN rye.due_at(p_number) ELSE l.due_at END
    WHERE l.session = p_session RETURNING l.sequence INTO v_sequence;
    IF p_events IS NOT NULL THEN
        INSERT INTO rye.events (session, sequence, doc) VALUES (p_number, v_sequence, p_events);
    END IF;
    PERFORM nextval('rye.changes');
    PERFORM pg_notify('rye_posts', p_session);
END $$;

-- Posts a prompt, and creates its thread if `p_key` is set and no thread has this key. Returns
-- `written`, `duplicate` or `conflict`, or the id of another thread that has the key.
CREATE FUNCTION rye.post_prompt(
    p_session text, p_id text, p_thread text, p_open boolean, p_hash bytea, p_doc text,
    p_key text, p_created_at bigint, p_status text, p_thread_doc text, p_events text,
    OUT outcome text, OUT thread text)
LANGUAGE plpgsql AS $$
DECLARE
    v_number bigint := rye.lock_for_post(p_session);
    v_position bigint;
    v_hash bytea;
    v_is_new boolean := false;
BEGIN
    IF p_key IS NOT NULL THEN
        SELECT t.id INTO thread FROM rye.threads t WHERE t.session = v_number AND t.key = p_key;
        v_is_new := NOT FOUND;
        IF thread <> p_thread THEN
            outcome := 'thread';
            RETURN;
        END IF;
    END IF;
    SELECT p.hash INTO v_hash FROM rye.prompts p WHERE p.session = v_number AND p.id = p_id;
    IF FOUND THEN
        outcome := CASE WHEN v_hash = p_hash THEN 'duplicate' ELSE 'conflict' END;
        RETURN;
    END IF;
    IF v_is_new THEN
        INSERT INTO rye.threads (session, id, key, created_at, status, doc)
        VALUES (v_number, p_thread, p_key, p_created_at, p_status, p_thread_doc);
    ELSE
        PERFORM FROM rye.threads t WHERE t.session = v_number AND t.id = p_thread;
        IF NOT FOUND THEN
            PERFORM rye.fail('RY002', 'thread', p_thread);
        END IF;
    END IF;
    SELECT l.position + 1 INTO v_position FROM rye.leases l WHERE l.session = p_session;
    INSERT INTO rye.prompts (session, id, position, thread, open, hash, doc)
    VALUES (v_number, p_id, v_position, p_thread, p_open, p_hash, p_doc);
    PERFORM rye.finish_post(p_session, v_number, CASE WHEN v_is_new THEN p_events END);
    outcome := 'written';
END $$;

-- Closes a gate if it is still as the caller has read it.
CREATE FUNCTION rye.close_gate(
    p_session text, p_gate text, p_before text, p_doc text, p_events text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_number bigint := rye.lock_for_post(p_session);
BEGIN
    UPDATE rye.gates g SET pending = false, doc = p_doc
    WHERE g.id = p_gate AND g.session = v_number AND g.pending AND g.doc = p_before;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM rye.finish_post(p_session, v_number, p_events);
    RETURN true;
END $$;

-- Posts a command. Returns false if it was posted before.
CREATE FUNCTION rye.post_command(p_session text, p_id text, p_thread text, p_doc text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_number bigint := rye.lock_for_post(p_session);
BEGIN
    IF p_thread IS NOT NULL THEN
        PERFORM FROM rye.threads t WHERE t.session = v_number AND t.id = p_thread;
        IF NOT FOUND THEN
            PERFORM rye.fail('RY002', 'thread', p_thread);
        END IF;
    END IF;
    INSERT INTO rye.inbox (session, id, doc) VALUES (v_number, p_id, p_doc) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM rye.finish_post(p_session, v_number, NULL);
    RETURN true;
END $$;

-- Deletes sessions with everything that belongs to them, including their leases.
CREATE FUNCTION rye.remove(p_sessions text[], p_epochs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_lease record;
    v_number bigint;
BEGIN
    -- In one order for all callers, so that two of them cannot block each other.
    FOR v_lease IN
        SELECT * FROM unnest(p_sessions, p_epochs) AS leases (session, epoch) ORDER BY session
    LOOP
        DELETE FROM rye.leases l
        WHERE l.session = v_lease.session AND l.epoch = v_lease.epoch AND l.instance IS NOT NULL
        RETURNING l.number INTO v_number;
        IF NOT FOUND THEN
            PERFORM rye.fail('RY001', 'session', v_lease.session);
        END IF;
        DELETE FROM rye.gate_refs r USING rye.gates g WHERE g.session = v_number AND r.gate = g.id;
        DELETE FROM rye.gates WHERE session = v_number;
        DELETE FROM rye.inbox WHERE session = v_number;
        DELETE FROM rye.events WHERE session = v_number;
        DELETE FROM rye.prompts WHERE session = v_number;
        DELETE FROM rye.entries WHERE session = v_number;
        DELETE FROM rye.threads WHERE session = v_number;
        DELETE FROM rye.sessions WHERE number = v_number;
    END LOOP;
END $$;

-- The holders of leases that are not dead. Each holder is examined once.
CREATE FUNCTION rye.living_holders(p_judges boolean) RETURNS SETOF bigint
LANGUAGE sql AS $$
    WITH RECURSIVE holders (instance) AS (
        (SELECT min(l.instance) FROM rye.leases l)
        UNION ALL
        SELECT (SELECT min(l.instance) FROM rye.leases l WHERE l.instance > h.instance)
        FROM holders h WHERE h.instance IS NOT NULL
    )
    SELECT h.instance FROM holders h
    WHERE h.instance IS NOT NULL AND NOT (p_judges AND rye.is_dead(h.instance))
$$;

-- Sessions without a living holder that have something to do at a time.
CREATE FUNCTION rye.due(p_before bigint, p_judges boolean) RETURNS SETOF text
LANGUAGE sql AS $$
    WITH RECURSIVE holders (instance) AS (
        (SELECT min(l.instance) FROM rye.leases l)
        UNION ALL
        SELECT (SELECT min(l.instance) FROM rye.leases l WHERE l.instance > h.instance)
        FROM holders h WHERE h.instance IS NOT NULL
    ), dead AS MATERIALIZED (
        SELECT h.instance FROM holders h
        WHERE h.instance IS NOT NULL AND p_judges AND rye.is_dead(h.instance)
    ), due AS (
        SELECT l.number, l.session FROM rye.leases l
        WHERE l.instance IS NULL AND l.due_at <= p_before
        UNION ALL
        SELECT l.number, l.session FROM dead JOIN rye.leases l ON l.instance = dead.instance
        WHERE rye.due_at(l.number) <= p_before
    )
    SELECT due.session FROM due ORDER BY due.number
$$;

-- Writes documents, all or none: fails with RY003 if one does not have the expected version. A write
-- without an expected version creates a document, one without a document removes it.
CREATE FUNCTION rye.write_documents(
    p_kinds text[], p_ids text[], p_versions bigint[], p_due_times bigint[], p_docs text[])
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_write record;
BEGIN
    -- In one order for all callers, so that two of them cannot block each other.
    FOR v_write IN
        SELECT * FROM unnest(p_kinds, p_ids, p_versions, p_due_times, p_docs)
        AS writes (kind, id, version, due_at, doc) ORDER BY kind, id COLLATE "C"
    LOOP
        IF v_write.version IS NULL AND v_write.doc IS NULL THEN
            PERFORM FROM rye.documents d WHERE d.kind = v_write.kind AND d.id = v_write.id;
            IF FOUND THEN
                PERFORM rye.fail('RY003', 'document', v_write.id);
            END IF;
            CONTINUE;
        ELSIF v_write.version IS NULL THEN
            INSERT INTO rye.documents (kind, id, version, due_at, doc)
            VALUES (v_write.kind, v_write.id, nextval('rye.document_versions'), v_write.due_at, v_write.doc)
            ON CONFLICT DO NOTHING;
        ELSIF v_write.doc IS NULL THEN
            DELETE FROM rye.documents d
            WHERE d.kind = v_write.kind AND d.id = v_write.id AND d.version = v_write.version;
        ELSE
            UPDATE rye.documents d
            SET version = nextval('rye.document_versions'), due_at = v_write.due_at, doc = v_write.doc
            WHERE d.kind = v_write.kind AND d.id = v_write.id AND d.version = v_write.version;
        END IF;
        IF NOT FOUND THEN
            PERFORM rye.fail('RY003', 'document', v_write.id);
        END IF;
    END LOOP;
    RETURN true;
END $$;
