-- Read model of the dashboard and the API: a small row for each loop, the words of these rows, and costs by day. All of it can be
-- made again from loops and calls. Times are milliseconds since 1970 (bigint); amounts are in millionths of a dollar.

CREATE TABLE loop_summaries (
    id             INTEGER PRIMARY KEY, -- in the order of creation; also the row of the index of words
    loop_id        TEXT    NOT NULL UNIQUE REFERENCES loops (id),
    forge          TEXT    NOT NULL,
    repo_id        BIGINT  NOT NULL,
    owner          TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    issue          BIGINT  NOT NULL,
    title          TEXT    NOT NULL,
    url            TEXT    NOT NULL,
    state          TEXT    NOT NULL,
    open           INTEGER NOT NULL,
    waits          INTEGER NOT NULL, -- whether it waits for a person
    person_id      BIGINT  NOT NULL, -- who asked for it
    person         TEXT    NOT NULL,
    reason         TEXT    NOT NULL,
    iterations     INTEGER NOT NULL,
    max_iterations INTEGER NOT NULL,
    completion     REAL    NOT NULL,
    cost           BIGINT  NOT NULL,
    cost_limit     BIGINT  NOT NULL,
    branch         TEXT    NOT NULL,
    pull           TEXT,
    created_at     BIGINT  NOT NULL,
    updated_at     BIGINT  NOT NULL
);
CREATE INDEX loop_summaries_by_repository ON loop_summaries (forge, repo_id, id);
CREATE INDEX loop_summaries_by_state ON loop_summaries (state, id);
CREATE INDEX loop_summaries_open ON loop_summaries (open, id);
CREATE INDEX loop_summaries_waiting ON loop_summaries (id) WHERE waits = 1;
CREATE INDEX loop_summaries_by_person ON loop_summaries (person_id, id);

-- Words of loop_summaries by the same id, without a copy of the texts. The other texts of loops have their indexes with the memory
-- of loops (session_turns_words, session_events_words, session_summaries_words).
CREATE VIRTUAL TABLE loop_summaries_words USING fts5 (
    title, reason, person, place, content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);

-- Ended calls by day (days since 1970-01-01 in UTC).
CREATE TABLE daily_costs (
    day        BIGINT  NOT NULL,
    forge      TEXT    NOT NULL,
    repo_id    BIGINT  NOT NULL,
    backend    TEXT    NOT NULL,
    person_id  BIGINT  NOT NULL, -- who asked for the loop; 0 if it is not known
    person     TEXT    NOT NULL,
    calls      BIGINT  NOT NULL,
    cost       BIGINT  NOT NULL,
    tokens_in  BIGINT  NOT NULL,
    tokens_out BIGINT  NOT NULL,
    PRIMARY KEY (day, forge, repo_id, backend, person_id)
) WITHOUT ROWID;
