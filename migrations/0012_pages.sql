-- Indexes of the dashboard's lists and counts, so that no page reads a whole table.

-- Counts by state in some repositories, without the rows.
CREATE INDEX loop_summaries_by_state_and_place ON loop_summaries (state, forge, repo_id, id);
-- Newest open loop of a repository.
CREATE INDEX loop_summaries_open_of_repository ON loop_summaries (forge, repo_id, id) WHERE open = 1;
-- Processed deliveries by state. A new one is not in it, so that receiving it costs no more.
CREATE INDEX inbox_by_state ON inbox (state, id) WHERE state <> 'new';
