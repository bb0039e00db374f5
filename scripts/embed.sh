#!/usr/bin/env bash
# Turns text files into C strings: embed.sh OUT.h OUT.c FILE…
# lua/issue.lua becomes `lua_issue`, sql/query/settle.sql becomes `sql_query_settle`; the migrations
# (sql/migration/NNNN_name.sql) stand in the table `migrations`, in order, ended by version 0.
set -euo pipefail

header=$1
source=$2
shift 2

c_name() {
	local name=${1%.*}
	printf '%s' "${name//[\/.-]/_}"
}

{
	printf '#ifndef EMBED_H\n#define EMBED_H\n\n'
	for file in "$@"; do
		printf 'extern const char %s[];\n' "$(c_name "$file")"
	done
	printf '\nstruct migration {\n\tint version;\n\tconst char *name;\n\tconst char *sql;\n};\n\n'
	printf 'extern const struct migration migrations[];\n\n#endif\n'
} >"$header.part"
mv "$header.part" "$header"

{
	printf '#include "embed.h"\n\n#include <stddef.h>\n\n'
	for file in "$@"; do
		printf 'const char %s[] =\n' "$(c_name "$file")"
		sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/	/\\t/g' -e 's/^/\t"/' -e 's/$/\\n"/' "$file"
		printf '\t"";\n\n'
	done
	printf 'const struct migration migrations[] = {\n'
	for file in "$@"; do
		case $file in
		sql/migration/*)
			base=$(basename "$file" .sql)
			printf '\t{ %d, "%s", %s },\n' "$((10#${base%%_*}))" "${base#*_}" "$(c_name "$file")"
			;;
		esac
	done
	printf '\t{ 0, NULL, NULL },\n};\n'
} >"$source.part"
mv "$source.part" "$source"
