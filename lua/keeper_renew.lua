-- Prolongs the keeper's lock, if this keeper still holds it.
--
-- KEYS  1 couponmq:keeper  string: the token of its holder
-- ARGV  1 token   1..128 bytes of printable ASCII without space
--       2 ttl_ms  1..86400000 milliseconds from now
--
-- Returns 1, or 0 if the lock is gone or another's. Errors: ERR couponmq: ..., and then nothing was written.

local token = ARGV[1]
if #KEYS ~= 1 or #ARGV ~= 2 then
	return redis.error_reply('ERR couponmq: 1 key and 2 arguments are needed')
end
if #token < 1 or #token > 128 or string.find(token, '[^!-~]') then
	return redis.error_reply('ERR couponmq: token: not 1 to 128 bytes of printable ASCII without space')
end
local ttl_ms = string.find(ARGV[2], '^[1-9]%d*$') and tonumber(ARGV[2])
if not ttl_ms or ttl_ms > 86400000 then
	return redis.error_reply('ERR couponmq: ttl_ms: not an integer within 1..86400000')
end

local owner = redis.pcall('GET', KEYS[1])
if type(owner) == 'table' then
	return redis.error_reply('ERR couponmq: ' .. KEYS[1] .. ': ' .. owner.err)
end
if owner ~= token then
	return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
