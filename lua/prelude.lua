-- Definitions that the scripts share. The build (scripts/lua.awk) prepends to each script the
-- definitions that it uses, directly or indirectly. Blank lines separate the definitions.
--
-- fail() and the checks that call it end the script, which returns the error "ERR couponmq: <the
-- argument, field or key, and what is wrong with it>". They are called only before the first write:
-- where there is an error, nothing is written. Errors of Redis itself are returned unchanged.

local SCRIPT = '' -- the name of the script, set by the build

local protected = pcall -- Lua's own

local call = redis.call

local pcall = redis.pcall

local find = string.find

local match = string.match

local sub = string.sub

local format = string.format

local MAX_INT = 9007199254740991 -- 2^53-1: above it Lua's numbers are not exact

local MAX_ID = '9223372036854775807'

local MAX_INDEX = 255 -- of a receive in its batch

-- The run_id of a coupon that is held for a rebuild (hold.lua). It matches no Redis process.
local RUN_ID_NONE = string.rep('0', 40)

-- The format of a record that is passed as an argument, in fill.lua and late.lua.
local RECORD_SHAPE = '^[1-9]%d?%d?:[0-7][0-9A-HJKMNP-TV-Z]*:%d%d?%d?:[ -~]*\t?[%d.]*$'

-- An exchange code, as records and messages name it: 'SET.SERIAL', or 'SET' if it is a word, which
-- many users claim.
local CODE_SHAPE = '^[1-9]%d*%.?%d*$'

local CODE_MOST = 39 -- bytes

local KEY_MOST = 255 -- bytes of an idempotency key

local DOT = 46

local function code_is_valid(code)
	return #code <= CODE_MOST and find(code, CODE_SHAPE) and string.byte(code, -1) ~= DOT
end

-- The field of coupon:{ID}:codes that is there if a whole set or a word is revoked.
local SETS_REVOKED = '*'

-- What coupon:{ID}:codes has of a code is the user who has claimed it, '' if it is revoked, or the
-- user and a space: revoked as soon as that receive, which was accepted before, loses it.
local REVOKED_THEN = ' '

-- What is written of a code that this user has claimed, over what is there (false: nothing).
local function code_claimed(there, user)
	return there and (there == '' or sub(there, -1) == REVOKED_THEN) and user .. REVOKED_THEN
		or user
end

-- What is written of a code that this user's receive has lost: nil: it is another user's; false: it
-- is deleted, because it is free again.
local function code_freed(there, user)
	if there == user then
		return false
	end
	return there == user .. REVOKED_THEN and '' or nil
end

-- Whether another user has claimed the code.
local function code_is_of_another(there, user)
	return there and there ~= '' and there ~= user and there ~= user .. REVOKED_THEN or false
end

-- The command that marks codes as revoked, from argument `first` on; nil: all of them are. `key` is
-- that of the codes.
local function codes_revoke(key, first)
	if #ARGV < first then
		return nil
	end
	local there = call('HMGET', key, unpack(ARGV, first))
	local hset, has_set = {'HSET', key}, false
	for i, text in ipairs(there) do
		local code = ARGV[first + i - 1]
		if not text or text ~= '' and sub(text, -1) ~= REVOKED_THEN then
			hset[#hset + 1] = code
			hset[#hset + 1] = text and text .. REVOKED_THEN or ''
			has_set = has_set or not find(code, '.', 1, true)
		end
	end
	if has_set then
		hset[#hset + 1] = SETS_REVOKED
		hset[#hset + 1] = ''
	end
	return #hset > 2 and hset or nil
end

-- Returns the code that only one user can claim, at the end of a record; nil: it has none.
local function code_of(record)
	return find(record, '\t', 1, true) and match(record, '\t(%d+%.%d+)$') or nil
end

-- Ends the script with an error: `what` begins with the argument, field or key that is wrong.
local function fail(what)
	error({err = 'ERR couponmq: ' .. what .. ' (' .. SCRIPT .. '.lua)'})
end

-- Returns the number if the text is an integer within least..most (0..2^53-1) in canonical decimal,
-- otherwise nil.
local function integer(text, least, most)
	if not text or not find(text, '^%d+$') or #text > 16 or find(text, '^0.') then
		return nil
	end
	local n = tonumber(text)
	return n >= (least or 0) and n <= (most or MAX_INT) and n or nil
end

-- '%d' is three times as fast as '%.0f', but a C long may have 32 bits.
local function decimal(n)
	return format(n < 2147483648 and '%d' or '%.0f', n)
end

-- Redis' clock, in ms since the epoch.
local function now_ms()
	local time = call('TIME')
	return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- KEYS must be coupon:{ID}, followed by that name with each of these suffixes.
local function keys_check(...)
	local base = KEYS[1] or ''
	if #KEYS ~= 1 + select('#', ...) or not find(base, '^coupon:{[1-9]%d*}$') then
		fail('KEYS: not a coupon, and ' .. table.concat({...}, ', ') .. ' of it')
	end
	for i = 2, #KEYS do
		if KEYS[i] ~= base .. select(i - 1, ...) then
			fail('KEYS: ' .. KEYS[i] .. ': not ' .. base .. select(i - 1, ...))
		end
	end
	return base
end

-- Each key must have this type or be absent. false: any type.
local function types_check(...)
	for i, wanted in ipairs({...}) do
		local found = call('TYPE', KEYS[i]).ok
		if wanted and found ~= 'none' and found ~= wanted then
			fail(KEYS[i] .. ': not a ' .. wanted)
		end
	end
end

local function arguments_check(least, most)
	if #ARGV < least or #ARGV > most then
		fail('ARGV: ' .. #ARGV .. ' arguments')
	end
end

-- Revoked codes as arguments, from `first` on.
local CODES_MOST = 1024

local function codes_check(first)
	arguments_check(first - 1, first - 1 + CODES_MOST)
	for i = first, #ARGV do
		if not code_is_valid(ARGV[i]) then
			fail('code: not SET.SERIAL or SET')
		end
	end
end

-- Returns the number of groups of `each` arguments after the first `head` ones: 1..most.
local function groups_count(head, each, most)
	local count = (#ARGV - head) / each
	if count < 1 or count > most or count % 1 ~= 0 then
		fail('ARGV: ' .. head .. ' and then 1 to ' .. most .. ' times ' .. each
			.. ' needed')
	end
	return count
end

-- Returns an argument as a number.
local function integer_check(i, name, least, most)
	least = least or 0
	return integer(ARGV[i], least, most)
		or fail(name .. ': not an integer within ' .. least .. '..' .. (most or '2^53-1'))
end

local function run_id_valid(run_id)
	if #run_id ~= 40 or not find(run_id, '^[%da-f]*$') then
		fail('run_id: not 40 hexadecimal digits')
	end
	return run_id
end

local function run_id_check(i)
	return run_id_valid(ARGV[i])
end

-- The argument run_id of a gateway: 40 hexadecimal digits, and under Redis Sentinel ':FROM:UNTIL',
-- the lease of this master (master_lease.lua). Outside of it the run id is '', that of no coupon.
local function run_id_held(i, now)
	local run_id, from, to = match(ARGV[i], '^(%x*):(%d+):(%d+)$')
	run_id = run_id_valid(run_id or ARGV[i])
	if from and (now < tonumber(from) or now >= tonumber(to)) then
		return ''
	end
	return run_id
end

local function status_check(i)
	if ARGV[i] ~= 'open' and ARGV[i] ~= 'paused' and ARGV[i] ~= 'closed' then
		fail('status: not open, paused or closed')
	end
	return ARGV[i]
end

local function user_check(user)
	if #user > 64 or not find(user, '^[!-~]+$') then
		fail('user: not 1 to 64 bytes of printable ASCII without spaces')
	end
	return user
end

-- Returns whether a gateway has seen a higher number of the coupon than Redis has, in this
-- generation or in an older one (report.lua). What it has seen is text of digits; '0': nothing.
local function is_behind(key, generation, seq, generation_seen, seq_seen)
	local seen = tonumber(generation_seen)
	if generation < seen or seen == 0 then
		return generation < seen
	end
	if generation > seen then
		seq = tonumber(call('HGET', key, 'high:' .. generation_seen) or MAX_INT)
	end
	return not seq or seq < tonumber(seq_seen)
end

-- For how long gateways may report what they have seen after a rebuild of lost data (place.lua).
local REPORTS_MS = 2500

-- Returns whether these reports may be missing. The clock may have been set back meanwhile.
local function is_counting(loss_at, now)
	return loss_at and now >= loss_at and now - loss_at < REPORTS_MS
end

-- An argument of the keeper's scripts: 'NUMBER:FROM:UNTIL', the keeper's fence, and the times of
-- Redis' clock (ms) within which its lock is held. Returns the number, and whether the script runs
-- outside these times. Then another keeper may have been elected: nothing may be written. A time
-- before FROM means that the clock was set back. A script that finds this, or that the coupon has a
-- higher fence, writes nothing and returns 'fenced'.
local function fence_check(i)
	local number, from, to = match(ARGV[i] or '', '^(%d+):(%d+):(%d+)$')
	number, from, to = integer(number), integer(from), integer(to)
	if not number or not from or not to then
		fail('fence: not NUMBER:FROM:UNTIL')
	end
	local now = now_ms()
	return number, now < from or now >= to
end

-- Returns whether the coupon's field `fence`, as text, is higher than this keeper's fence.
local function is_fenced(text, fence)
	return (integer(text) or fail('coupon: its fence is malformed')) > fence
end

-- Parses one record: 'SLOT:BATCH:INDEX:KEY', and a tab and the code if one was claimed. Returns
-- its receive 'SLOT:BATCH:INDEX', slot, key, and '' or the tab and the code; nil if it is
-- malformed.
local function record_parse(record)
	local receive, slot, batch, index, key, rest =
		match(record, '^(([1-9]%d?%d?):([0-7][0-9A-HJKMNP-TV-Z]*):(%d%d?%d?)):([ -~]*)(.*)$')
	slot = tonumber(slot)
	if not slot or #batch ~= 26 or #key > KEY_MOST or find(index, '^0.') or slot > 100
		or tonumber(index) > MAX_INDEX then
		return nil
	end
	if rest ~= '' and not (sub(rest, 1, 1) == '\t' and code_is_valid(sub(rest, 2))) then
		return nil
	end
	return receive, slot, key, rest
end

-- Parses a user's records, one per line. Returns the receive of each taken slot, the receive with
-- this key, or else with this code (false: none), and whether the one with the key has another code
-- than this one (nil: none); nil if they are malformed. Appends the lines to `lines`, if given.
local function records_read(text, wanted, lines, code)
	local taken, found, claimed, reused, from = {}, false, false, false, 1
	local asked_rest = code and '\t' .. code or ''
	local wanted_rest = code and find(code, '.', 1, true) and asked_rest
	while from do
		local stop = find(text, '\n', from, true)
		local line = sub(text, from, (stop or 0) - 1)
		local receive, slot, key, rest = record_parse(line)
		if not receive or taken[slot] then
			return nil
		end
		taken[slot] = receive
		if lines then
			lines[#lines + 1] = line
		end
		if key == wanted and key ~= '' then
			found, reused = receive, rest ~= asked_rest
		end
		if rest == wanted_rest then
			claimed = receive
		end
		from = stop and stop + 1
	end
	return taken, found or claimed, reused
end

-- Until a report expires whose coupon Redis does not have.
local REPORT_ALONE_MS = '86400000'

-- A coupon that is no placeholder has these counts.
local function counts_check(placeholder, stock, reserved)
	if not placeholder and not (integer(stock) and integer(reserved)) then
		fail('coupon: its stock or reserved is malformed')
	end
end

-- Records the highest number that a gateway has seen of one generation of the coupon KEYS[1] in
-- its key ':seen'. In a generation older than the coupon's these receives are in flight: their
-- units move from the stock to reserved at once. Returns whether it is higher than the one that
-- Redis has. The counts are checked before: see counts_check().
local function seen_record(seen, generation, seq)
	local name, high = decimal(generation), 'high:' .. decimal(generation)
	local c = call('HMGET', KEYS[1], 'generation', 'stock', 'reserved', high, 'placeholder', 'seq')
	local current = not c[5] and integer(c[1])
	if current and current > generation then
		local known = integer(c[4])
		if not known or known >= seq then
			return false
		end
		local stock, reserved = integer(c[2]), integer(c[3])
		local moved = math.min(seq - known, stock)
		call('HSET', KEYS[1], high, decimal(seq), 'stock', decimal(stock - moved),
			'reserved', decimal(reserved + moved))
		return true
	end
	if current == generation and (integer(c[6]) or 0) >= seq then
		return false
	end
	local reported = integer(call('HGET', seen, name))
	if reported and reported >= seq then
		return false
	end
	call('HSET', seen, name, decimal(seq))
	-- The report expires with the coupon. If Redis does not have the coupon, the keeper reads the
	-- report when it loads the coupon; for a settled campaign it is not needed.
	local expires = call('PEXPIRETIME', KEYS[1])
	if expires > 0 then
		call('PEXPIREAT', seen, decimal(expires))
	elseif not current then
		call('PEXPIRE', seen, REPORT_ALONE_MS)
	end
	return true
end
