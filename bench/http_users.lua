-- For wrk: POST /v1/issue of random users for the coupon BENCH_COUPON; docs/about/performance.md.
-- luacheck: globals wrk request
local coupon = os.getenv("BENCH_COUPON")
math.randomseed(os.time())
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"

function request()
	local user = string.format("%d%09d", math.random(0, 2147483647), math.random(0, 999999999))
	local body = string.format('{"coupon":"%s","user":"%s"}', coupon, user)
	return wrk.format(nil, "/v1/issue", nil, body)
end
