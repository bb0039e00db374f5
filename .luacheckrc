-- Scripts of Redis. lua/prelude.lua stands in front of each of the others, so that what it defines
-- is known in them.
std = 'lua51'
max_line_length = 100
read_globals = { 'redis', 'cjson', 'KEYS', 'ARGV' }
files['lua/prelude.lua'].ignore = { '211' } -- no script uses all of it
for line in io.lines('lua/prelude.lua') do
	local names = line:match('^local function ([%w_]+)') or line:match('^local ([%w_, ]+)')
	for name in (names or ''):gmatch('[%w_]+') do
		read_globals[#read_globals + 1] = name
	end
end
files['bench/keep_alive.lua'] = { -- a script of wrk
	read_globals = { 'number' },
	globals = { 'setup', 'init', 'request', 'done', 'wrk' },
}
