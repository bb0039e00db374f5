-- Opens a coupon on this Redis process, for the keeper, if Redis has at least the numbers that
-- PostgreSQL and the gateways have seen.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox  4 coupon:{ID}:seen
-- ARGV  1 fence       NUMBER:FROM:UNTIL, see fence_check()
--       2 run_id      of this Redis process: 40 hexadecimal digits
--       3 generation  1..2^53-1, the current one in PostgreSQL
--       4 seq_seen    0..2^53-1, the highest number of it that PostgreSQL has seen
--       5 late        0..2^53-1, the last late outcome that PostgreSQL has recorded as counted here
--       6 revocation  0..2^53-1, the last revocation of codes in PostgreSQL
--
-- Returns 'verified', and run_id and fence are set and held_at (hold.lua) is removed; otherwise
-- nothing is written: 'fenced'; 'missing'; 'behind' if the generation differs, seq is lower than
-- seq_seen or than the number that gateways have reported, or counted late outcomes or revocations
-- are missing.

keys_check(':users', ':outbox', ':seen')
arguments_check(6, 6)
local fence, is_over = fence_check(1)
local run_id = run_id_check(2)
local generation, seq_seen = integer_check(3, 'generation', 1), integer_check(4, 'seq_seen')
local late_least, revocation = integer_check(5, 'late'), integer_check(6, 'revocation')

types_check('hash', 'hash', 'hash', 'hash')
if call('EXISTS', KEYS[1]) == 0 then
	return 'missing'
end

local c = call('HMGET', KEYS[1], 'fence', 'generation', 'seq', 'late', 'placeholder',
	'revocation')
local known, seq, late = integer(c[2], 1), integer(c[3]), integer(c[4] or '0')
local revoked = integer(c[6] or '0')
if not known or not seq or not late or not revoked then
	fail('coupon: its generation, seq, late or revocation is malformed')
end
if is_over or is_fenced(c[1], fence) then
	return 'fenced'
end
local reported = integer(call('HGET', KEYS[4], ARGV[3]) or '0')
if c[5] or known ~= generation or seq < seq_seen or late < late_least or not reported
	or seq < reported or revoked < revocation then
	return 'behind'
end

call('HSET', KEYS[1], 'run_id', run_id, 'fence', decimal(fence))
call('HDEL', KEYS[1], 'held_at')
call('DEL', KEYS[4]) -- seq is at least as high as each report
return 'verified'
