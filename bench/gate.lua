-- wrk: each request issues a coupon to the next user of a file, as many times one after the other
-- as asked for. Arguments: the coupon, the file (lines of a user, and a token if there are any),
-- and how many times. The last line is the result as JSON, times in microseconds.
-- luacheck: globals wrk init request done
local coupon, times, lines
local at = 0

function init(args)
	coupon, times, lines = args[1], tonumber(args[3]), {}
	for line in io.lines(args[2]) do
		lines[#lines + 1] = line
	end
	wrk.method = "POST"
	wrk.headers["Content-Type"] = "application/json"
end

function request()
	local user, token = lines[math.floor(at / times) % #lines + 1]:match("(%S+) ?(%S*)")
	at = at + 1
	if token ~= "" then
		wrk.headers["Authorization"] = "Bearer " .. token
	end
	return wrk.format(nil, "/v1/issue", nil,
		string.format('{"coupon":"%s","user":"%s"}', coupon, user))
end

function done(summary)
	local errors = summary.errors
	print(string.format('{"requests":%d,"duration_us":%d,"refused":%d,"broken":%d}',
		summary.requests, summary.duration, errors.status,
		errors.connect + errors.read + errors.write + errors.timeout))
end
