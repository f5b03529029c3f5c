-- Vectors of learnings; empty without an embedding model.

CREATE TABLE learnings_vectors (
    row    INTEGER PRIMARY KEY, -- that of learnings
    model  TEXT    NOT NULL,    -- which model made it; empty where the words have changed since
    vector BLOB    NOT NULL     -- 32-bit numbers, the least byte first; empty where the model knows none of the words
);
CREATE INDEX learnings_vectors_by_model ON learnings_vectors (model, row);
