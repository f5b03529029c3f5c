-- Number of work effects that a new runner with the labels {labels} may claim now: one row, one number. KEDA starts one runner for each.
-- Its user needs SELECT on these tables. A test runs this text on a server and compares it with the claims of runners.
WITH clock AS (SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) AS now)
SELECT count(*)
FROM clock, outbox o LEFT JOIN loops l ON l.id = o.loop_id
WHERE o.lane = 'work' AND o.state IN ('ready', 'running') AND o.not_before <= clock.now
  -- Effects of a loop are executed one after another.
  AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.subject = o.subject AND e.lane = o.lane AND e.state IN ('ready', 'running') AND e.id < o.id)
  -- A runner works on it.
  AND NOT EXISTS (SELECT 1 FROM leases c WHERE c.name = o.subject || '/work' AND c.expires_at > clock.now)
  -- It is reserved for a live host with the loop's files: 5 s for the start of a run, 60 s within an iteration.
  AND NOT EXISTS (
    SELECT 1 FROM loop_files f JOIN hosts h ON h.id = f.host
    WHERE f.loop_id = o.loop_id AND o.state = 'ready' AND h.stopped = 0 AND h.seen_at > clock.now - 30000
      AND greatest(o.created_at, o.not_before) > clock.now
        - CASE WHEN o.key LIKE 'agent/%' OR o.key LIKE 'plan/%' OR o.key LIKE 'prepare/%' THEN 5000 ELSE 60000 END)
  -- Each runner releases trees.
  AND (o.key = 'release' OR CAST(coalesce(l.runs_on, '[]') AS jsonb) <@ CAST('{labels}' AS jsonb))
