-- Whether the sets of codes have changed since the same text was returned before.
SELECT concat_ws(' ', count(*), max(id), count(completed_at)) AS state
FROM code_set
