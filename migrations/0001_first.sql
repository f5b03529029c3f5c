-- All durable state. Times are milliseconds since 1970 (bigint); JSON is text. Limited to SQL that PostgreSQL accepts too.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- Deliveries of webhooks. A row is committed before the forge gets its 202.
CREATE TABLE inbox (
    id          INTEGER PRIMARY KEY,
    forge       TEXT    NOT NULL,
    delivery    TEXT    NOT NULL,
    event       TEXT    NOT NULL,
    body        BLOB    NOT NULL, -- packed: its length (4 bytes, little-endian) and LZ4
    received_at BIGINT  NOT NULL,
    state       TEXT    NOT NULL DEFAULT 'new', -- new, done, ignored, dead
    reason      TEXT,
    attempts    INTEGER NOT NULL DEFAULT 0,
    not_before  BIGINT  NOT NULL DEFAULT 0,
    UNIQUE (forge, delivery)
);
CREATE INDEX inbox_new ON inbox (id) WHERE state = 'new';

-- One row per loop; data is the complete state, the other columns are for searches.
CREATE TABLE loops (
    id         TEXT    PRIMARY KEY,
    forge      TEXT    NOT NULL,
    repo_id    BIGINT  NOT NULL,
    issue      BIGINT  NOT NULL,
    state      TEXT    NOT NULL,
    open       INTEGER NOT NULL,
    queued_at  BIGINT,
    data       TEXT    NOT NULL,
    version    BIGINT  NOT NULL,
    created_at BIGINT  NOT NULL,
    updated_at BIGINT  NOT NULL
);
CREATE UNIQUE INDEX loops_one_open ON loops (forge, repo_id, issue) WHERE open = 1;
CREATE INDEX loops_by_state ON loops (state) WHERE open = 1;

-- Issues and pull requests of a loop: its issue, its pull request, its escalation issues.
CREATE TABLE loop_numbers (
    forge   TEXT   NOT NULL,
    repo_id BIGINT NOT NULL,
    number  BIGINT NOT NULL,
    loop_id TEXT   NOT NULL REFERENCES loops (id),
    role    TEXT   NOT NULL, -- issue, pull, escalation
    PRIMARY KEY (forge, repo_id, number, loop_id)
);

-- Inputs of a loop in order, with the reasons of its decisions. The row of the loop can be rebuilt from it. Append-only.
CREATE TABLE loop_events (
    loop_id TEXT   NOT NULL REFERENCES loops (id),
    seq     BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    input   TEXT   NOT NULL,
    reasons TEXT   NOT NULL,
    PRIMARY KEY (loop_id, seq)
);

-- Inputs that wait for their loop. A repeated origin is ignored.
CREATE TABLE inputs (
    id      INTEGER PRIMARY KEY,
    loop_id TEXT   NOT NULL,
    origin  TEXT   NOT NULL UNIQUE,
    at      BIGINT NOT NULL,
    input   TEXT   NOT NULL,
    done    INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX inputs_open ON inputs (id) WHERE done = 0;

-- Effects to execute. A row is the intent, receipt is the result.
CREATE TABLE outbox (
    id         INTEGER PRIMARY KEY,
    subject    TEXT    NOT NULL, -- loop id, or issue key where there is no loop
    lane       TEXT    NOT NULL, -- work, talk
    loop_id    TEXT,
    key        TEXT    NOT NULL, -- natural key within the subject
    effect     TEXT    NOT NULL,
    place      TEXT    NOT NULL, -- repository and issue, as JSON
    state      TEXT    NOT NULL DEFAULT 'ready', -- ready, running, done, rejected, cancelled
    attempts   INTEGER NOT NULL DEFAULT 0, -- how often it was begun and may have happened
    tries      INTEGER NOT NULL DEFAULT 0, -- how often it was taken on
    not_before BIGINT  NOT NULL DEFAULT 0,
    cancel     INTEGER NOT NULL DEFAULT 0,
    fence      BIGINT  NOT NULL DEFAULT 0,
    created_at BIGINT  NOT NULL,
    ended_at   BIGINT,
    receipt    TEXT
);
CREATE INDEX outbox_open ON outbox (subject, lane, id) WHERE state IN ('ready', 'running');
CREATE INDEX outbox_lane ON outbox (lane, id) WHERE state IN ('ready', 'running');

-- Leases on work. The fencing number only grows; work done under an older one is refused.
CREATE TABLE leases (
    name       TEXT   PRIMARY KEY,
    owner      TEXT   NOT NULL,
    fence      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE TABLE timers (
    loop_id TEXT   NOT NULL REFERENCES loops (id),
    kind    TEXT   NOT NULL,
    due_at  BIGINT NOT NULL,
    PRIMARY KEY (loop_id, kind)
);
CREATE INDEX timers_due ON timers (due_at);

-- Comments and issues that the service created, by natural key.
CREATE TABLE posted (
    subject    TEXT   NOT NULL,
    key        TEXT   NOT NULL,
    forge_id   BIGINT NOT NULL,
    digest     TEXT   NOT NULL DEFAULT '',
    at         BIGINT NOT NULL,
    counted_on TEXT   NOT NULL, -- issue key, for the budget of comments
    PRIMARY KEY (subject, key)
);
CREATE INDEX posted_budget ON posted (counted_on, at);

-- Labels as last seen, for forges whose events do not say what changed.
CREATE TABLE issue_labels (
    forge   TEXT   NOT NULL,
    repo_id BIGINT NOT NULL,
    issue   BIGINT NOT NULL,
    labels  TEXT   NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (forge, repo_id, issue)
);

-- Edits of issue texts.
CREATE TABLE issue_edits (
    forge   TEXT   NOT NULL,
    repo_id BIGINT NOT NULL,
    issue   BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    editor  TEXT   NOT NULL,
    PRIMARY KEY (forge, repo_id, issue, at)
);

CREATE TABLE repositories (
    forge   TEXT   NOT NULL,
    repo_id BIGINT NOT NULL,
    data    TEXT   NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (forge, repo_id)
);

-- Processed comments.
CREATE TABLE heard (
    key TEXT   PRIMARY KEY,
    at  BIGINT NOT NULL
);

-- Audit trail of loops. Append-only.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY,
    loop_id TEXT    NOT NULL REFERENCES loops (id),
    at      BIGINT  NOT NULL,
    entry   TEXT    NOT NULL
);
CREATE INDEX audit_by_loop ON audit (loop_id, id);
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
