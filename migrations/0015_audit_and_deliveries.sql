-- Changes that people and programs asked for in the dashboard and by the API. A row is written before the change is made, and gets
-- its status once; otherwise rows are only added. Times are milliseconds since 1970.

CREATE TABLE access_audit (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         BIGINT NOT NULL,
    forge      TEXT,            -- none for the operator of the machine
    account_id BIGINT,
    login      TEXT   NOT NULL,
    address    TEXT   NOT NULL, -- IP address that the request came from
    via        TEXT   NOT NULL, -- login, session, printed token, personal token
    token      TEXT,            -- name of the personal token
    method     TEXT   NOT NULL,
    path       TEXT   NOT NULL, -- without its query
    status     BIGINT           -- none until the answer is sent
);
CREATE TRIGGER access_audit_stays
BEFORE UPDATE OF id, at, forge, account_id, login, address, via, token, method, path ON access_audit
BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE TRIGGER access_audit_status_stays BEFORE UPDATE OF status ON access_audit WHEN OLD.status IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE TRIGGER access_audit_is_kept BEFORE DELETE ON access_audit
BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;

-- What a delivery is about, as the forge reported it: {"repository", "repo_id", "number", "sender"}. Its body is deleted at the end.
ALTER TABLE inbox ADD COLUMN about TEXT;
