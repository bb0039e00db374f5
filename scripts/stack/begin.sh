# shellcheck shell=bash
# What scripts/stack.sh and scripts/ha.sh begin with: their folders, how they speak, and the parts
# that both need. Sourced with how it calls itself, and the folder without RUN_DIR.

cd "${BASH_SOURCE[0]%/*}/../.."
readonly ROOT=$PWD SPEAKER=$1
{
	read -r RUN_DIR
	read -r BUILD_DIR
} < <(realpath -m -- "${RUN_DIR:-$2}" "${BUILD_DIR:-build}")
readonly RUN_DIR BUILD_DIR
readonly RABBITMQ_BIN=${RABBITMQ_BIN:-/usr/lib/rabbitmq/bin}

say() {
	echo "$SPEAKER: $*"
}

die() {
	say "$@" >&2
	exit 1
}

# A path relative to the project's folder.
shown() {
	echo "${1#"$ROOT/"}"
}

# shellcheck source=scripts/installed.sh
. scripts/installed.sh
# shellcheck source=scripts/stack/settings.sh
. scripts/stack/settings.sh
# shellcheck source=scripts/stack/process.sh
. scripts/stack/process.sh
# shellcheck source=scripts/stack/rabbitmq.sh
. scripts/stack/rabbitmq.sh
# shellcheck source=scripts/stack/postgres.sh
. scripts/stack/postgres.sh
# shellcheck source=scripts/stack/sample.sh
. scripts/stack/sample.sh
