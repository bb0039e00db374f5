# shellcheck shell=bash
# The settings of a stack, made once and kept in its folder; its ports, its lock, and the env file
# that the programs read. Sourced by scripts/stack.sh and scripts/ha.sh.

readonly SOCKET_PATH_MAX=107

random_hex() {
	od -An -N16 -tx1 /dev/urandom | tr -d ' \n'
}

# file_put FILE TEXT: for its owner only, and at once. A file that has this text is left as it is.
file_put() {
	local old=
	[[ ! -e $1 ]] || IFS= read -r -d '' old <"$1" || true
	[[ $old != "$2" ]] || return 0
	(
		umask 077
		printf %s "$2" >"$1.new"
		mv "$1.new" "$1"
	)
}

settings_write() {
	local name text=
	for name in PORT_BASE TLS AMQP_PASSWORD COOKIE PG_PASSWORD PG_OWNER_PASSWORD \
		PG_APP_PASSWORD GATEWAY_PASSWORD WORKER_PASSWORD OPERATOR_PASSWORD; do
		name=STACK_$name
		text+="$name=${!name}"$'\n'
	done
	file_put "$RUN_DIR/settings" "$text"
}

ports_set() {
	local base=$STACK_PORT_BASE
	PORT_GATEWAY=$((base + 11)) PORT_HTTP=$((base + 80)) PORT_POSTGRES=$((base + 32))
	PORT_REDIS=$((base + 79)) PORT_RABBITMQ=$((base + 72)) PORT_DIST=$((base + 25))
	PORT_EPMD=$((base + 69)) PORT_ZOOKEEPER=$((base + 21)) PORT_ADMIN=$((base + 90))
}

settings_load() {
	[[ -r $RUN_DIR/settings ]] || return 1
	# shellcheck source=/dev/null
	. "$RUN_DIR/settings"
	ports_set
}

settings_need() {
	settings_load && return
	die "there is no stack in $RUN_DIR; start one with: make services"
}

folder_foreign() {
	die "$1 belongs to $(stat -c %U "$1"); choose another RUN_DIR="
}

folder_open() {
	[[ $RUN_DIR =~ ^[A-Za-z0-9._/@+-]+$ ]] ||
		die "RUN_DIR is $RUN_DIR, and RabbitMQ takes only letters, digits and . _ / @ + -"
	[[ -d $RUN_DIR ]] || mkdir -p "$RUN_DIR" 2>/dev/null ||
		die "cannot make $RUN_DIR; choose another RUN_DIR="
	[[ -w $RUN_DIR && -x $RUN_DIR ]] || folder_foreign "$RUN_DIR"
	if [[ -e $RUN_DIR/settings ]]; then
		[[ -r $RUN_DIR/settings ]] || folder_foreign "$RUN_DIR/settings"
	elif [[ -n $(find "$RUN_DIR" -mindepth 1 -maxdepth 1 ! -name lock -print -quit) ]]; then
		die "$RUN_DIR holds other files; choose another RUN_DIR="
	fi
}

# tls_set yes|no: what TLS= chose, now or when the stack was made.
tls_set() {
	[[ $1 == yes || $1 == no ]] || die "TLS is $1; allowed are yes and no"
	STACK_TLS=$1
}

# A CA of this stack, and the certificate of its listeners.
tls_make() {
	local folder=$RUN_DIR/tls ec=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
	[[ ! -e $folder/cert.pem ]] || return 0
	rm -rf "$folder" "$folder.new"
	mkdir "$folder.new"
	(
		umask 077
		cd "$folder.new"
		openssl req -x509 "${ec[@]}" -days 3650 -subj '/CN=couponmq local CA' \
			-addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem
		openssl req "${ec[@]}" -subj /CN=localhost \
			-addext 'subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1' \
			-keyout key.pem -out request.pem
		openssl x509 -req -in request.pem -copy_extensions copy -days 3650 \
			-CA ca.pem -CAkey ca.key -out cert.pem
		chmod 644 ca.pem cert.pem
		rm request.pem
	) 2>"$RUN_DIR/tls.log" || die "openssl made no certificate; see $RUN_DIR/tls.log"
	chmod 755 "$folder.new"
	mv "$folder.new" "$folder"
}

# Makes the password of each program for the three services.
passwords_make() {
	STACK_GATEWAY_PASSWORD=$(random_hex)
	STACK_WORKER_PASSWORD=$(random_hex)
	STACK_OPERATOR_PASSWORD=$(random_hex)
}

settings_open() {
	local wanted=${PORT_BASE:-}
	if [[ -n $wanted ]]; then
		[[ $wanted =~ ^[1-9][0-9]{3,4}$ && $wanted -ge 1024 && $wanted -le 65400 ]] ||
			die "PORT_BASE is $wanted; allowed is 1024 to 65400"
	fi
	if settings_load; then
		if [[ ${wanted:-$STACK_PORT_BASE} == "$STACK_PORT_BASE" &&
			${TLS:-$STACK_TLS} == "$STACK_TLS" ]]; then
			return
		fi
		[[ -z $(names_running) ]] ||
			die "the stack in $RUN_DIR runs on PORT_BASE=$STACK_PORT_BASE with" \
				"TLS=$STACK_TLS; stop it first: make stop RUN_DIR=$RUN_DIR"
		STACK_PORT_BASE=${wanted:-$STACK_PORT_BASE}
		tls_set "${TLS:-$STACK_TLS}"
	else
		STACK_PORT_BASE=${wanted:-$DEFAULT_PORT_BASE}
		tls_set "${TLS:-no}"
		STACK_AMQP_PASSWORD=$(random_hex)
		STACK_COOKIE=$(random_hex)
		STACK_PG_PASSWORD=$(random_hex)
		STACK_PG_OWNER_PASSWORD=$(random_hex)
		STACK_PG_APP_PASSWORD=$(random_hex)
		passwords_make
	fi
	ports_set
	settings_write
}

# Prints a file of deploy/ with the passwords of this stack and what else is exported.
file_filled() {
	PASSWORD=$STACK_AMQP_PASSWORD POSTGRES_PASSWORD=$STACK_PG_PASSWORD \
		GATEWAY_PASSWORD=$STACK_GATEWAY_PASSWORD WORKER_PASSWORD=$STACK_WORKER_PASSWORD \
		OPERATOR_PASSWORD=$STACK_OPERATOR_PASSWORD awk -f deploy/fill.awk "deploy/$1"
}

# env_of PROGRAM PASSWORD: writes env.PROGRAM, its own logins. Those in env are for people.
env_of() {
	local login=couponmq_$1:$2@127.0.0.1
	file_put "$RUN_DIR/env.$1" "\
export REDIS_URL='redis://$login:$PORT_REDIS/0'
export AMQP_URL='amqp://$login:$PORT_RABBITMQ/%2f'
export DATABASE_URL='postgresql://$login:$PORT_POSTGRES/couponmq'
"
}

env_write() {
	local socket=$RUN_DIR/gateway/gateway.sock postgres=127.0.0.1:$PORT_POSTGRES/couponmq
	local owner=couponmq_owner:$STACK_PG_OWNER_PASSWORD tls=
	# the gateway and the workers of `make run`
	local metrics=127.0.0.1:$PORT_HTTP,127.0.0.1:$((PORT_HTTP + 1)),127.0.0.1:$((PORT_HTTP + 2))
	if [[ $STACK_TLS == yes ]]; then
		tls_make
		tls="\
export COUPON_TLS_CERT='$RUN_DIR/tls/cert.pem'
export COUPON_TLS_KEY='$RUN_DIR/tls/key.pem'
export COUPON_TLS_CA='$RUN_DIR/tls/ca.pem'
"
	fi
	[[ ${#socket} -le $SOCKET_PATH_MAX ]] || socket=
	[[ -e $RUN_DIR/code-keys ]] ||
		file_put "$RUN_DIR/code-keys" "1 $(random_hex)$(random_hex)"$'\n'
	file_put "$RUN_DIR/env" "\
export COUPON_CONFIG_DIR=''
export REDIS_URL='redis://127.0.0.1:$PORT_REDIS/0'
export AMQP_URL='amqp://couponmq:$STACK_AMQP_PASSWORD@127.0.0.1:$PORT_RABBITMQ/%2f'
export DATABASE_URL='postgresql://couponmq:$STACK_PG_APP_PASSWORD@$postgres'
export DATABASE_ADMIN_URL='postgresql://$owner@$postgres'
export COUPON_LISTEN='127.0.0.1:$PORT_GATEWAY'
export COUPON_HTTP_LISTEN='127.0.0.1:$PORT_HTTP'
export COUPON_ADMIN_LISTEN='127.0.0.1:$PORT_ADMIN'
export COUPON_ADMIN_METRICS='$metrics'
export COUPON_UNIX_SOCKET='$socket'
export COUPON_CODE_KEYS='$RUN_DIR/code-keys'
export COUPON_DRAIN_S=0
$tls${WITH_ZOOKEEPER:+export ZOOKEEPER_HOSTS=\'127.0.0.1:$PORT_ZOOKEEPER\'
}"
	env_of gateway "$STACK_GATEWAY_PASSWORD"
	env_of worker "$STACK_WORKER_PASSWORD"
	env_of operator "$STACK_OPERATOR_PASSWORD"
}

# env_load [PROGRAM]: with the logins of that program.
env_load() {
	# shellcheck source=/dev/null
	. "$RUN_DIR/env"
	# shellcheck source=/dev/null
	[[ -z ${1:-} ]] || . "$RUN_DIR/env.$1"
}

# Only one command at a time changes a stack. Daemons close the lock's descriptor, so that the lock
# is released with the command.
lock_take() {
	exec 9>"$RUN_DIR/lock"
	flock -w 600 9 || die "another command has been changing $RUN_DIR for ten minutes"
}

lock_release() {
	exec 9>&-
}
