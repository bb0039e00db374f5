-- Takes the keeper's lock when it has no holder. A lock that would last longer than the longest
-- lease, or for ever, has none: Redis' clock was set back since, or it was written by hand.
--
-- KEYS  1 couponmq:keeper  string: the token of its holder
-- ARGV  1 token    1..128 bytes of printable ASCII without space
--       2 ttl_ms   1..86400000 milliseconds from now
--       3 most_ms  the longest lease there is, likewise
--
-- Returns 1, or 0 if it is another's. Errors: ERR couponmq: ..., and then nothing was written.

local token = token_check(3)
integer_check(2, 'ttl_ms', 1, 86400000)
local most_ms = integer_check(3, 'most_ms', 1, 86400000)

lock_owner() -- fails on a key of another type
local left_ms = call('PTTL', KEYS[1])
if left_ms >= 0 and left_ms <= most_ms then
	return 0
end
call('SET', KEYS[1], token, 'PX', ARGV[2])
return 1
