# shellcheck shell=bash
# The sample campaign of `make run` and `make run-ha`: a rush, and its check.

# The check reads PostgreSQL: issued_num, the number of rows, and the most that one user has.
sample_verdict() {
	local coupon=$1 total=$2 deadline=$((SECONDS + 30)) found=
	until [[ $found == "$total|$total|1" ]]; do
		if [[ $SECONDS -ge $deadline ]]; then
			die "coupon $coupon: issued|user coupons|most a user is $found," \
				"and should be $total|$total|1"
		fi
		found=$(postgres_sql couponmq <<-SQL
		SELECT issued_num, (SELECT count(*) FROM user_coupon WHERE coupon_id = coupon.id),
			(SELECT max(n) FROM (SELECT count(*) n FROM user_coupon
				WHERE coupon_id = coupon.id GROUP BY user_id) u)
		FROM coupon WHERE id = $coupon
		SQL
		)
		sleep 0.1
	done
	say "PostgreSQL: $total of $total issued, $total user coupons, none more than one: correct"
}

sample_run() {
	local coupon total=10000 env client curl='curl -s' scheme=http
	env_load # not with the logins of the program that was started last
	coupon=$("$BUILD_DIR/couponctl" create --name "Noon rush" --total "$total" --limit 1 \
		--valid-days 30)
	"$BUILD_DIR/couponctl" publish "$coupon"
	say "coupon $coupon: $total coupons, 20000 users follow"
	"$BUILD_DIR/coupon-rush" --coupon "$coupon" --users 20000
	sample_verdict "$coupon" "$total"
	env=$(shown "$RUN_DIR/env") client="nc -N 127.0.0.1 $PORT_GATEWAY"
	if [[ $STACK_TLS == yes ]]; then
		scheme=https curl+=" --cacert $(shown "$RUN_DIR/tls/ca.pem")"
		client="openssl s_client -quiet -connect 127.0.0.1:$PORT_GATEWAY"
	fi
	cat <<-TEXT

	To try:
	  . $env; $(shown "$BUILD_DIR")/couponctl stock $coupon --total $((total + 100))
	  echo '{"op":"issue","coupon":"$coupon","user":"900001","ack":"issued"}' |
	    $client
	  $curl '$scheme://127.0.0.1:$PORT_HTTP/v1/status?coupon=$coupon&user=900001'
	TEXT
	[[ ! -d $RUN_DIR/admin ]] || cat <<-TEXT
	  $curl -H "Authorization: Bearer $(admin_key)" \\
	    $scheme://127.0.0.1:$PORT_ADMIN/admin/v1/campaigns/$coupon

	The console: $scheme://127.0.0.1:$PORT_ADMIN/
	  key: $(admin_key)
	TEXT
}
