# shellcheck shell=bash
# A load on the published port, and the comparison of its receives with PostgreSQL. Sourced by
# scripts/compose-test.sh.

# load_start COUPON [RATE]
load_start() {
	rm -f "$TOLD"
	python3 -B tests/compose/issue_load.py 127.0.0.1 "$COUPON_PORT" "$1" "$TOLD" "${@:2}" \
		>"$LOAD_LOG" 2>&1 7>&- 8>&- 9>&- &
	load_pid=$!
}

load_end() {
	local code=0
	kill -TERM "$load_pid"
	wait "$load_pid" || code=$?
	load_pid=
	[[ $code -eq 0 ]] || tail -n 5 "$LOAD_LOG"
	return "$code"
}

load_value() {
	tail -n 1 "$LOAD_LOG" | python3 -c 'import json, sys
name, told = sys.argv[1], json.load(sys.stdin)
print(told.get(name, told["answers"].get(name, 0)))' "$1"
}

# Every request was answered, no user got two coupons, and all answers were expected ones.
load_answered() {
	local users
	users=$(load_value users)
	echo "    $(tail -n 1 "$LOAD_LOG")"
	equals "$(load_value answered)" "$(load_value asked)" && equals "$(load_value twice)" 0 &&
		equals "$(load_value receives)" "$users" &&
		equals "$(load_value limit_reached)" "$(((users + 3) / 4))"
}

# Receives that were answered | of these not exactly one row | rows that were not answered |
# issued | most of one user | rejected
accepted_against_rows() {
	{
		echo "CREATE TEMP TABLE told (user_id text, batch uuid, idx int, slot int);"
		echo "COPY told FROM STDIN;"
		cat "$TOLD"
		printf '%s\n' '\.'
		cat <<-SQL
		SELECT count(*),
			count(*) FILTER (WHERE (SELECT count(*) FROM user_coupon c
				WHERE c.coupon_id = $1 AND c.user_id = told.user_id
				AND c.slot = told.slot AND c.batch = told.batch
				AND c.idx = told.idx) <> 1),
			(SELECT count(*) FROM user_coupon c WHERE c.coupon_id = $1
				AND NOT EXISTS (SELECT FROM told WHERE told.user_id = c.user_id
				AND told.batch = c.batch AND told.idx = c.idx)),
			(SELECT issued_num FROM coupon WHERE id = $1),
			(SELECT max(n) FROM (SELECT count(*) n FROM user_coupon
				WHERE coupon_id = $1 GROUP BY user_id) u),
			(SELECT count(*) FROM receive_rejected WHERE coupon_id = $1)
		FROM told;
		SQL
	} | sql
}
