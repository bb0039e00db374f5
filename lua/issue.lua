-- Decides requests for coupons and records the decisions. The script is atomic. Each part of a
-- call, up to 256 requests for one coupon, is decided by itself: every error of a part occurs
-- before its first write, and no later write can fail (Redis refuses a script for lack of memory, a
-- full disk or a read-only role only at its first write).
--
-- KEYS  for each part
--       1 coupon:{ID}         hash: the coupon's terms and counts
--       2 coupon:{ID}:users   hash: user -> "SLOT:BATCH:INDEX:KEY" for each taken slot, one a line;
--                             of a claimed exchange code followed by a tab and the code
--       3 coupon:{ID}:outbox  hash: batch -> the exact message body, until its receives are settled
--       4 coupon:{ID}:codes   only of a part with codes; hash: "SET.SERIAL" -> the user who has
--                             claimed it, and a revoked "SET.SERIAL" or "SET" -> ""; with one
--                             of the latter also "*" -> "". "USER ", with a space: claimed, and
--                             revoked later
-- ARGV  1 run_id          of the Redis process the gateway is connected to: see run_id_held()
--       2 unsettled_max   1..2^53-1: while a coupon's outbox has so many messages, none is added
--       then for each part
--       1 coupon          1..2^63-1 in canonical decimal, the ID of its KEYS
--       2 batch           ULID, 26 characters of Crockford's upper-case base 32; never used before
--       3 generation_seen 0..2^53-1, the highest the gateway has seen
--       4 seq_seen        0..2^53-1, the highest it has seen in that generation
--       5 count           1..256; and 'k' if the part has keys, 'c' if it has codes, 't' if it has
--                         traces, in this order. Then as many times user (1..64 bytes, '!' to
--                         '~'), key if it has keys (0..255 bytes of printable ASCII; '' = none),
--                         code if it has codes ('SET.SERIAL' of a code for one use, 'SET' of a
--                         word, '' = none; then, if it has an end of its own, a space and that
--                         in ms since the epoch), and if it has traces what the message says of
--                         it beside the receive (0..184 bytes of printable ASCII; '' = nothing),
--                         of the first 16 that are accepted
--
-- Returns a reply for each part, in order: an error, or {state, generation, seq} where nothing was
-- decided:
--   'missing'     Redis does not have the coupon (generation and seq are 0)
--   'unverified'  the coupon was not verified on this Redis process, or its lease is over
--   'behind'      Redis has a lower number than the gateway has seen, in this generation or an
--                 older one: see report.lua
-- or {'ok', generation, seq, stock, now_ms, begin_ms, body, verdict...}: seq and stock as they are
-- after the call, body '' when nothing was accepted, and for each request, in order:
--   n > 0                  accepted into slot n; its index counts the accepted ones from 0
--   n < 0                  refused with code -n: 2 out_of_stock, 3 ended, 4 limit_reached,
--                          5 not_started, 6 paused, 7 code_invalid (it is revoked), 8 code_used,
--                          16 code_expired (its own end is past), 20 busy (unsettled_max is
--                          reached), 44 key_reused (the user's key is known with another code, or
--                          with or without one)
--   'SLOT:BATCH:INDEX'     the user's key is known, or the user has claimed the code: the receive
--                          that was accepted with it
-- These come before every refusal, and of several refusals the first of this order is returned:
-- key_reused, code_used, code_invalid, code_expired, paused, ended, not_started, out_of_stock,
-- limit_reached, busy.
-- A part that cannot accept any request and has neither key nor code reads only the coupon's hash.
--
-- Errors of run_id, unsettled_max, a count and the number of KEYS are returned instead of all
-- replies. A user's records are checked when they are used.

local concat = table.concat
local argv = ARGV

local TRACES_MOST = 16 -- of a message
local HEAD, PART = 2, 5 -- arguments before the first part, and of a part before its requests
-- A user without the bytes that JSON escapes; digits and capitals are in the first range.
local PLAIN = '^[#-[^-~!%]]+$'
local ONE_TIME = '^[1-9]%d*%.%d+$' -- a code that is no word
local WITH_END = '^([%d.]+) (%d+)$' -- a code with an end of its own
-- What ends an entry of slot 1 without a key and begins the next; with a code, that is between.
local NEXT = '",1,""],["'
local BEFORE_CODE, AFTER_CODE = '",1,"","', '"],["'
local ESCAPED, ESCAPE = '["\\]', '\\%0' -- in a string of JSON
-- The digits of an index, made where one may be needed: Lua takes longer for the text of a number.
local TENS, UNITS

local unsettled_max = tonumber(argv[2])

if #argv < HEAD then
	fail('ARGV: ' .. HEAD .. ' and then the parts are needed')
end
if not find(argv[2], '^[1-9]%d*$') or unsettled_max > MAX_INT then
	fail('unsettled_max: not an integer within 1..2^53-1')
end
local now = now_ms()
local run_id = run_id_held(1, now)

-- Checks the arguments of a part. Returns the command that reads its users, that for its codes
-- (nil: it has none), whether a request has a key or a code, whether a user must be escaped in
-- JSON, whether a code is a word, and by request the ends of codes (nil: none). The checks are
-- inline, where other scripts call functions of the prelude: this script runs for every request.
local function arguments_read(place, from, count, has_keys, has_codes, has_traces)
	local coupon, batch = argv[from], argv[from + 1]
	local generation, seq = argv[from + 2], argv[from + 3]

	if not find(coupon, '^[1-9]%d*$') or #coupon > 19 or (#coupon == 19 and coupon > MAX_ID) then
		fail('coupon: not a positive 64-bit integer in canonical decimal')
	end
	local base = 'coupon:{' .. coupon .. '}'
	if KEYS[place] ~= base or KEYS[place + 1] ~= base .. ':users'
		or KEYS[place + 2] ~= base .. ':outbox' then
		fail('KEYS: not the keys of coupon ' .. coupon)
	end
	if #batch ~= 26 or not find(batch, '^[0-7][0-9A-HJKMNP-TV-Z]*$') then
		fail('batch: not a ULID')
	end
	if not find(generation .. seq, '^%d*$') or find(generation, '^0.') or find(seq, '^0.') then
		fail('generation_seen, seq_seen: not an integer in canonical decimal')
	end
	if (tonumber(generation) or MAX_INT + 1) > MAX_INT or (tonumber(seq) or MAX_INT + 1) > MAX_INT then
		fail('generation_seen, seq_seen: not within 0..2^53-1')
	end

	if has_codes and KEYS[place + 3] ~= base .. ':codes' then
		fail('KEYS: not the keys of coupon ' .. coupon)
	end
	local hmget = {'HMGET', KEYS[place + 1]}
	local codes = has_codes and {'HMGET', KEYS[place + 3]} or nil
	local keyed, escapes, words, ends = false, false, false, nil
	local at = from + PART
	for i = 1, count do
		local user = argv[at]
		if #user > 64 or not find(user, PLAIN) then
			if #user > 64 or not find(user, '^[!-~]+$') then
				fail('user: not 1 to 64 bytes of printable ASCII without spaces')
			end
			escapes = true
		end
		hmget[i + 2] = user
		at = at + 1
		if has_keys then
			local key = argv[at]
			if #key > KEY_MOST or not find(key, '^[ -~]*$') then
				fail('key: not at most 255 bytes of printable ASCII')
			end
			keyed = keyed or key ~= ''
			at = at + 1
		end
		if codes then
			local code = argv[at]
			if #code > CODE_MOST or not find(code, ONE_TIME) then
				local own, last = match(code, WITH_END)
				if own then
					code, ends = own, ends or {}
					ends[i] = integer(last) or fail('code: its end is malformed')
				end
				if code ~= '' and not code_is_valid(code) then
					fail('code: not SET.SERIAL or SET')
				end
				words = words or not find(code, ONE_TIME)
			end
			codes[i + 2] = code
			keyed = true
			at = at + 1
		end
		if has_traces then
			if #argv[at] > 184 or not find(argv[at], '^[ -~]*$') then
				fail('trace: not at most 184 bytes of printable ASCII')
			end
			at = at + 1
		end
	end
	return hmget, codes, keyed, escapes, words, ends
end

-- Reads the coupon's hash, with numbers where they belong; nil: there is none.
local function coupon_read(key)
	local c = pcall('HMGET', key, 'status', 'run_id', 'generation', 'seq', 'total', 'stock',
		'reserved', 'begin', 'end', 'limit')
	if c.err then
		fail('coupon: ' .. c.err)
	end
	if not c[1] and call('EXISTS', key) == 0 then
		return nil
	end
	for i = 1, 10 do
		if not c[i] then
			fail('coupon: a field is missing')
		end
	end

	-- Given only digits, tonumber() returns only non-negative integers. (Patterns are anchored,
	-- here and above: they scan the text once, whereas '%D' would restart at each byte.)
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
	local status, limit = c[1], c[10]
	if status ~= 'open' and status ~= 'paused' and status ~= 'closed' then
		fail('coupon: unknown status')
	end
	if c[3] < 1 or limit < 1 or limit > 100 then
		fail('coupon: generation or limit out of range')
	end
	if c[6] + c[7] > c[5] then
		fail('coupon: stock and reserved are more than total')
	end
	return c
end

-- The verdict of each request without a known key while none can be accepted; nil: they can.
local function closed_verdict(c)
	if c[1] == 'paused' then
		return -6
	elseif c[1] == 'closed' then
		return -3
	elseif now < c[8] then
		return -5
	elseif c[9] > 0 and now >= c[9] then
		return -3
	elseif c[6] == 0 then
		return -2
	end
end

-- The number of slots taken, and the lowest one that is free. If the limit was lowered, slots above
-- it still count.
local function slots_count(taken)
	local used, slot = 0, 1
	for _ in pairs(taken) do
		used = used + 1
	end
	while taken[slot] do
		slot = slot + 1
	end
	return used, slot
end

-- Runs the command that reads the codes of a part. Returns for each request what Redis has of its
-- code, the user who has claimed it, '' if it is revoked, otherwise false; and which sets are
-- revoked (nil: none).
local function codes_read(codes, count)
	codes[count + 3] = SETS_REVOKED
	local found, revoked = pcall(unpack(codes)), nil
	if found.err then
		fail('codes: ' .. found.err)
	end
	if found[count + 1] then
		revoked = {}
		for i = 3, count + 2 do
			local set = match(codes[i], '^%d+')
			if set and revoked[set] == nil then
				revoked[set] = call('HGET', codes[2], set) == ''
			end
		end
	end
	return found, revoked
end

local function digits_make()
	TENS = {'', '1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11', '12', '13', '14',
		'15', '16', '17', '18', '19', '20', '21', '22', '23', '24', '25'}
	UNITS = {'0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}
end

-- Decides the part whose keys begin at KEYS[place], and its arguments at argv[from].
local function decide(place, from, count, has_keys, has_codes, has_traces)
	local key, users_key, outbox_key = KEYS[place], KEYS[place + 1], KEYS[place + 2]
	local coupon, batch = argv[from], argv[from + 1]
	local hmget, codes, keyed, escapes, words, ends =
		arguments_read(place, from, count, has_keys, has_codes, has_traces)
	local c = coupon_read(key)
	if not c then
		return {'missing', 0, 0}
	end
	local generation, seq, stock, limit = c[3], c[4], c[6], c[10]
	if c[2] ~= run_id then
		return {'unverified', generation, seq}
	end
	if is_behind(key, generation, seq, argv[from + 2], argv[from + 3]) then
		return {'behind', generation, seq}
	end

	local closed = closed_verdict(c)
	local reply = {'ok', generation, seq, stock, now, c[8], ''}
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
		if not TENS then
			digits_make()
		end
		local messages = pcall('HLEN', outbox_key)
		if type(messages) == 'table' then
			fail('outbox: ' .. messages.err)
		end
		full = messages >= unsettled_max
	end
	local records = pcall(unpack(hmget))
	if records.err then
		fail('users: ' .. records.err)
	end
	-- What Redis has of each code, the revoked sets, and who claims which code in this call, also
	-- as the arguments of the HSET.
	local owners, revoked
	local claimer, claimed, claimed_n = {}, {}, 0
	if codes then
		owners, revoked = codes_read(codes, count)
	end

	-- The verdicts. Each accepted request adds to hset (user, records) and to pieces (its part of
	-- the body); at[user] is the index of the user's new records in hset.
	local hset, last = {'HSET', users_key}, 2
	local pieces, size = {}, 0
	local at = {}
	local accepted = 0
	local fresh = '1:' .. batch .. ':'
	local each = 1 + (has_keys and 1 or 0) + (has_codes and 1 or 0) + (has_traces and 1 or 0)
	local key_at = from + PART + 1 -- used if it has keys
	local traces = {}

	for i = 1, count do
		local user, word = hmget[i + 2], has_keys and argv[key_at] or ''
		local own = at[user]
		local verdict, took
		local code, bad -- bad: the verdict on a code that the user cannot claim

		if codes then
			code = codes[i + 2]
			if code == '' then
				code = nil
			elseif claimer[code] or owners[i] and owners[i] ~= '' then
				bad = -8
			elseif owners[i] or revoked and revoked[match(code, '^%d+')] then
				bad = -7
			elseif ends and ends[i] and now >= ends[i] then
				bad = -16
			end
		end
		key_at = key_at + each

		if word == '' and closed and not code then
			verdict = closed
		elseif word == '' and not full and not own and not records[i] and not bad
			and not closed then
			at[user] = last + 2
			hset[last + 1] = user
			pieces[size + 1] = escapes and string.gsub(user, ESCAPED, ESCAPE) or user
			local unit = accepted % 10
			local ten = TENS[(accepted - unit) / 10 + 1]
			if code then
				hset[last + 2] = fresh .. ten .. UNITS[unit + 1] .. ':\t' .. code
				pieces[size + 2], pieces[size + 3] = BEFORE_CODE, code
				pieces[size + 4] = AFTER_CODE
				size = size + 4
			else
				hset[last + 2] = fresh .. ten .. UNITS[unit + 1] .. ':'
				pieces[size + 2] = NEXT
				size = size + 2
			end
			last = last + 2
			verdict, took = 1, true
		else
			local text = own and hset[own] or records[i]
			local taken, receive, reused = {}, false, false
			if text then
				taken, receive, reused = records_read(text, word, nil, code)
				if not taken then
					fail('users: malformed records of user ' .. user)
				end
			end
			local used, slot = slots_count(taken)

			local refused = bad or closed

			if reused then
				verdict = -44
			elseif receive then
				verdict = receive
			elseif refused then
				verdict = refused
			elseif used >= limit then
				verdict = -4
			elseif full then
				verdict = -20
			else
				local record = slot .. ':' .. batch .. ':' .. accepted .. ':' .. word
				if code then
					record = record .. '\t' .. code
				end
				if not own then
					own = last + 2
					at[user] = own
					hset[last + 1] = user
					last = own
				end
				hset[own] = text and text .. '\n' .. record or record
				pieces[size + 1] = escapes and string.gsub(user, ESCAPED, ESCAPE) or user
				pieces[size + 2] = '",' .. slot .. ',"'
					.. string.gsub(word, ESCAPED, ESCAPE)
					.. (code and '","' .. code or '') .. '"],["'
				size = size + 2
				verdict, took = slot, true
			end
		end

		if took then
			local trace = has_traces and argv[from + PART + i * each - 1] or ''
			if trace ~= '' and #traces < TRACES_MOST then
				traces[#traces + 1] = '"' .. accepted .. '":"'
					.. string.gsub(trace, ESCAPED, ESCAPE) .. '"'
			end
			accepted = accepted + 1
			if code and not (words and find(code, '^%d+$')) then
				claimer[code] = user
				claimed[claimed_n + 1], claimed[claimed_n + 2] = code, user
				claimed_n = claimed_n + 2
			end
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
	pieces[size] = sub(pieces[size], 1, -4) .. ']}' -- the last entry has no next
	local body = '{"v":1,"batch":"' .. batch .. '","coupon":"' .. coupon .. '","generation":'
		.. decimal(generation) .. ',"seq":' .. decimal(seq + 1) .. ',"at":' .. decimal(now)
		.. ',"receives":[["' .. concat(pieces)
	if #traces > 0 then
		body = sub(body, 1, -2) .. ',"traces":{' .. concat(traces, ',') .. '}}'
	end
	seq, stock = seq + accepted, stock - accepted

	-- The only write that can fail is the first: because the batch exists, or because Redis
	-- refuses it (OOM, ...).
	local added = pcall('HSETNX', outbox_key, batch, body)
	if added == 0 then
		fail('batch: is in the outbox already')
	end
	if added ~= 1 then
		return added
	end
	call(unpack(hset))
	if claimed_n > 0 then
		call('HSET', KEYS[place + 3], unpack(claimed))
	end
	call('HSET', key, 'stock', decimal(stock), 'seq', decimal(seq))

	reply[3], reply[4], reply[7] = seq, stock, body
	return reply
end

-- The arguments of decide() for each part, before any is decided.
local parts, place, from = {}, 1, HEAD + 1
repeat
	local digits, k, c, t = match(argv[from + PART - 1] or '', '^(%d+)(k?)(c?)(t?)$')
	local count = tonumber(digits)
	if not count or count < 1 or count > MAX_INDEX + 1 then
		fail('count: not an integer within 1..256, perhaps with k, c and t')
	end
	parts[#parts + 1] = {place, from, count, k ~= '', c ~= '', t ~= ''}
	place, from = place + 3 + #c, from + PART + count * (1 + #k + #c + #t)
until place > #KEYS or from > #argv
if place ~= #KEYS + 1 then
	fail('KEYS: 3 are needed for each part, 4 for one with codes')
end
if from ~= #argv + 1 then
	fail('ARGV: not as many requests as the counts say')
end

local replies = {}
for i, part in ipairs(parts) do
	local done, reply = protected(decide, unpack(part))
	replies[i] = reply
	if not done and type(reply) ~= 'table' then
		replies[i] = {err = reply} -- an error of the script itself
	end
end
return replies
