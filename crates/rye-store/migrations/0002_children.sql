-- Whose child a session is, read off its text, so that children are found without looking
-- through all sessions.
ALTER TABLE engine_sessions ADD COLUMN parent TEXT
    GENERATED ALWAYS AS (doc ->> '$.parent.session') VIRTUAL;
CREATE INDEX engine_sessions_parent ON engine_sessions (parent) WHERE parent IS NOT NULL;
