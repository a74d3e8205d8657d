-- Keys and passwords for tools. `sealed` is an envelope, which only the user's own key opens;
-- whose it is and what for is no secret.
CREATE TABLE engine_credentials (
    number     INTEGER PRIMARY KEY,
    owner      TEXT NOT NULL,       -- session:ID, user:ID or org:ID
    service    TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    sealed     TEXT NOT NULL,
    UNIQUE (owner, service)
) STRICT;
