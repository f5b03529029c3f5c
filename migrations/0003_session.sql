-- What a loop remembers of itself. Texts are masked before they come here. Times are milliseconds since 1970.

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

-- What happened in between.
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

-- What several iterations came to.
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

-- The words of each, by the same id; texts are not kept a second time. `scope` is the loop, as one word: it keeps a
-- search from reading what other loops have of a common word. Whose a row is, the tables above say.
CREATE VIRTUAL TABLE session_turns_words USING fts5 (
    scope, prompt, response, content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE session_events_words USING fts5 (
    scope, text, content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE session_summaries_words USING fts5 (
    scope, text, content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
