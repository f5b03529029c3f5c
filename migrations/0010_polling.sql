-- Digest of an issue's text as polling saw it last, on forges that record no edits.
CREATE TABLE issue_texts (
    forge   TEXT   NOT NULL,
    repo_id BIGINT NOT NULL,
    issue   BIGINT NOT NULL,
    digest  TEXT   NOT NULL,
    PRIMARY KEY (forge, repo_id, issue)
);
