# shellcheck shell=bash
# Finds installed programs, whatever their versions. Sourced by the scripts that need them.

# postgres_bin_find MAJOR: prints the folder of that version of the server, or with '*' of the
# newest one. Debian has a folder for each version, so that several can be installed.
postgres_bin_find() {
	local bin found=''
	# shellcheck disable=SC2086 # a pattern
	while read -r bin; do
		[[ ! -x $bin/postgres ]] || found=$bin
	done < <(printf '%s\n' /usr/lib/postgresql/$1/bin | sort -V)
	if [[ -z $found && $1 == '*' ]] && found=$(command -v postgres); then
		found=${found%/*}
	fi
	echo "$found"
}

# Prints the command of the Redis server: Redis if it is installed, else Valkey if that is.
redis_server_find() {
	command -v redis-server || command -v valkey-server || echo redis-server
}

# Whether there is a kubectl that renders deploy/kubernetes: 1.22 or later. That of Debian 12, 1.20,
# has a kustomize that does not know `labels`.
kubectl_is_new() {
	local version
	version=$(kubectl version --client -o json 2>/dev/null | tr -d ' \n') || return
	[[ $version =~ \"major\":\"([0-9]+).*\"minor\":\"([0-9]+) ]] || return
	((BASH_REMATCH[1] > 1 || BASH_REMATCH[2] >= 22))
}
