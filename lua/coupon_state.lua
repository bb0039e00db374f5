-- Reads a coupon, and Redis' clock, for the `coupon` operation.
--
-- KEYS  1 coupon:{ID}  hash
-- ARGV  1 run_id       of the Redis process that the gateway is connected to: see run_id_held()
--       2 generation_seen  3 seq_seen  the highest that the gateway has seen of this coupon
--
-- Returns {status, total, stock, limit, begin, end, version, now}, all text, times in ms since the
-- epoch; the version is that of the terms.
-- The other fields may be old, or those of a placeholder, if the status is 'unverified' (the coupon
-- was not verified on this Redis process, or its lease is over, or it is held for a rebuild),
-- 'behind' (Redis has a lower number than the gateway has seen) or 'counting' (other gateways may
-- still report higher numbers after a rebuild of lost data). For an unknown coupon all but `now`
-- are nil.

local fields = call('HMGET', KEYS[1], 'status', 'total', 'stock', 'limit', 'begin', 'end', 'run_id',
	'generation', 'seq', 'loss_at', 'version')
local generation, seq, now = tonumber(fields[8]), tonumber(fields[9]), now_ms()

if fields[1] and (fields[7] ~= run_id_held(1, now) or not generation or not seq) then
	fields[1] = 'unverified'
elseif fields[1] and is_behind(KEYS[1], generation, seq, ARGV[2], ARGV[3]) then
	fields[1] = 'behind'
elseif fields[1] and is_counting(tonumber(fields[10]), now) then
	fields[1] = 'counting'
end
return {fields[1], fields[2], fields[3], fields[4], fields[5], fields[6],
	fields[1] and (fields[11] or '0'), decimal(now)}
