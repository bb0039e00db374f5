#!/usr/bin/env bash
# Turns text files into C strings: embed.sh OUT.h OUT.c FILE…
# lua/issue.lua becomes `lua_issue`, after the definitions of lua/prelude.lua that it uses;
# sql/query/settle.sql becomes `sql_query_settle`. A file of docs/ has a tag that changes with it:
# `docs_openapi_tag`.
# The migrations (sql/migration/NNNN_name.sql) are also in the table `migrations`, in order, the
# files of functions (sql/function/NAME.sql) in the table `functions`. Both end with a name of NULL.
set -euo pipefail

header=$1
source=$2
shift 2
prelude=lua/prelude.lua
scripts=$(dirname "$0")
files=()
for file in "$@"; do
	[[ $file == "$prelude" ]] || files+=("$file")
done

text() {
	case $1 in
	lua/*) awk -f "$scripts/lua.awk" "$prelude" "$1" ;;
	*) cat "$1" ;;
	esac
}

c_name() {
	local name=${1%.*}
	printf '%s' "${name//[\/.-]/_}"
}

# function_header FILE LINE NAME PATTERN: the value of `-- NAME: value`, which must be that line.
function_header() {
	local line
	line=$(sed -n "$2p" "$1")
	if ! [[ $line =~ ^--\ $3:\ ($4)$ ]]; then
		printf '%s: line %d must be "-- %s: …"\n' "$1" "$2" "$3" >&2
		exit 1
	fi
	printf '%s' "${BASH_REMATCH[1]}"
}

function_row() {
	local base version signature checksum
	base=$(basename "$1" .sql)
	version=$(function_header "$1" 1 version '[1-9][0-9]{0,8}')
	signature=$(function_header "$1" 2 function '[a-z_0-9]+\([^ ]*\)')
	checksum=$(sha256sum <"$1")
	printf '\t{ "%s", "%s", %d, "%s", %s },\n' "$base" "$signature" "$version" \
		"${checksum%% *}" "$(c_name "$1")"
}

{
	printf '#ifndef EMBED_H\n#define EMBED_H\n\n'
	for file in "${files[@]}"; do
		printf 'extern const char %s[];\n' "$(c_name "$file")"
		[[ $file != docs/* ]] || printf 'extern const char %s_tag[];\n' "$(c_name "$file")"
	done
	cat <<'END'

struct migration {
	int version;
	const char *name;
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

#endif
END
} >"$header.part"
mv "$header.part" "$header"

{
	printf '#include "embed.h"\n\n#include <stddef.h>\n\n'
	for file in "${files[@]}"; do
		printf 'const char %s[] =\n' "$(c_name "$file")"
		text "$file" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/	/\\t/g' \
			-e 's/^/\t"/' -e 's/$/\\n"/'
		printf '\t"";\n\n'
		[[ $file != docs/* ]] || printf 'const char %s_tag[] = "%.12s";\n\n' \
			"$(c_name "$file")" "$(sha256sum <"$file")"
	done
	printf 'const struct migration migrations[] = {\n'
	for file in "${files[@]}"; do
		case $file in
		sql/migration/*)
			base=$(basename "$file" .sql)
			printf '\t{ %d, "%s", %s },\n' \
				"$((10#${base%%_*}))" "${base#*_}" "$(c_name "$file")"
			;;
		esac
	done
	printf '\t{ 0, NULL, NULL },\n};\n\n'
	printf 'const struct function functions[] = {\n'
	for file in "${files[@]}"; do
		case $file in
		sql/function/*) function_row "$file" ;;
		esac
	done
	printf '\t{ NULL, NULL, 0, NULL, NULL },\n};\n'
} >"$source.part"
mv "$source.part" "$source"
