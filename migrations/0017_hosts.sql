-- Hosts that execute work: one row per data folder. Times are by the database's clock.
CREATE TABLE hosts (
    id       TEXT    PRIMARY KEY,
    name     TEXT    NOT NULL,
    version  TEXT    NOT NULL, -- of the service
    slots    INTEGER NOT NULL, -- concurrent loops
    labels   TEXT    NOT NULL, -- JSON list
    seen_at  BIGINT  NOT NULL, -- last heartbeat
    draining INTEGER NOT NULL DEFAULT 0,
    stopped  INTEGER NOT NULL DEFAULT 0 -- after a stop by its operator
);

-- What another host needs to continue a loop. Only PostgreSQL has such rows, because a file belongs to one host.
CREATE TABLE loop_files (
    loop_id TEXT PRIMARY KEY,
    host    TEXT NOT NULL, -- id of the host with the loop's newest work tree
    commits TEXT NOT NULL, -- refs of the loop's store, and commits of the forge that the pack builds on: JSON
    pack    BLOB           -- git pack of the objects that the forge does not have; none if it has all
);
CREATE TABLE loop_sessions (
    loop_id  TEXT   PRIMARY KEY,
    name     TEXT   NOT NULL, -- folder of the session
    saved_at BIGINT NOT NULL,
    size     BIGINT NOT NULL, -- of the archive, in bytes
    archive  BLOB   NOT NULL  -- session files: tar, gzip
);

-- Labels that a host needs for the work of the loop: JSON list; none for any host.
ALTER TABLE loops ADD COLUMN runs_on TEXT;
