-- Takes the keeper's lock if it is free. A lock whose remaining time exceeds the longest lease, or
-- that has no expiry time, counts as free: Redis' clock was set back, or the key was written by
-- hand.
--
-- KEYS  1 couponmq:keeper  string: the token of its holder
-- ARGV  1 token    1..128 bytes of printable ASCII without space
--       2 ttl_ms   1..86400000 milliseconds from now
--       3 most_ms  the longest lease of any worker, likewise
--
-- Returns the time of Redis' clock (ms) until which the lock is held, or 0 if another keeper holds
-- it.
-- Errors: ERR couponmq: <what is wrong>. On an error nothing is written.

local token = token_check(3)
integer_check(2, 'ttl_ms', 1, 86400000)
local most_ms = integer_check(3, 'most_ms', 1, 86400000)

lock_owner() -- fails on a key of another type
local left_ms = call('PTTL', KEYS[1])
if left_ms >= 0 and left_ms <= most_ms then
	return 0
end
call('SET', KEYS[1], token, 'PX', ARGV[2])
return call('PEXPIRETIME', KEYS[1])
