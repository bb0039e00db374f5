#!/usr/bin/env bash
# Prints the source files, each with the first sentence of its first comment. A file in C and its
# header are one line, with the comment of the header.
#   tree.sh [FOLDER…]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck disable=SC2016 # awk's own $
readonly FIRST='
# The first sentence of the text so far, if it is whole.
function sentence(text) {
	return match(text, /[.]( |$)/) ? substr(text, 1, RSTART) : ""
}
function end() {
	purpose[name] = sentence(text " ")
	if (purpose[name] == "")
		purpose[name] = text
}
FNR == 1 {
	if (NR > 1)
		end()
	name = FILENAME
	text = ""
	state = "before"
}
state == "after" { next }
FNR == 1 && /^#!/ { next }
{
	line = $0
	if (state == "before") {
		if (line ~ /^[ \t]*$/)
			next
		state = line ~ /^\/\*|^--|^#( |$)|^"""/ ? "in" : "after"
		if (state == "after")
			next
	} else if (FILENAME !~ /[.]([ch]|py)$/ && line !~ /^(--|#)/) {
		state = "after"
		next
	}
	ends = line ~ /\*\// || FILENAME ~ /[.]py$/ && line ~ /.+"""$/
	gsub(/^[ \t]*(\/\*|\*\/|\*|--|#|""")[ \t]*|[ \t]*(\*\/|""")$/, "", line)
	if (line != "")
		text = text (text == "" ? "" : " ") line
	if (ends || line == "" && text != "")
		state = "after"
}
END {
	end()
	for (name in purpose) {
		header = name
		sub(/[.]c$/, ".h", header)
		source = name
		sub(/[.]h$/, ".c", source)
		if (name ~ /[.]h$/ && source in purpose)
			continue
		if (name ~ /[.]c$/ && header in purpose)
			purpose[name] = purpose[header]
		folder = name
		sub(/[^\/]*$/, "", folder)
		print folder "\t" substr(name, length(folder) + 1) "\t" purpose[name]
	}
}'

[[ $# -gt 0 ]] || set -- */
mapfile -t files < <(find "$@" \( -name 'build*' -o -name '.?*' \) -prune -o -type f -print |
	grep -E '\.(c|h|lua|sql|sh|py)$')
awk "$FIRST" "${files[@]}" | LC_ALL=C sort | awk -F'\t' '
$1 != folder { print (NR > 1 ? "\n" : "") $1 }
{
	folder = $1
	printf "  %-28s %s\n", $2, $3
}'
