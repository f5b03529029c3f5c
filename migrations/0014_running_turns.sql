-- Turns whose agents still run, and what these have written up to now. Both are removed when the turn is stored. Texts are masked
-- before they are stored. Times are milliseconds since 1970.

CREATE TABLE running_turns (
    loop_id    TEXT   PRIMARY KEY REFERENCES loops (id),
    iteration  BIGINT NOT NULL,
    turn       TEXT   NOT NULL, -- JSON, without the prompt
    prompt     BLOB   NOT NULL, -- as in session_turns
    started_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL  -- when the agent did something last
) WITHOUT ROWID;

-- Ids are never used again: listeners of the live feed go on after the last one that they got.
CREATE TABLE session_output (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    loop_id   TEXT    NOT NULL REFERENCES loops (id),
    iteration BIGINT  NOT NULL,
    text      BLOB    NOT NULL, -- as in session_turns
    at        BIGINT  NOT NULL
);
CREATE INDEX session_output_by_loop ON session_output (loop_id, id);
