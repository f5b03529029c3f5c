-- Messages about loops in channels, which later notices change or answer.

CREATE TABLE channel_messages (
    subject TEXT   NOT NULL, -- id of the loop
    channel TEXT   NOT NULL, -- name in the configuration
    message TEXT   NOT NULL, -- JSON: place, id, and what it shows
    at      BIGINT NOT NULL,
    PRIMARY KEY (subject, channel)
);
