-- Adds what a gateway has refused to what the keeper has not taken yet (refused_take.lua).
--
-- KEYS  1 couponmq:refused  hash: 'COUPON:ANSWER' -> how many requests; `writes`, how many fields
--                           were written
-- ARGV  1..512 pairs: 'COUPON:ANSWER', number 1..2^32-1
--
-- Returns how many of the pairs are counted: a new field is not while there are too many.

local MOST = 10000

if #KEYS ~= 1 then
	fail('KEYS: 1 is needed')
end
arguments_check(2, 1024)
local fields, numbers = {}, {}
for i = 1, #ARGV, 2 do
	if not match(ARGV[i], '^[1-9]%d*:[a-z_]+$') then
		fail('field: not COUPON:ANSWER')
	end
	fields[#fields + 1] = ARGV[i]
	numbers[#numbers + 1] = integer_check(i + 1, 'number', 1, 4294967295)
end
fields[#fields + 1] = 'writes'
types_check('hash')

local there = call('HMGET', KEYS[1], unpack(fields))
local room = MOST - call('HLEN', KEYS[1])
local hset = {'HSET', KEYS[1]}
for i, number in ipairs(numbers) do
	if there[i] or room > 0 then
		room = there[i] and room or room - 1
		hset[#hset + 1] = fields[i]
		hset[#hset + 1] = decimal((integer(there[i]) or 0) + number)
	end
end
local counted = (#hset - 2) / 2
hset[#hset + 1] = 'writes'
hset[#hset + 1] = decimal((integer(there[#fields]) or 0) + counted + 1)
call(unpack(hset))
return counted
