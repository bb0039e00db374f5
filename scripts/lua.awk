# One script for Redis: awk -f scripts/lua.awk lua/prelude.lua lua/NAME.lua
# The script is preceded by the definitions of the prelude that it uses, directly or indirectly. A
# definition is a paragraph of the prelude; the first paragraph is the prelude's comment.

# Without comments and strings.
function code(line) {
	gsub(/'[^']*'/, "", line)
	sub(/--.*/, "", line)
	return line
}

# The names that a paragraph defines, each with a space on both sides.
function names_take(line) {
	if (line ~ /^local function /)
		sub(/\(.*/, "", line)
	else if (!sub(/ = .*/, "", line))
		return ""
	sub(/^local (function )?/, "", line)
	gsub(/[ ,]+/, " ", line)
	return " " line " "
}

function is_used(i, n, j, name) {
	n = split(names[i], name, " ")
	for (j = 1; j <= n; j++)
		if (used ~ "(^|[^A-Za-z0-9_.])" name[j] "([^A-Za-z0-9_]|\n|$)")
			return 1
	return 0
}

FNR == 1 {
	files++
	script = FILENAME
	gsub(/.*\/|\.lua$/, "", script)
}

files == 1 && /^$/ { count++ }
files == 1 && /^local / { names[count] = names[count] names_take(code($0)) }
files == 1 && NF {
	text[count] = text[count] $0 "\n"
	body[count] = body[count] code($0) "\n"
}

files == 2 {
	own = own $0 "\n"
	used = used code($0) "\n"
}

END {
	for (i = count; i >= 1; i--)
		if (is_used(i)) {
			front = text[i] front
			used = body[i] used
		}
	sub(/local SCRIPT = ''[^\n]*/, "local SCRIPT = '" script "'", front)
	printf "%s%s", front, own
}
