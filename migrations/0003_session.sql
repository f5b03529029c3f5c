-- Memory of single loops. Texts are masked before they are stored. Times are milliseconds since 1970.

-- Prompts and answers.
CREATE TABLE session_turns (
    id            INTEGER PRIMARY KEY,
    loop_id       TEXT    NOT NULL REFERENCES loops (id),
    iteration     BIGINT  NOT NULL,
    attempt       BIGINT  NOT NULL,
    role          TEXT    NOT NULL, -- agent, assistant
    prompt        BLOB    NOT NULL, -- text; a long one as BLOB: its length (4 bytes, little-endian) and LZ4
    response      BLOB    NOT NULL, -- the same
    backend       TEXT    NOT NULL,
    model         TEXT,
    tokens_in     BIGINT  NOT NULL,
    tokens_out    BIGINT  NOT NULL,
    tokens_cached BIGINT  NOT NULL,
    cost          BIGINT  NOT NULL, -- millionths of a dollar
    estimated     INTEGER NOT NULL,
    error         TEXT,
    learnings     TEXT    NOT NULL, -- JSON: ids of those that the prompt carried
    started_at    BIGINT  NOT NULL,
    ended_at      BIGINT  NOT NULL,
    UNIQUE (loop_id, iteration, attempt, role, started_at)
);
CREATE INDEX session_turns_by_age ON session_turns (ended_at);

-- Events between prompts and answers.
CREATE TABLE session_events (
    id        INTEGER PRIMARY KEY,
    loop_id   TEXT    NOT NULL REFERENCES loops (id),
    iteration BIGINT  NOT NULL,
    kind      TEXT    NOT NULL,
    tool      TEXT,
    path      TEXT,
    text      BLOB    NOT NULL, -- as in session_turns
    failed    INTEGER NOT NULL,
    at        BIGINT  NOT NULL
);
CREATE INDEX session_events_by_loop ON session_events (loop_id, iteration);
CREATE INDEX session_events_by_age ON session_events (at);

-- Summaries of several iterations.
CREATE TABLE session_summaries (
    id             INTEGER PRIMARY KEY,
    loop_id        TEXT    NOT NULL REFERENCES loops (id),
    from_iteration BIGINT  NOT NULL,
    to_iteration   BIGINT  NOT NULL,
    data           TEXT    NOT NULL, -- the whole summary, as JSON
    failed         INTEGER NOT NULL, -- whether it tells of errors
    made_at        BIGINT  NOT NULL,
    UNIQUE (loop_id, from_iteration, to_iteration)
);

-- Full-text indexes by the same id, without a copy of the texts. `scope` is the loop as one word, so that a search does not read
-- matches of other loops. The tables above define the loop of a row.
CREATE VIRTUAL TABLE session_turns_words USING fts5 (
    scope, prompt, response, content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE session_events_words USING fts5 (
    scope, text, content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE session_summaries_words USING fts5 (
    scope, text, content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
