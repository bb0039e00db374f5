-- What a user holds of a coupon, for `status`, and whether what is not there cannot be in flight either: both at one moment.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users
-- ARGV  1 user             2 run_id    of the Redis process that the gateway is connected to
--       3 generation_seen  4 seq_seen  the highest that the gateway has seen of this coupon
--
-- Returns {records, word}. The user's records are as issue.lua writes them, nil if there are none. Only 'complete' says that every
-- receive accepted so far is there, or has its outcome in PostgreSQL. Else: 'missing' (Redis does not have the coupon), 'unverified'
-- (nobody has compared it with PostgreSQL since Redis started), 'behind' (it knows less than it did), 'reserved' (receives of an
-- older generation are in flight, and Redis does not know whose).

local records = redis.call('HGET', KEYS[2], ARGV[1])
local c = redis.call('HMGET', KEYS[1], 'run_id', 'generation', 'seq', 'reserved')
local generation, seq = tonumber(c[2]), tonumber(c[3])

if not generation or not seq then
	return {records, 'missing'}
end
if c[1] ~= ARGV[2] then
	return {records, 'unverified'}
end
local generation_seen = tonumber(ARGV[3])
if generation < generation_seen or (generation == generation_seen and seq < tonumber(ARGV[4])) then
	return {records, 'behind'}
end
return {records, c[4] == '0' and 'complete' or 'reserved'}
