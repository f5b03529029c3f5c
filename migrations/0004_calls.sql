-- Calls of backends with their reserved and final cost, and the state of the backends.

CREATE TABLE backends (
    id   INTEGER PRIMARY KEY CHECK (id = 1), -- there is one
    data TEXT    NOT NULL
);

-- A row is committed before the call begins. Amounts are in millionths of a dollar.
CREATE TABLE calls (
    id          INTEGER PRIMARY KEY,
    key         TEXT    NOT NULL UNIQUE, -- loop, ticket of the work, and try
    loop_id     TEXT    NOT NULL,
    forge       TEXT    NOT NULL,
    repo_id     BIGINT  NOT NULL,
    iteration   INTEGER NOT NULL,
    role        TEXT    NOT NULL, -- agent, assistant
    purpose     TEXT    NOT NULL,
    backend     TEXT    NOT NULL,
    model       TEXT,
    call        TEXT    NOT NULL, -- the whole call, for the backends' state
    day         BIGINT  NOT NULL, -- days since 1970-01-01 in UTC, of its start
    started_at  BIGINT  NOT NULL,
    ended_at    BIGINT,           -- none while it is under way
    reserved    BIGINT  NOT NULL,
    shown       BIGINT,           -- what its stream has shown
    cost        BIGINT,           -- none while it is under way
    estimated   INTEGER NOT NULL DEFAULT 0,
    tokens_in   BIGINT  NOT NULL DEFAULT 0,
    tokens_out  BIGINT  NOT NULL DEFAULT 0,
    cache_read  BIGINT  NOT NULL DEFAULT 0,
    cache_write BIGINT  NOT NULL DEFAULT 0,
    outcome     TEXT
);
CREATE INDEX calls_of_loop ON calls (loop_id);
CREATE INDEX calls_of_day ON calls (day);
CREATE INDEX calls_open ON calls (loop_id) WHERE ended_at IS NULL;
