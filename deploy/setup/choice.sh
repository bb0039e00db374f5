# shellcheck shell=bash
# Which stores are used, and what setup makes before it touches them: the account and the passwords.
# Sourced by setup.sh.

# ---- which stores

PORT_REDIS='' PORT_RABBITMQ=5672 PORT_POSTGRESQL=''

port_taken() {
	(: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# Sets PORT_REDIS to that of an instance that is there already, or to the first free one.
redis_port_find() {
	PORT_REDIS=$(file_text "$REDIS_CONF" | sed -n 's/^port \([0-9]*\)$/\1/p') || true
	[[ -z $PORT_REDIS ]] || return 0
	for ((PORT_REDIS = 6380; PORT_REDIS < 6400; PORT_REDIS++)); do
		port_taken "$PORT_REDIS" || return 0
	done
	die "no port from 6380 to 6399 is free for Redis"
}

# Sets PORT_POSTGRESQL. Of several clusters it is the usual port.
postgresql_port_find() {
	PORT_POSTGRESQL=$(pg_lsclusters --no-header | awk '{ print $3 }')
	[[ -n $PORT_POSTGRESQL ]] ||
		die "PostgreSQL has no cluster on this machine; create one with" \
			"pg_createcluster VERSION main --start"
	[[ $PORT_POSTGRESQL == *$'\n'* ]] || return 0
	grep -qx 5432 <<<"$PORT_POSTGRESQL" ||
		die "PostgreSQL has several clusters, none of them on port 5432: name a database" \
			"by --database-url and --database-admin-url"
	PORT_POSTGRESQL=5432
}

is_local() {
	[[ ${MODE[$1]} == local ]]
}

# choose STORE SETTING: what was chosen before counts, as STORE=PORT or STORE=given.
choose() {
	local store=$1 before
	before=$(record_get stores | grep -o "$store=[a-z0-9]*") || before=
	before=${before#*=}
	if [[ -z $before ]]; then
		MODE[$store]=$([[ -n ${URL[$store]} ]] && echo given || echo local)
		return
	fi
	MODE[$store]=$([[ $before == given ]] && echo given || echo local)
	! is_local "$store" || declare -g "PORT_${store^^}=$before"
	[[ -z ${URL[$store]} || ${URL[$store]} == "$(url "$store" operator)" ]] ||
		die "$2 names another store than the one that is set up: run couponctl setup" \
			"--remove first, or change the files in $ETC by hand"
}

choices_read() {
	local missing=() valkey=''
	choose redis REDIS_URL
	choose rabbitmq AMQP_URL
	choose postgresql DATABASE_URL

	if is_local redis && ! [[ -x /usr/bin/redis-server && -x /usr/bin/redis-cli ]]; then
		missing+=(redis-server)
		! command -v valkey-server >/dev/null ||
			valkey=". Valkey is installed: setup does not configure it. To use it, \
configure it as docs/guides/deploy.md says under \"What the services must be set to\", and give \
--redis-url redis://USER:PASSWORD@127.0.0.1:6379/0"
	fi
	! is_local rabbitmq || [[ -e /usr/sbin/rabbitmqctl ]] || missing+=(rabbitmq-server)
	! is_local postgresql || [[ -e /usr/bin/pg_lsclusters ]] || missing+=(postgresql)
	[[ ${#missing[@]} -eq 0 ]] ||
		die "not installed on this machine: ${missing[*]}. Install what is missing" \
			"(apt-get install ${missing[*]}), or name stores that run already by" \
			"--redis-url, --amqp-url, --database-url and --database-admin-url$valkey"
	! is_local redis || [[ -n $PORT_REDIS ]] || redis_port_find
	! is_local postgresql || [[ -n $PORT_POSTGRESQL ]] || postgresql_port_find
}

choice_is_done() {
	record_has stores
}

choice_what() {
	:
}

choice_do() {
	local store port text=''
	for store in redis rabbitmq postgresql; do
		port=PORT_${store^^}
		text+=" $store=$(is_local "$store" && echo "${!port}" || echo given)"
	done
	record_set stores "${text# }"
}

# ---- the user and the folders

account_is_done() {
	getent passwd couponmq >/dev/null && getent group couponmq >/dev/null &&
		[[ -d $SECRETS && $(stat -c %a:%U:%G "$SECRETS") == 750:root:couponmq ]]
}

account_what() {
	echo "the user couponmq, and the folder $SECRETS"
}

account_do() {
	getent passwd couponmq >/dev/null || quietly systemd-sysusers
	[[ -d $ETC ]] || install -d -m 755 "$ETC"
	install -d -m 750 -o root -g couponmq "$SECRETS"
}

# ---- passwords, in URLs: each program has its own for a store of this machine

# url_file STORE PROGRAM: prints the path.
url_file() {
	if is_local "$1"; then
		echo "$SECRETS/$2-$1-url"
	else
		echo "$SECRETS/$1-url"
	fi
}

url() {
	file_text "$(url_file "$1" "$2")"
}

# The password in a URL that this script has made.
password() {
	local rest
	rest=$(url "$1" "$2")
	rest=${rest#*://*:}
	echo "${rest%%@*}"
}

# Prints the path, mode and group of each file, and its text, of which RANDOM is to be filled in.
secrets() {
	local program
	for program in "${PROGRAMS[@]}"; do
		! is_local redis || echo "$program-redis-url 640 couponmq" \
			"redis://couponmq_$program:RANDOM@127.0.0.1:$PORT_REDIS/0"
		! is_local rabbitmq || echo "$program-rabbitmq-url 640 couponmq" \
			"amqp://couponmq_$program:RANDOM@127.0.0.1:$PORT_RABBITMQ/$NAME"
		! is_local postgresql || echo "$program-postgresql-url 640 couponmq" \
			"postgresql://couponmq_$program:RANDOM@127.0.0.1:$PORT_POSTGRESQL/$NAME"
	done
	# For people, and for couponctl migrate as root: for no program that runs.
	if is_local redis; then
		echo "default-redis-url 600 root redis://default:RANDOM@127.0.0.1:$PORT_REDIS/0"
	else
		echo "redis-url 640 couponmq ${URL[redis]}"
	fi
	is_local rabbitmq || echo "rabbitmq-url 640 couponmq ${URL[rabbitmq]}"
	if is_local postgresql; then
		echo "owner-postgresql-url 600 root" \
			"postgresql://couponmq_owner:RANDOM@127.0.0.1:$PORT_POSTGRESQL/$NAME"
	else
		echo "postgresql-url 640 couponmq ${URL[postgresql]}"
		[[ -z $ADMIN_URL ]] ||
			echo "owner-postgresql-url 600 root $ADMIN_URL"
	fi
}

passwords_is_done() {
	local file all
	all=$(secrets)
	while read -r file _; do
		[[ -e $SECRETS/$file ]] || return 1
	done <<<"$all"
}

passwords_what() {
	echo "passwords in $SECRETS, which only root and the group couponmq can read"
}

# Programs that run have read the files: settings_do() starts them again.
passwords_do() {
	local file mode group text
	record_set settings changing
	while read -r file mode group text; do
		[[ -e $SECRETS/$file ]] ||
			file_put "$SECRETS/$file" "$mode" "root:$group" \
				"${text/RANDOM/$(random_hex 24)}"$'\n'
	done < <(secrets)
}
