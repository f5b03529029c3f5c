-- Personal tokens of the API. The token itself is not stored.

CREATE TABLE tokens (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    digest     BLOB    NOT NULL UNIQUE, -- SHA-256 of the token
    hint       TEXT    NOT NULL,        -- its last four characters
    name       TEXT    NOT NULL,
    forge      TEXT,                    -- none for the operator of the machine
    account_id BIGINT,
    login      TEXT    NOT NULL,
    kind       TEXT    NOT NULL,        -- user, bot
    operator   INTEGER NOT NULL,
    scope      TEXT    NOT NULL,        -- read, write
    created_at BIGINT  NOT NULL,
    expires_at BIGINT  NOT NULL,
    used_at    BIGINT,                  -- to the minute
    revoked_at BIGINT
);
CREATE INDEX tokens_by_account ON tokens (forge, account_id, id);
