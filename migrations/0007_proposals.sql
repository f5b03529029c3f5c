-- Review remarks of maintainers, and the conventions that are proposed because remarks recur.

CREATE TABLE remarks (
    id       INTEGER PRIMARY KEY,
    forge    TEXT   NOT NULL,
    repo_id  BIGINT NOT NULL,
    loop_id  TEXT   NOT NULL,
    text     TEXT   NOT NULL,
    at       BIGINT NOT NULL,
    proposal BIGINT             -- that it led to
);
CREATE INDEX remarks_by_repository ON remarks (forge, repo_id, id);

CREATE TABLE proposals (
    id         INTEGER PRIMARY KEY AUTOINCREMENT, -- its number, which people write
    forge      TEXT    NOT NULL,
    repo_id    BIGINT  NOT NULL,
    repository TEXT    NOT NULL, -- JSON
    text       TEXT    NOT NULL,
    state      TEXT    NOT NULL, -- open, accepted, rejected
    loops      INTEGER NOT NULL, -- in which the remark was made
    loop_id    TEXT    NOT NULL, -- the newest of them
    told_in    TEXT,             -- loop that tells people about it
    told_at    BIGINT,           -- none until it did
    decided_by TEXT,
    created_at BIGINT  NOT NULL,
    updated_at BIGINT  NOT NULL
);
CREATE INDEX proposals_by_repository ON proposals (forge, repo_id, id);
