-- Newest preparation of a loop, whose input has the settings of the repository's file, without reading the inputs after it. The term is
-- that of the statement.
CREATE INDEX loop_events_prepared ON loop_events (loop_id, seq) WHERE substr(input, 1, 19) = '{"input":"prepared"';
