-- Reads a user's records of a coupon, for `status`, and atomically with them whether a receive that
-- is not among them may still be in flight.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users
-- ARGV  1 user             2 run_id    of the Redis process of the gateway: see run_id_held()
--       3 generation_seen  4 seq_seen  the highest that the gateway has seen of this coupon
--
-- Returns {records, word}. The records are as issue.lua writes them, nil if there are none. The
-- word is 'complete' if every receive accepted so far is among the records of its user or has its
-- outcome in PostgreSQL. Otherwise it is 'missing' (Redis does not have the coupon), 'unverified'
-- (the coupon was not compared with PostgreSQL since Redis started, or the lease is over), 'behind'
-- (Redis has a lower number than the gateway has seen) or 'reserved' (receives of an older
-- generation are in flight, and Redis does not have their users; if no stock is left, or Redis lost
-- data a moment ago, more may be in flight than are reserved).

local records = call('HGET', KEYS[2], ARGV[1])
local c = call('HMGET', KEYS[1], 'run_id', 'generation', 'seq', 'reserved', 'stock',
	'loss_at')
local generation, seq = tonumber(c[2]), tonumber(c[3])

if not generation or not seq then
	return {records, 'missing'}
end
local now = now_ms()
if c[1] ~= run_id_held(2, now) then
	return {records, 'unverified'}
end
if is_behind(KEYS[1], generation, seq, ARGV[3], ARGV[4]) then
	return {records, 'behind'}
end
if c[4] ~= '0' or (generation > 1 and c[5] == '0')
		or is_counting(tonumber(c[6]), now) then
	return {records, 'reserved'}
end
return {records, 'complete'}
