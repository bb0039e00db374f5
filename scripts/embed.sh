#!/usr/bin/env bash
# Turns text files into C strings: embed.sh OUT.h OUT.c FILE…
# lua/issue.lua becomes `lua_issue`, after the definitions of lua/prelude.lua that it uses;
# the statement `settle` of sql/query/receive.sql becomes `sql_query_settle`. A file of docs/ has a
# tag that changes with it: `docs_reference_openapi_tag`.
# The files of the console (console/NAME) are in the table `console_files`, each with its tag; so
# are pages of the documents, docs/guides/runbook.md as manual/guides/runbook.md.
# The tables (sql/schema/*.sql, in the order of their names) are together the first of `migrations`;
# later ones (sql/migration/NNNN_name.sql) follow in order. The files of functions
# (sql/function/NAME.sql) are in the table `functions`. The tables end with a name of NULL.
# No file costs a process of its own.
set -euo pipefail

header=$1
source=$2
shift 2
prelude=lua/prelude.lua
scripts=${0%/*}
declare -A names=() sums=()
files=() lua=() others=() schema=() query=()
for file in "$@"; do
	[[ $file != "$prelude" ]] || continue
	if [[ $file == sql/schema/* ]]; then
		schema+=("$file")
		continue
	fi
	if [[ $file == sql/query/* ]]; then
		query+=("$file")
		continue
	fi
	name=${file%.*}
	[[ $file != console/* && $file != *.md ]] || name=$file
	names[$file]=${name//[\/.-]/_}
	files+=("$file")
	case $file in
	lua/*) lua+=("$file") ;;
	*) others+=("$file") ;;
	esac
done
while read -r sum file; do
	sums[$file]=$sum
done < <(sha256sum "${others[@]}")

# shellcheck disable=SC2016 # awk's own $
# Of awk: the lines of one file as C, and what stands before and after each of several files.
readonly LINE='{
	gsub(/\\/, "&&")
	gsub(/"/, "\\\\&")
	gsub(/\t/, "\\t")
	gsub(/\?\?/, "?\\\\?") # no trigraphs
	printf "\t\"%s\\n\"\n", $0
}'
readonly NAME='FNR == 1 {
	if (NR > 1)
		printf "\t\"\";\n\n"
	name = FILENAME
	if (name !~ /^console\// && name !~ /\.md$/)
		sub(/\.[^.]*$/, "", name)
	gsub(/[\/.-]/, "_", name)
	printf "const char %s[] =\n", name
}'
readonly END='END { printf "\t\"\";\n\n" }'
# In a file of statements, each statement is a paragraph that begins with `-- NAME: what it is for`.
# The first paragraph is about the file.
# shellcheck disable=SC2016
readonly STATEMENT_NAME='BEGIN { RS = ""; FS = "\n" }
FNR > 1 && !match($1, /^-- [a-z0-9_]+: /) {
	printf "%s: \"%s\" must be \"-- NAME: …\"\n", FILENAME, $1 >"/dev/stderr"
	exit 1
}
FNR > 1 { name = "sql_query_" substr($1, 4, RLENGTH - 5) }
'
# shellcheck disable=SC2016
readonly STATEMENT_HEADER="$STATEMENT_NAME"'FNR > 1 { printf "extern const char %s[];\n", name }'
# shellcheck disable=SC2016
readonly STATEMENT="$STATEMENT_NAME"'FNR > 1 {
	printf "const char %s[] =\n", name
	gsub(/\\/, "&&")
	gsub(/"/, "\\\\&")
	gsub(/\t/, "\\t")
	gsub(/\n/, "\\n\"\n\t\"")
	printf "\t\"%s\\n\";\n\n", $0
}'

# function_header FILE LINE NAME PATTERN TEXT: sets HEADER to the value of `-- NAME: value`, which
# must be that line.
function_header() {
	if ! [[ $5 =~ ^--\ $3:\ ($4)$ ]]; then
		printf '%s: line %d must be "-- %s: …"\n' "$1" "$2" "$3" >&2
		exit 1
	fi
	HEADER=${BASH_REMATCH[1]}
}

function_row() {
	local base=${1##*/} first second version
	{
		read -r first || true # a file may have fewer lines
		read -r second || true
	} <"$1"
	function_header "$1" 1 version '[1-9][0-9]{0,8}' "$first"
	version=$HEADER
	function_header "$1" 2 function '[a-z_0-9]+\([^ ]*\)' "$second"
	printf '\t{ "%s", "%s", %d, "%s", %s },\n' "${base%.sql}" "$HEADER" "$version" \
		"${sums[$1]}" "${names[$1]}"
}

{
	printf '#ifndef EMBED_H\n#define EMBED_H\n\n'
	for file in "${files[@]}"; do
		printf 'extern const char %s[];\n' "${names[$file]}"
		[[ $file != docs/*.json ]] ||
			printf 'extern const char %s_tag[];\n' "${names[$file]}"
	done
	awk "$STATEMENT_HEADER" "${query[@]}"
	cat <<'END'

struct migration {
	int version;
	const char *name;
	const char *checksum; /* of the files */
	const char *sql;
};

extern const struct migration migrations[];

struct function {
	const char *name;      /* of the file */
	const char *signature; /* as to_regprocedure() reads it */
	int version;
	const char *checksum; /* of the file */
	const char *sql;
};

extern const struct function functions[];

struct console_file {
	const char *name; /* of the file */
	const char *tag;  /* changes with it */
	const char *text;
};

extern const struct console_file console_files[];

#endif
END
} >"$header.part"
mv "$header.part" "$header"

{
	printf '#include "embed.h"\n\n#include <stddef.h>\n\n'
	for file in "${lua[@]}"; do
		printf 'const char %s[] =\n' "${names[$file]}"
		awk -f "$scripts/lua.awk" "$prelude" "$file" | awk "$LINE"
		printf '\t"";\n\n'
	done
	awk "$NAME$LINE$END" "${others[@]}"
	awk "$STATEMENT" "${query[@]}"
	printf 'static const char sql_schema[] =\n'
	awk "$LINE" "${schema[@]}" </dev/null
	printf '\t"";\n\n'
	for file in "${files[@]}"; do
		[[ $file != docs/*.json ]] || printf 'const char %s_tag[] = "%.12s";\n\n' \
			"${names[$file]}" "${sums[$file]}"
	done
	read -r sum _ < <(cat "${schema[@]}" </dev/null | sha256sum)
	printf 'const struct migration migrations[] = {\n'
	printf '\t{ 1, "schema", "%s", sql_schema },\n' "$sum"
	for file in "${files[@]}"; do
		case $file in
		sql/migration/*)
			base=${file##*/} base=${base%.sql}
			printf '\t{ %d, "%s", "%s", %s },\n' "$((10#${base%%_*}))" \
				"${base#*_}" "${sums[$file]}" "${names[$file]}"
			;;
		esac
	done
	printf '\t{ 0, NULL, NULL, NULL },\n};\n\n'
	printf 'const struct function functions[] = {\n'
	for file in "${files[@]}"; do
		case $file in
		sql/function/*) function_row "$file" ;;
		esac
	done
	printf '\t{ NULL, NULL, 0, NULL, NULL },\n};\n\n'
	printf 'const struct console_file console_files[] = {\n'
	for file in "${files[@]}"; do
		[[ $file != console/* && $file != *.md ]] && continue
		name=${file#console/}
		printf '\t{ "%s", "%.12s", %s },\n' "${name/#docs/manual}" "${sums[$file]}" \
			"${names[$file]}"
	done
	printf '\t{ NULL, NULL, NULL },\n};\n'
} >"$source.part"
mv "$source.part" "$source"
