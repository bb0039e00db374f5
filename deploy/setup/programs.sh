# shellcheck shell=bash
# The settings, the programs, and what is done once: the first key and the test. Sourced by
# setup.sh.

# ---- files of /etc/couponmq

# couponctl with the login of operators.
ctl() {
	REDIS_URL_FILE=$(url_file redis operator) AMQP_URL_FILE=$(url_file rabbitmq operator) \
		DATABASE_URL_FILE=$(url_file postgresql operator) COUPON_LOG_LEVEL=error \
		"$COUPONCTL" "$@"
}

# Another key than that of the codes in the database would be of no use.
code_keys_is_done() {
	[[ -e $SECRETS/code-keys || -n $(record_get code_keys) ]]
}

code_keys_what() {
	echo "a key for exchange codes in $SECRETS/code-keys"
}

code_keys_do() {
	local coupons coupon sets=''
	coupons=$(ctl list --json --count 100000 | sed -n 's/.*"coupon":"\([0-9]*\)".*/\1/p')
	for coupon in $coupons; do
		sets+=$(ctl codes list "$coupon" --json)
	done
	if [[ $sets == *'"set":'* ]]; then
		record_set code_keys elsewhere
		say "the database has exchange codes whose key is not on this machine: copy it to" \
			"$SECRETS/code-keys (root:couponmq, mode 640)"
	else
		file_put "$SECRETS/code-keys" 640 root:couponmq "1 $(random_hex 32)"$'\n'
	fi
}

# Prints the FILE, NAME and value of each setting.
settings() {
	local store setting program
	for store in redis:REDIS_URL rabbitmq:AMQP_URL postgresql:DATABASE_URL; do
		setting=${store#*:}_FILE store=${store%:*}
		if is_local "$store"; then
			for program in gateway worker; do
				echo "$program $setting $(url_file "$store" "$program")"
			done
			echo "admin $setting $(url_file "$store" operator)"
			echo "couponctl $setting $(url_file "$store" operator)"
		else
			echo "couponmq $setting $(url_file "$store" operator)"
		fi
	done
	[[ ! -e $SECRETS/code-keys ]] || echo "couponmq COUPON_CODE_KEYS $SECRETS/code-keys"
	[[ ! -e $SECRETS/owner-postgresql-url ]] ||
		echo "couponctl DATABASE_ADMIN_URL_FILE $SECRETS/owner-postgresql-url"
	# Where the console reads metrics.
	echo "worker-1 COUPON_WORKER_HTTP_LISTEN 127.0.0.1:7481"
	echo "worker-2 COUPON_WORKER_HTTP_LISTEN 127.0.0.1:7482"
	echo "admin COUPON_ADMIN_METRICS 127.0.0.1:7480,127.0.0.1:7481,127.0.0.1:7482"
}

# setting_is_in FILE NAME: it, or what it may be given by instead.
setting_is_in() {
	grep -qE "^[[:blank:]]*${2%_FILE}(_FILE)?=" "$ETC/$1.conf" 2>/dev/null
}

# The record says whether the programs run with what the files have: a run may end in between.
settings_is_done() {
	local file name all
	all=$(settings)
	while read -r file name _; do
		setting_is_in "$file" "$name" || return 1
	done <<<"$all"
	[[ $(record_get settings) == 'in effect' ]]
}

settings_what() {
	echo "settings in $ETC/*.conf; those that are there already stay"
}

# settings_put FILE TEXT: couponctl.conf names a secret of root's.
settings_put() {
	if [[ $1 == couponctl ]]; then
		file_put "$ETC/$1.conf" 600 root:root "$2"
	else
		file_put "$ETC/$1.conf" 640 root:couponmq "$2"
	fi
}

# Writes all that a file lacks, at once. Then programs that run begin anew: first all workers, also
# others than those of setup, as messages of a new form need it.
settings_do() {
	local file name value text
	record_set settings changing
	for file in couponmq gateway worker worker-1 worker-2 admin couponctl; do
		text=''
		while read -r _ name value; do
			setting_is_in "$file" "$name" || text+="$name=$value"$'\n'
		done < <(settings | grep "^$file ")
		[[ -n $text ]] || continue
		[[ ! -s $ETC/$file.conf ]] || text=$(file_text "$ETC/$file.conf")$'\n'$text
		settings_put "$file" "$text"
	done
	systemctl try-restart 'coupon-worker@*.service'
	systemctl try-restart coupon-gateway.service coupon-admin.service
	record_set settings 'in effect'
}

# setting_of PROGRAM NAME DEFAULT: as in the files.
setting_of() {
	local found
	found=$(sed -n "s/^[[:blank:]]*$2=//p" "$ETC/couponmq.conf" "$ETC/$1.conf" 2>/dev/null |
		tail -n 1 | tr -d "'\"") || true
	echo "${found:-$3}"
}

# ---- the programs

programs_is_done() {
	local unit
	for unit in "${UNITS[@]}"; do
		systemctl -q is-enabled "$unit" && systemctl -q is-active "$unit" || return 1
	done
}

programs_what() {
	echo "the programs, started now and at each boot: ${UNITS[*]}"
}

programs_do() {
	systemctl daemon-reload
	systemctl enable --quiet "${UNITS[@]}"
	systemctl start "${UNITS[@]}"
}

# ---- what is done once

key_is_done() {
	record_has key
}

key_what() {
	echo "an API key for the console, which is printed only once"
}

# With several machines on the same stores, each has its own key. Exit status 3: a worker tells
# Redis later.
key_do() {
	local host n told key
	host=$(uname -n | tr -c 'A-Za-z0-9.\n-' - | head -c 50)
	for ((n = 1; ; n++)); do
		told=$(ctl key create --name "console-$host" --role admin \
			--key "couponctl setup, key $n of $host" 2>&1) || [[ $? -eq 3 ]] ||
			die "$told"
		key=$(grep -xE '(cmq_)?[a-z0-9]{10}(_.*)?' <<<"$told")
		# Without the key itself, and without the advice to rotate it, which is done below.
		grep -vxF -e "$key" <<<"$told" | grep -v 'was printed before' >&2 || true
		[[ $key != cmq_*_* ]] || break
		# A run that was broken off, or one before a purge, had made it: nobody may have
		# seen it. One that was revoked since then gets no other secret.
		[[ $(ctl key show "$key" --json | json_text state) == active ]] || continue
		key=$(ctl key rotate "$key" --overlap 0s) || [[ $? -eq 3 ]]
		break
	done
	echo
	echo "  The key of the console, which is stored nowhere and shown only now:"
	echo "    $key"
	echo
	key=${key#cmq_}
	record_set key "${key%%_*}"
}

# Prints the text of a member of the object on standard input.
json_text() {
	sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" | head -n 1
}

coupon_is_done() {
	record_has coupon_sold
}

coupon_what() {
	echo "a test: issue a coupon to the user setup, take it back, close its campaign"
}

# Why couponctl cannot use the gateway as setup has left it; empty if it can.
coupon_hinders() {
	if [[ $(setting_of gateway COUPON_AUTH off) != off ]]; then
		echo 'COUPON_AUTH'
	elif [[ -n $(setting_of gateway COUPON_TLS_CERT '') ]]; then
		echo 'COUPON_TLS_CERT'
	elif [[ -n $(setting_of gateway COUPON_PROXY_FROM '') ]]; then
		echo 'COUPON_PROXY_FROM'
	elif [[ $(setting_of gateway COUPON_LISTEN '') == off ]]; then
		echo 'COUPON_LISTEN=off'
	fi
}

# A request with the same key gets the same receive, so that it may be repeated.
coupon_do() {
	local coupon status reply='' receive deadline=$((SECONDS + WAIT_S)) hinders
	hinders=$(coupon_hinders)
	if [[ -n $hinders ]]; then
		say "the test is left out, because the gateway has $hinders: issue a coupon as" \
			"your clients do"
		record_set coupon_sold "left out: $hinders"
		return
	fi
	coupon=$(record_get coupon) || {
		# A voided receive keeps its slot: a run after it gets no other one.
		coupon=$(ctl create --name "couponctl setup on $(uname -n)" --total 1 \
			--void-returns no --key "couponctl setup, coupon of $(uname -n)")
		record_set coupon "$coupon"
	}
	status=$(ctl show "$coupon" --json | sed 's/"redis":.*//' | json_text status)
	if [[ $status != closed ]]; then
		ctl publish "$coupon" --wait-s "$WAIT_S" >/dev/null || [[ $? -eq 3 ]]
		until reply=$(ctl issue --coupon "$coupon" --user setup --key setup \
			--listen "$(setting_of gateway COUPON_LISTEN 127.0.0.1:7411)" \
			--ack issued --json 2>&1) ||
			[[ $(json_text reason <<<"$reply") == voided ]]; do # by an earlier run
			[[ $SECONDS -lt $deadline ]] ||
				die "the gateway issued no coupon within $WAIT_S s: $reply"
			sleep 0.5
		done
		receive=$(json_text receive <<<"$reply")
		[[ -n $receive ]] || die "the gateway answered without a receive: $reply"
		ctl void "$receive" --why 'test of couponctl setup' >/dev/null || [[ $? -eq 3 ]]
		ctl close "$coupon" --yes >/dev/null || [[ $? -eq 3 ]]
		say "coupon $coupon: issued, and taken back"
	fi
	record_set coupon_sold "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
}
