std = 'lua51'
max_line_length = 100
read_globals = { 'redis', 'cjson', 'KEYS', 'ARGV' }
