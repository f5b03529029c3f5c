-- Learnings of loops. Times are milliseconds since 1970 (bigint); JSON is text. The full-text index is SQLite's FTS5.

-- data is the complete learning, checksum its checksum; the other columns are for searches.
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

-- Normalised words of each learning (lower case, stemmed); the texts are in data.
CREATE VIRTUAL TABLE learnings_words USING fts5 (
    words, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);
-- Number of learnings per word. FTS5's own count reads all postings of a word for each query; a task has a hundred words.
CREATE TABLE learnings_terms (
    term      TEXT    PRIMARY KEY,
    learnings INTEGER NOT NULL
) WITHOUT ROWID;

-- Quarantined learnings with a wrong checksum, as they were found.
CREATE TABLE learnings_quarantine (
    id       INTEGER PRIMARY KEY,
    learning TEXT   NOT NULL,
    reason   TEXT   NOT NULL,
    data     TEXT   NOT NULL,
    checksum TEXT   NOT NULL,
    found_at BIGINT NOT NULL
);

-- Reflections of iterations, for later iterations of the same loop.
CREATE TABLE reflections (
    loop_id   TEXT   NOT NULL,
    iteration BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    data      TEXT   NOT NULL,
    PRIMARY KEY (loop_id, iteration)
);

-- Learnings in prompts. credited is set once the result of the iteration was credited.
CREATE TABLE prompt_learnings (
    loop_id   TEXT    NOT NULL,
    iteration BIGINT  NOT NULL,
    learning  TEXT    NOT NULL,
    at        BIGINT  NOT NULL,
    credited  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (loop_id, iteration, learning)
);
CREATE INDEX prompt_learnings_by_learning ON prompt_learnings (learning);

-- Results of loops that used memory; the effect of learnings is measured by them.
CREATE TABLE learnings_outcomes (
    loop_id   TEXT    PRIMARY KEY,
    forge     TEXT    NOT NULL,
    repo_id   BIGINT  NOT NULL,
    task_type TEXT    NOT NULL,
    succeeded INTEGER NOT NULL,
    at        BIGINT  NOT NULL
);
CREATE INDEX learnings_outcomes_by_type ON learnings_outcomes (forge, repo_id, task_type);
