-- The server's clock, in ms since the epoch.
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
