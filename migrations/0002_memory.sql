-- What loops learnt. Times are milliseconds since 1970 (bigint); JSON is text. The index of words is SQLite's own (FTS5).

-- data is the whole learning, checksum is over it; the columns are what is searched by.
CREATE TABLE learnings (
    id         INTEGER PRIMARY KEY, -- also the row of the index of words
    learning   TEXT    NOT NULL UNIQUE,
    forge      TEXT    NOT NULL,
    repo_id    BIGINT  NOT NULL,
    owner      TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    task_type  TEXT    NOT NULL,
    state      TEXT    NOT NULL, -- candidate, active, archived
    confidence REAL    NOT NULL,
    idle_since BIGINT  NOT NULL, -- when it was last used or changed
    data       TEXT    NOT NULL,
    checksum   TEXT    NOT NULL
);
CREATE INDEX learnings_by_kind ON learnings (forge, repo_id, kind, state, confidence);
CREATE INDEX learnings_by_owner ON learnings (forge, owner, kind, state, confidence);
CREATE INDEX learnings_idle ON learnings (idle_since) WHERE state <> 'archived';

-- The words of each learning as they are compared (lower case, without endings); the texts themselves are in data.
CREATE VIRTUAL TABLE learnings_words USING fts5 (
    words, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);
-- In how many learnings each word is. FTS5's own count reads all of a word's postings at each question; a task has a
-- hundred words to ask for.
CREATE TABLE learnings_terms (
    term      TEXT    PRIMARY KEY,
    learnings INTEGER NOT NULL
) WITHOUT ROWID;

-- Learnings whose checksum did not hold, as they were found.
CREATE TABLE learnings_quarantine (
    id       INTEGER PRIMARY KEY,
    learning TEXT   NOT NULL,
    reason   TEXT   NOT NULL,
    data     TEXT   NOT NULL,
    checksum TEXT   NOT NULL,
    found_at BIGINT NOT NULL
);

-- What iterations say to the next ones of their loop.
CREATE TABLE reflections (
    loop_id   TEXT   NOT NULL,
    iteration BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    data      TEXT   NOT NULL,
    PRIMARY KEY (loop_id, iteration)
);

-- Which prompt carried which learning. credited is set once the iteration's outcome was given to it.
CREATE TABLE prompt_learnings (
    loop_id   TEXT    NOT NULL,
    iteration BIGINT  NOT NULL,
    learning  TEXT    NOT NULL,
    at        BIGINT  NOT NULL,
    credited  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (loop_id, iteration, learning)
);
CREATE INDEX prompt_learnings_by_learning ON prompt_learnings (learning);

-- How loops ended that memory was asked for; what a learning is worth is measured by it.
CREATE TABLE learnings_outcomes (
    loop_id   TEXT    PRIMARY KEY,
    forge     TEXT    NOT NULL,
    repo_id   BIGINT  NOT NULL,
    task_type TEXT    NOT NULL,
    succeeded INTEGER NOT NULL,
    at        BIGINT  NOT NULL
);
CREATE INDEX learnings_outcomes_by_type ON learnings_outcomes (forge, repo_id, task_type);
