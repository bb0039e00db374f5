-- Extends the lease of this master, or begins a new one: see common/redis/redis_client.h.
--
-- KEYS  1 couponmq:lease  hash: process, term, from, until
-- ARGV  1 process    of this master: 32 hexadecimal digits
--       2 from       of this Redis' clock in ms, read before a majority of the Sentinels was asked
--       3 lease_ms   1..2^31: it lasts so long from then on
--       4 may_begin  '1' if a new one may begin where none is, or it has ended; else '0'
--
-- Returns {word, term}. 'held': it lasts nearly so long already; 'extended'; 'begun', under the
-- next term; otherwise nothing is written: 'over': there is none, or it has ended; 'late': it would
-- have ended by now, or the clock was set back.

arguments_check(4, 4)
if #ARGV[1] ~= 32 or not find(ARGV[1], '^[%da-f]*$') then
	fail('process: not 32 hexadecimal digits')
end
local from, lease_ms = integer_check(2, 'from'), integer_check(3, 'lease_ms', 1, 2147483648)
if ARGV[4] ~= '0' and ARGV[4] ~= '1' then
	fail('may_begin: not 0 or 1')
end

types_check('hash')
local c = call('HMGET', KEYS[1], 'process', 'term', 'from', 'until')
local term = integer(c[2] or '0')
local since, to = integer(c[3] or '0'), integer(c[4] or '0')
if not term or not since or not to then
	fail('lease: its term, from or until is malformed')
end

local now = now_ms()
if now < from or now >= from + lease_ms then
	return {'late', term}
end
if c[1] == ARGV[1] and now >= since and now < to then
	if from + lease_ms - to < lease_ms / 4 then
		return {'held', term}
	end
	call('HSET', KEYS[1], 'from', decimal(from), 'until', decimal(from + lease_ms))
	return {'extended', term}
end
if ARGV[4] == '0' then
	return {'over', term}
end
term = term % 4294967295 + 1
call('HSET', KEYS[1], 'process', ARGV[1], 'term', decimal(term), 'from', decimal(from),
	'until', decimal(from + lease_ms))
return {'begun', term}
