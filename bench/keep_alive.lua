-- wrk: each request issues a coupon to a random user. Arguments: the coupon, and a seed.
-- The last line is the result as JSON, times in microseconds.
local coupon
local threads = 0

function setup(thread)
	threads = threads + 1
	thread:set("number", threads)
end

function init(args)
	coupon = args[1]
	math.randomseed(tonumber(args[2]) + number)
	wrk.method = "POST"
	wrk.headers["Content-Type"] = "application/json"
end

-- 18 digits.
local function user()
	return string.format("%d%09d", math.random(100000000, 999999999), math.random(0, 999999999))
end

function request()
	local body = string.format('{"coupon":"%s","user":"%s"}', coupon, user())
	return wrk.format(nil, "/v1/issue", nil, body)
end

function done(summary, latency)
	local errors = summary.errors
	print(string.format(
		'{"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"refused":%d,"broken":%d}',
		summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
		errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
