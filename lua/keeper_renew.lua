-- Extends the keeper's lock, if this keeper still holds it.
--
-- KEYS  1 couponmq:keeper  string: the token of its holder
-- ARGV  1 token   1..128 bytes of printable ASCII without space
--       2 ttl_ms  1..86400000 milliseconds from now
--
-- Returns the time of Redis' clock (ms) until which the lock is held, or 0 if it has expired or
-- another keeper holds it.
-- Errors: ERR couponmq: <what is wrong>. On an error nothing is written.

local token = token_check(2)
integer_check(2, 'ttl_ms', 1, 86400000)

if lock_owner() ~= token then
	return 0
end
call('PEXPIRE', KEYS[1], ARGV[2])
return call('PEXPIRETIME', KEYS[1])
