-- Locks: a lock is taken, or waited for in its queue; its lease is extended; it is given up, or the
-- place in the queue, and those who can take it now are woken.
--
-- KEYS  1 couponmq:lock:{NAME}        hash: fence, ticket (the last ones), and for each holder
--                                     KIND:TOKEN = 'UNTIL FENCE LEASE' (ms of Redis' clock)
--       2 couponmq:lock:{NAME}:queue  sorted set: KIND:TOKEN of those who wait, by their tickets
--       3 couponmq:lock:{NAME}:seen   sorted set: the same, by the time at which each is given up
-- ARGV  1 what       take, renew or release
--       2 kind       x exclusive, f fair, r read, w write
--       3 token      SESSION.NUMBER, 3..128 bytes
--       4 lease_ms   100..86400000, to take or renew it
--       5 waiter_ms  to take it: for how long it waits if it does not ask again: 0..60000; 0: it
--                    does not wait
--
-- Returns
--   take     {1, UNTIL, FENCE}, or {0, LEFT}: the ms until the next lease ends, 0 if it waits only
--            for others that wait. The fence grows with each grant, also after Redis has lost its
--            data: it is at least the time in microseconds. A holder that takes the lock again with
--            its token gets its grant again, with a new lease.
--   renew    UNTIL, the time of Redis' clock (ms) until which it has the lock; 0: its lease has
--            ended
--   release  1, or 0 if it does not have the lock: it never had it, or its lease has ended

local LEASE_MOST_MS = 86400000 -- a day
local WAITER_MOST_MS = 60000
local SET_BACK_MS = 600000 -- ten minutes

local ARGUMENTS = {take = 5, renew = 4, release = 3}

local base, what = KEYS[1] or '', ARGV[1]
if #KEYS ~= 3 or #base > 256 or not find(base, '^couponmq:lock:{[!-~]+}$')
	or KEYS[2] ~= base .. ':queue' or KEYS[3] ~= base .. ':seen' then
	fail('KEYS: not a lock, and :queue, :seen of it')
end
if not ARGUMENTS[what] then
	fail('what: not take, renew or release')
end
arguments_check(ARGUMENTS[what], ARGUMENTS[what])
if not find(ARGV[2], '^[xfrw]$') then
	fail('kind: not x, f, r or w')
end
if #ARGV[3] > 128 or not find(ARGV[3], '^[!-~]+%.%d+$') then
	fail('token: not SESSION.NUMBER of 3 to 128 bytes of printable ASCII without space')
end
local kind, me = ARGV[2], ARGV[2] .. ':' .. ARGV[3]
local lease_ms = what ~= 'release' and integer_check(4, 'lease_ms', 100, LEASE_MOST_MS)
local waiter_ms = what == 'take' and integer_check(5, 'waiter_ms', 0, WAITER_MOST_MS)
types_check('hash', 'zset', 'zset')
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)

local function leave(waiter)
	call('ZREM', KEYS[2], waiter)
	call('ZREM', KEYS[3], waiter)
end

-- Ends the leases and the waits whose time is over. A lease that would last ten minutes longer than
-- it was given for is over as well: Redis' clock was set back. Returns the number of holders,
-- whether one of them shares with nobody, the ms until the next lease ends (0: none), and the fence
-- of `me` as text, if it has the lock.
local function look()
	local holders, writer, left_ms, own = 0, false, 0, nil
	local fields = call('HGETALL', KEYS[1])
	for i = 1, #fields, 2 do
		local holder = fields[i]
		if sub(holder, 2, 2) == ':' then
			local ends, fence, lease = match(fields[i + 1], '^(%d+) (%d+) (%d+)$')
			local left = (integer(ends) or 0) - now
			if left <= 0 or left > tonumber(lease) + SET_BACK_MS then
				call('HDEL', KEYS[1], holder)
			else
				holders = holders + 1
				writer = writer or sub(holder, 1, 1) ~= 'r'
				left_ms = left_ms == 0 and left or math.min(left_ms, left)
				own = holder == me and fence or own
			end
		end
	end
	for _, range in ipairs({{'-inf', now}, {now + WAITER_MOST_MS + 1, '+inf'}}) do
		for _, waiter in ipairs(call('ZRANGEBYSCORE', KEYS[3], range[1], range[2])) do
			leave(waiter)
		end
	end
	return holders, writer, left_ms, own
end

-- The keys outlive every lease and every wait. With its hash the last fence is forgotten; the clock
-- has passed it by then.
local function keep()
	call('PEXPIRE', KEYS[1], 2 * LEASE_MOST_MS)
	call('PEXPIRE', KEYS[2], 2 * WAITER_MOST_MS)
	call('PEXPIRE', KEYS[3], 2 * WAITER_MOST_MS)
end

-- Records that it has the lock. Returns until when.
local function hold(fence)
	call('HSET', KEYS[1], me,
		decimal(now + lease_ms) .. ' ' .. fence .. ' ' .. decimal(lease_ms))
	keep()
	return now + lease_ms
end

-- Tells those who wait and can take it beside so many holders: the first one, or the readers that
-- are first. A reader that takes it tells the next ones. Each listens to the channel of its
-- session. Without the right to publish they find out by themselves, later.
local function wake(beside)
	for i, waiter in ipairs(call('ZRANGE', KEYS[2], 0, 15)) do
		local reads = sub(waiter, 1, 1) == 'r'
		if not reads and (beside > 0 or i > 1) then
			return
		end
		-- Nobody listens to the channel of a malformed waiter.
		local session = match(waiter, '^.:(.*)%.%d+$') or ''
		pcall('PUBLISH', 'couponmq:lock:wake:' .. session, waiter)
		if not reads then
			return
		end
	end
end

local holders, writer, left_ms, own = look()

if what == 'release' then
	if own then
		call('HDEL', KEYS[1], me)
	end
	leave(me)
	if own or not writer then -- who shared it with a reader is no writer
		wake(own and holders - 1 or holders)
	end
	return own and 1 or 0
end

if own then
	local ends = hold(own)
	return what == 'renew' and ends or {1, ends, tonumber(own)}
end
if what == 'renew' then
	return 0
end

-- Returns whether a waiter comes before this request.
local function is_behind_another()
	if kind == 'x' then
		return false
	end
	for _, waiter in ipairs(call('ZRANGE', KEYS[2], 0, -1)) do
		local other = sub(waiter, 1, 1)
		if waiter == me then
			return false
		end
		if other ~= 'x' and (kind ~= 'r' or other ~= 'r') then
			return true
		end
	end
	return false
end

if writer or (holders > 0 and kind ~= 'r') or is_behind_another() then
	if waiter_ms > 0 then
		if not call('ZSCORE', KEYS[2], me) then
			-- HINCRBY would fail on what is no number, after look() has written.
			local ticket = (integer(call('HGET', KEYS[1], 'ticket')) or 0) + 1
			call('HSET', KEYS[1], 'ticket', decimal(ticket))
			call('ZADD', KEYS[2], ticket, me)
		end
		call('ZADD', KEYS[3], now + waiter_ms, me)
		keep()
	end
	return {0, left_ms}
end

local fence = math.max((integer(call('HGET', KEYS[1], 'fence') or '0') or 0) + 1, now_us)
call('HSET', KEYS[1], 'fence', decimal(fence))
local ends = hold(decimal(fence))
leave(me)
if kind == 'r' then
	wake(holders + 1)
end
return {1, ends, fence}
