#!/usr/bin/env bash
# Checks the form of the source files: lint.sh [format]. With `format`, C and Python are formatted.
# Formats differ between versions of the formatters: they are checked only with those of Debian 12,
# and other versions do not format.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly CLANG_FORMAT_MAJOR=14 BLACK_MAJOR=23 LINE_MAX=100
failed=0

files() {
	git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
		[[ ! -e $file ]] || echo "$file"
	done
}

mapfile -t c_files < <(files '*.c' '*.h')
mapfile -t python_files < <(files '*.py')
mapfile -t lua_files < <(files '*.lua')
mapfile -t shell_files < <(files '*.sh' .ci/run)
# A sourced script is checked with the script that sources it.
mapfile -t shell_programs < <(grep -l '^#!' "${shell_files[@]}")
mapfile -t make_files < <(files Makefile '*.mk')
mapfile -t other_files < <(files '*.sql' '*.yml' '*.awk' '*.js' '*.ts' '*.java' '*.css' '*.html' \
	'*.yaml' '*Dockerfile')

# version_is MAJOR COMMAND..: prints a note when another version is installed, whose format may
# differ.
version_is() {
	local major=$1 found
	shift
	found=$("$@" --version | grep -oE '[0-9]+\.[0-9.]+' | head -n 1)
	[[ ${found%%.*} == "$major" ]] && return
	echo "lint: $1 is $found: the format is made and checked with $major only"
	return 1
}

# check WHAT COMMAND..
check() {
	local what=$1
	shift
	if "$@"; then
		echo "lint: $what: clean"
	else
		echo "lint: $what: FAILED"
		failed=1
	fi
}

# In characters, not bytes: drawings are not ASCII.
lines_short() {
	/usr/bin/python3 - "$LINE_MAX" "$@" <<-'PYTHON'
		import sys

		wide = 0
		for path in sys.argv[2:]:
		    for number, line in enumerate(open(path, encoding="utf-8"), 1):
		        width = len(line.rstrip("\n").expandtabs(8))
		        # The signature of a function of PostgreSQL is one line.
		        if width > int(sys.argv[1]) and not line.startswith("-- function: "):
		            print(f"{path}:{number}: {width} columns")
		            wide = 1
		sys.exit(wide)
	PYTHON
}

format() {
	if version_is "$CLANG_FORMAT_MAJOR" clang-format; then
		clang-format -i "${c_files[@]}"
	else
		failed=1
	fi
	if version_is "$BLACK_MAJOR" black; then
		black -q "${python_files[@]}"
	else
		failed=1
	fi
}

lint() {
	! version_is "$CLANG_FORMAT_MAJOR" clang-format ||
		check "format of C" clang-format --dry-run -Werror "${c_files[@]}"
	! version_is "$BLACK_MAJOR" black ||
		check "format of Python" black -q --check "${python_files[@]}"
	check Python flake8 "${python_files[@]}"
	check Lua luacheck -q --no-color "${lua_files[@]}"
	check shell shellcheck -x "${shell_programs[@]}"
	check "width of lines" lines_short "${shell_files[@]}" "${make_files[@]}" "${c_files[@]}" \
		"${other_files[@]}"
}

case ${1:-lint} in
lint | format) "${1:-lint}" ;;
*)
	echo "usage: scripts/lint.sh [lint|format]" >&2
	exit 2
	;;
esac
[[ $failed -eq 0 ]]
