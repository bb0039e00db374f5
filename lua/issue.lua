-- Decides up to 256 requests for one coupon and records the decisions. The script is atomic: every
-- error occurs before the first write, and no later write can fail (Redis refuses a script for lack
-- of memory, a full disk or a read-only role only at its first write).
--
-- KEYS  1 coupon:{ID}         hash: the coupon's terms and counts
--       2 coupon:{ID}:users   hash: user -> "SLOT:BATCH:INDEX:KEY" for each taken slot, one a line
--       3 coupon:{ID}:outbox  hash: batch -> the exact message body, until its receives are settled
-- ARGV  1 run_id          of the Redis process the gateway is connected to: 40 hexadecimal digits
--       2 coupon          1..2^63-1 in canonical decimal, the ID of KEYS
--       3 batch           ULID, 26 characters of Crockford's upper-case base 32; never used before
--       4 generation_seen 0..2^53-1, the highest the gateway has seen
--       5 seq_seen        0..2^53-1, the highest it has seen in that generation
--       6 unsettled_max   1..2^53-1: while the outbox has so many messages, none is added
--       then 1..256 pairs: user (1..64 bytes, '!' to '~'),
--       key (0..64 bytes of printable ASCII; '' = none)
--
-- Returns {state, generation, seq} where nothing was decided:
--   'missing'     Redis does not have the coupon (generation and seq are 0)
--   'unverified'  the coupon was not verified on this Redis process
--   'behind'      Redis has a lower number than the gateway has seen, in this generation or an
--                 older one: see report.lua
-- or {'ok', generation, seq, stock, now_ms, begin_ms, body, verdict...}: seq and stock as they are
-- after the call, body '' when nothing was accepted, and for each request, in order:
--   n > 0                  accepted into slot n; its index counts the accepted ones from 0
--   n < 0                  refused with code -n: 2 out_of_stock, 3 ended, 4 limit_reached,
--                          5 not_started, 6 paused, 20 busy (unsettled_max is reached)
--   'SLOT:BATCH:INDEX'     the user's key is known: the receive that was accepted with it
-- A known key comes before every refusal, and of several refusals the first of this order is
-- returned: paused, ended, not_started, out_of_stock, limit_reached, busy.
-- A call that cannot accept any request and has no key reads only the coupon's hash.
--
-- Errors: ERR couponmq: <the argument or field, and what is wrong with it>. A user's records are
-- checked when they are used. Errors of Redis itself (OOM, READONLY, ...) are returned unchanged.

local concat = table.concat
local argv = ARGV

local HEAD = 6

-- Arguments. The checks are inline, where other scripts call functions of the prelude: each
-- definition costs 0.2 µs per call of the script, even if it is not used.

local run_id, coupon, batch = argv[1], argv[2], argv[3]
local count = (#argv - HEAD) / 2

if #KEYS ~= 3 then
	fail('KEYS: 3 are needed')
end
if count < 1 or count > MAX_INDEX + 1 or count % 1 ~= 0 then
	fail('ARGV: 6 arguments and then 1 to 256 pairs of user and key are needed')
end
if #run_id ~= 40 or not find(run_id, '^[%da-f]*$') then
	fail('run_id: not 40 hexadecimal digits')
end
if not find(coupon, '^[1-9]%d*$') or #coupon > 19 or (#coupon == 19 and coupon > MAX_ID) then
	fail('coupon: not a positive 64-bit integer in canonical decimal')
end
local base = 'coupon:{' .. coupon .. '}'
if KEYS[1] ~= base or KEYS[2] ~= base .. ':users' or KEYS[3] ~= base .. ':outbox' then
	fail('KEYS: not the keys of coupon ' .. coupon)
end
if #batch ~= 26 or not find(batch, '^[0-7][0-9A-HJKMNP-TV-Z]*$') then
	fail('batch: not a ULID')
end
if not find(argv[4] .. argv[5], '^%d*$') or find(argv[4], '^0.') or find(argv[5], '^0.') then
	fail('generation_seen, seq_seen: not an integer in canonical decimal')
end
local generation_seen, seq_seen = tonumber(argv[4]), tonumber(argv[5])
if not generation_seen or not seq_seen or generation_seen > MAX_INT or seq_seen > MAX_INT then
	fail('generation_seen, seq_seen: not within 0..2^53-1')
end
local unsettled_max = tonumber(argv[6])
if not find(argv[6], '^[1-9]%d*$') or unsettled_max > MAX_INT then
	fail('unsettled_max: not an integer within 1..2^53-1')
end

local hmget = {'HMGET', KEYS[2]}
-- A user without the bytes that JSON escapes; digits and capitals are in the first range.
local PLAIN = '^[#-[^-~!%]]+$'
local keyed, escapes = false, false
for i = 1, count do
	local user, key = argv[HEAD - 1 + i * 2], argv[HEAD + i * 2]
	if #user > 64 or not find(user, PLAIN) then
		if #user > 64 or not find(user, '^[!-~]+$') then
			fail('user: not 1 to 64 bytes of printable ASCII without spaces')
		end
		escapes = true
	end
	if key ~= '' then
		if #key > 64 or not find(key, '^[ -~]*$') then
			fail('key: not at most 64 bytes of printable ASCII')
		end
		keyed = true
	end
	hmget[i + 2] = user
end

-- The coupon

local c = pcall('HMGET', KEYS[1], 'status', 'run_id', 'generation', 'seq', 'total', 'stock',
	'reserved', 'begin', 'end', 'limit')
if c.err then
	fail('coupon: ' .. c.err)
end
if not c[1] and call('EXISTS', KEYS[1]) == 0 then
	return {'missing', 0, 0}
end
for i = 1, 10 do
	if not c[i] then
		fail('coupon: a field is missing')
	end
end

-- Given only digits, tonumber() returns only non-negative integers. (Patterns are anchored, here
-- and above: they scan the text once, whereas '%D' would restart at each byte.)
if not find(concat(c, '', 3), '^%d*$') then
	fail('coupon: a count or time is not a non-negative integer')
end
for i = 3, 10 do
	local n = tonumber(c[i])
	if not n or n > MAX_INT then
		fail('coupon: a count or time is not within 0..2^53-1')
	end
	c[i] = n
end
local status, generation, seq, total, stock = c[1], c[3], c[4], c[5], c[6]
local begin_ms, end_ms, limit = c[8], c[9], c[10]
if status ~= 'open' and status ~= 'paused' and status ~= 'closed' then
	fail('coupon: unknown status')
end
if generation < 1 or limit < 1 or limit > 100 then
	fail('coupon: generation or limit out of range')
end
if stock + c[7] > total then
	fail('coupon: stock and reserved are more than total')
end

if c[2] ~= run_id then
	return {'unverified', generation, seq}
end
if generation < generation_seen or (generation == generation_seen and seq < seq_seen) then
	return {'behind', generation, seq}
end
if generation > generation_seen and generation_seen > 0 then
	local high = tonumber(call('HGET', KEYS[1], 'high:' .. argv[4]) or MAX_INT)
	if not high or high < seq_seen then
		return {'behind', generation, seq}
	end
end

local now = now_ms()

local closed -- the verdict of each request without a known key while none is accepted
if status == 'paused' then
	closed = -6
elseif status == 'closed' then
	closed = -3
elseif now < begin_ms then
	closed = -5
elseif end_ms > 0 and now >= end_ms then
	closed = -3
elseif stock == 0 then
	closed = -2
end

local reply = {'ok', generation, seq, stock, now, begin_ms, ''}

if closed and not keyed then
	for i = 8, count + 7 do
		reply[i] = closed
	end
	return reply
end
if seq > MAX_INT - count then
	fail('coupon: seq has no numbers left')
end

local full = false -- whether the outbox has no room for a message
if not closed then
	local messages = pcall('HLEN', KEYS[3])
	if type(messages) == 'table' then
		fail('outbox: ' .. messages.err)
	end
	full = messages >= unsettled_max
end

-- The users

local records = pcall(unpack(hmget))
if records.err then
	fail('users: ' .. records.err)
end

-- The verdicts. Each accepted request adds to hset (user, records) and to parts (its piece of the
-- body); at[user] is the index of the user's new records in hset.

local hset, last = {'HSET', KEYS[2]}, 2
local parts, size = {}, 0
local at = {}
local accepted = 0
local fresh = '1:' .. batch .. ':'

local NEXT = '",1,""],["' -- ends an entry of slot 1 without a key and begins the next
local ESCAPED, ESCAPE = '["\\]', '\\%0' -- in a string of JSON

for i = 1, count do
	local user, key = hmget[i + 2], argv[HEAD + i * 2]
	local place = at[user]
	local verdict, took

	if key == '' and closed then
		verdict = closed
	elseif key == '' and not full and not place and not records[i] then
		at[user] = last + 2
		hset[last + 1] = user
		hset[last + 2] = fresh .. accepted .. ':'
		last = last + 2
		parts[size + 1] = escapes and string.gsub(user, ESCAPED, ESCAPE) or user
		parts[size + 2] = NEXT
		size = size + 2
		verdict, took = 1, true
	else
		local text = place and hset[place] or records[i]
		local taken, receive = {}, false
		if text then
			taken, receive = records_read(text, key)
			if not taken then
				fail('users: malformed records of user ' .. user)
			end
		end

		if receive then
			verdict = receive
		elseif closed then
			verdict = closed
		else
			-- If the limit was lowered, slots above it still count.
			local used, slot = 0, 1
			for _ in pairs(taken) do
				used = used + 1
			end
			if used >= limit then
				verdict = -4
			elseif full then
				verdict = -20
			else
				while taken[slot] do
					slot = slot + 1
				end
				local record = slot .. ':' .. batch .. ':' .. accepted .. ':' .. key
				if not place then
					place = last + 2
					at[user] = place
					hset[last + 1] = user
					last = place
				end
				hset[place] = text and text .. '\n' .. record or record
				parts[size + 1] = escapes and string.gsub(user, ESCAPED, ESCAPE) or user
				parts[size + 2] = '",' .. slot .. ',"'
					.. string.gsub(key, ESCAPED, ESCAPE) .. '"],["'
				size = size + 2
				verdict, took = slot, true
			end
		end
	end

	if took then
		accepted = accepted + 1
		if accepted == stock then
			closed = -2
		end
	end
	reply[i + 7] = verdict
end

if accepted == 0 then
	return reply
end

-- The message and the writes

parts[size] = sub(parts[size], 1, -4) .. ']}' -- the last entry has no next
local body = '{"v":1,"batch":"' .. batch .. '","coupon":"' .. coupon .. '","generation":'
	.. decimal(generation) .. ',"seq":' .. decimal(seq + 1) .. ',"at":' .. decimal(now)
	.. ',"receives":[["' .. concat(parts)
seq, stock = seq + accepted, stock - accepted

-- The only write that can fail is the first: because the batch exists, or because Redis refuses it
-- (OOM, ...).
local added = pcall('HSETNX', KEYS[3], batch, body)
if added == 0 then
	fail('batch: is in the outbox already')
end
if added ~= 1 then
	return added
end
call(unpack(hset))
call('HSET', KEYS[1], 'stock', decimal(stock), 'seq', decimal(seq))

reply[3], reply[4], reply[7] = seq, stock, body
return reply
