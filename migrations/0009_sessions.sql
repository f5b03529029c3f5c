-- Sessions of people in the dashboard, and logins that were begun. Nothing here lets anybody log in: identifiers are stored as
-- SHA-256 digests in hexadecimal, and tokens of people are never stored.

CREATE TABLE web_sessions (
    id         TEXT   PRIMARY KEY,  -- digest of the cookie
    forge      TEXT,                -- none for the operator's token
    user_id    BIGINT,
    login      TEXT,
    created_at BIGINT NOT NULL,
    used_at    BIGINT NOT NULL
);
CREATE INDEX web_sessions_by_use ON web_sessions (used_at);

CREATE TABLE web_logins (
    state      TEXT   PRIMARY KEY,  -- digest of the parameter `state`
    browser    TEXT   NOT NULL,     -- digest of the cookie of the browser that began it
    forge      TEXT   NOT NULL,
    next       TEXT   NOT NULL,     -- path to go to
    expires_at BIGINT NOT NULL
);
CREATE INDEX web_logins_by_end ON web_logins (expires_at);
