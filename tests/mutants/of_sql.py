"""Without a safeguard of PostgreSQL."""

from mutant import mutant

SETTLE = "tests/sql/test_sql_settle.py::"
CONCURRENT = "tests/sql/test_sql_concurrent.py::"
LATE = "tests/sql/test_sql_late.py::"
CODES = "tests/sql/test_sql_codes.py::"
QUERY_KEEPER = "tests/sql/test_sql_query_keeper.py::"
WEBHOOK = "tests/sql/test_sql_webhook.py::"
KEYS = "tests/sql/test_sql_keys.py::"

MUTANTS = [
    mutant(
        "P1",
        "the CHECK of the issued number",
        "sql/schema/coupon.sql",
        "CHECK (issued_num BETWEEN 0 AND total_num)",
        "CHECK (issued_num >= 0)",
        SETTLE + "test_a_wrong_count_is_refused",
    ),
    mutant(
        "P1",
        "the stock under the lock of the coupon",
        "sql/function/settle.sql",
        "\t\t\tAND c.issued_num + asked_num <= c.total_num\n",
        "",
        SETTLE + "test_stock_ends_within_a_batch",
        CONCURRENT + "test_stock_ends_while_a_receive_waits",
    ),
    mutant(
        "P1",
        "the number of rows that is counted",
        "sql/function/settle.sql",
        "\t\tSET issued_num = c.issued_num + sums.issued_num,\n",
        "\t\tSET issued_num = c.issued_num + sums.settled_num,\n",
        SETTLE + "test_stock_ends_within_a_batch",
        "tests/sql/test_sql_model.py::test_one_call_or_several",
    ),
    mutant(
        "P2",
        "the primary key of the slot",
        "sql/schema/receive.sql",
        "\n\tPRIMARY KEY (user_id, coupon_id, slot)\n",
        "\n\tCHECK (true)\n",
        SETTLE + "test_of_two_receives_for_a_slot_the_first_wins",
        CONCURRENT + "test_copy_waits_and_is_repeated",
    ),
    mutant(
        "P2",
        "the limit in PostgreSQL",
        "sql/function/settle.sql",
        "WHERE c.id = settle.coupon[1] AND r.slot BETWEEN 1 AND c.user_limit",
        "WHERE c.id = settle.coupon[1] AND r.slot BETWEEN 1 AND 100",
        SETTLE + "test_a_slot_above_the_limit",
    ),
    mutant(
        "P2",
        "the limit in PostgreSQL, of several coupons at once",
        "sql/function/settle.sql",
        "\t\t\tWHERE r.slot BETWEEN 1 AND c.user_limit\n"
        '\t\t\tORDER BY r.coupon, r.user_id COLLATE "C", r.slot;\n',
        '\t\t\tWHERE r.slot > 0\n\t\t\tORDER BY r.coupon, r.user_id COLLATE "C", r.slot;\n',
        SETTLE + "test_a_slot_above_the_limit",
    ),
    mutant(
        "P3",
        "the tombstone of a rejected receive",
        "sql/function/settle.sql",
        "\t\tWHERE j.state IN ('surplus', 'refused', 'doubled')\n\t\tORDER BY r.coupon",
        "\t\tWHERE j.state IN ('refused', 'doubled')\n\t\tORDER BY r.coupon",
        SETTLE + "test_rejected_receive_stays_rejected_when_stock_comes_back",
    ),
    mutant(
        "P3",
        "the look for tombstones that appear while it waits",
        "sql/function/settle.sql",
        "\t\t\t\tall_issued := NOT EXISTS (SELECT FROM receive_rejected AS t\n"
        "\t\t\t\t\tWHERE t.coupon_id = settle.coupon[1]\n"
        "\t\t\t\t\t\tAND t.batch = settle.batch[1]);",
        "\t\t\t\tall_issued := true;",
        SETTLE + "test_rejected_receive_stays_rejected_when_stock_comes_back",
        CONCURRENT + "test_call_is_counted_anew_when_a_tombstone_appears",
    ),
    mutant(
        "P3",
        "the lock of the coupon before it is judged",
        "sql/function/settle.sql",
        "WHERE id = ANY (coupon_ids) ORDER BY id FOR NO KEY UPDATE) AS locked;",
        "WHERE id = ANY (coupon_ids) ORDER BY id) AS locked;",
        CONCURRENT + "test_every_receive_has_one_outcome_whatever_happens",
    ),
    mutant(
        "P3",
        "the outcome of an equal element",
        "sql/function/settle.sql",
        "CASE WHEN ord <> first THEN 'copy'",
        "CASE WHEN false THEN 'copy'",
        SETTLE + "test_equal_elements_of_one_call_count_once",
    ),
    mutant(
        "P5",
        "the rejection of unknown coupons",
        "sql/function/settle.sql",
        "\t\tPERFORM pg_advisory_xact_lock_shared('coupon'::regclass::int, 0);\n",
        "",
        CONCURRENT + "test_coupon_is_not_created_while_a_receive_of_it_is_rejected",
    ),
    mutant(
        "P6",
        "the key of another slot",
        "sql/function/settle.sql",
        "r.key <> '' AND c.generation > 1 AS is_keyed,",
        "false AS is_keyed,",
        LATE + "test_a_key_that_redis_forgot",
        LATE + "test_one_key_twice_in_one_call",
    ),
    mutant(
        "P8",
        "the level of isolation",
        "sql/function/settle.sql",
        "IF current_setting('transaction_isolation') <> 'read committed' THEN",
        "IF false THEN",
        SETTLE + "test_only_read_committed",
    ),
    mutant(
        "P10",
        "the outcomes of older generations for Redis",
        "sql/function/settle.sql",
        "\t\t\tAND (all_issued OR j.state IN ('issued', 'surplus', 'refused', 'doubled'))\n"
        "\t\tRETURNING coupon_id",
        "\t\t\tAND false\n\t\tRETURNING coupon_id",
        LATE + "test_each_late_outcome_once_and_numbered",
    ),
    mutant(
        "P10",
        "the number of each transaction",
        "sql/function/change_note.sql",
        "\t\tUPDATE change_count SET num = num + 1 WHERE stripe = own\n",
        "\t\tUPDATE change_count SET num = num WHERE stripe = own\n",
        "tests/sql/test_sql_recover.py::test_each_call_is_counted",
    ),
    mutant(
        "P10",
        "the fence of the keeper in PostgreSQL",
        "sql/query/keeper.sql",
        "WHERE fence = $2::bigint FOR SHARE\n), owed AS (",
        "WHERE $2::bigint IS NOT NULL FOR SHARE\n), owed AS (",
        QUERY_KEEPER + "test_settled_set_is_guarded",
    ),
    mutant(
        "P10",
        "the numbers in flight, before a coupon is settled",
        "sql/query/keeper.sql",
        "\t\tAND settled_num = $4::bigint AND seq_seen = $4::bigint\n",
        "",
        QUERY_KEEPER + "test_settled_set_wants_every_number_settled",
    ),
    mutant(
        "P10",
        "the row that a lost receive may still have",
        "sql/function/receive_lost.sql",
        "\t\tCONTINUE WHEN EXISTS (SELECT FROM user_coupon AS u\n",
        "\t\tCONTINUE WHEN false AND EXISTS (SELECT FROM user_coupon AS u\n",
        LATE + "test_lost_receives_are_rejected_for_ever",
    ),
    mutant(
        "P11",
        "the order of locks of users",
        "sql/function/settle.sql",
        '\t\t\tORDER BY r.user_id COLLATE "C", r.slot;\n',
        "\t\t\t;\n",
        "tests/sql/test_sql_locale.py::test_a_call_locks_users_in_byte_order",
    ),
    mutant(
        "P11",
        "the order of locks of codes",
        "sql/function/code_take.sql",
        "\t\t\tORDER BY set_id, serial;\n",
        "\t\t\t;\n",
        CODES + "test_a_call_locks_codes_in_the_order_of_serials",
    ),
    mutant(
        "codes",
        "the one receive that a code belongs to",
        "sql/function/code_take.sql",
        "\tWHERE c.state <> 'used' AND c.coupon_id = excluded.coupon_id;",
        "\tWHERE c.coupon_id = excluded.coupon_id;",
        CODES + "test_of_two_receives_with_a_code_one_gets_it",
    ),
    mutant(
        "codes",
        "the revocation of a code in PostgreSQL",
        "sql/function/code_take.sql",
        "\tlate := coalesce(late, '{}');\n",
        "\tlate := '{}';\n",
        CODES + "test_a_revocation_rejects_only_what_came_after",
    ),
    mutant(
        "codes",
        "the receives that were accepted before the revocation",
        "sql/function/code_take.sql",
        "\tWHERE strpos(r.code, '.') > 0\n"
        "\t\tAND (r.generation, r.seq) > (v.generation, coalesce(v.seq, 9223372036854775807));\n"
        "\tlate",
        "\tWHERE strpos(r.code, '.') > 0;\n\tlate",
        CODES + "test_a_revocation_rejects_only_what_came_after",
    ),
    mutant(
        "codes",
        "the code that stays revoked when its receive loses it",
        "sql/function/code_free.sql",
        "CASE WHEN c.revocation_num IS NULL THEN 'unused' ELSE 'revoked' END",
        "'unused'",
        CODES + "test_a_revoked_code_that_its_receive_loses_is_revoked",
    ),
    mutant(
        "voids",
        "the tombstone of a voided receive",
        "sql/function/coupon_void.sql",
        "\t\t\tINSERT INTO receive_rejected\n\t\t\t\t(coupon_id, batch, idx, user_id, slot, reason,"
        " received_at)\n\t\t\tVALUES (held.coupon_id, held.batch, held.idx, held.user_id,"
        " held.slot,\n\t\t\t\t'voided', held.received_at);\n",
        "",
        CODES + "test_a_late_copy_of_a_voided_receive_leaves_the_code_free",
    ),
    mutant(
        "events",
        "the one delivery of a coupon at a time",
        "sql/function/webhook_claim.sql",
        "\t\t\t\t\t\tAND d.is_leased AND d.next_at > now());\n\t\t\t\tSELECT d.id",
        "\t\t\t\t\t\tAND false);\n\t\t\t\tSELECT d.id",
        WEBHOOK + "test_one_of_a_coupon_at_a_time_and_the_first_first",
    ),
    mutant(
        "events",
        "the expiry of a replaced secret",
        "sql/function/webhook_claim.sql",
        "AND (s.expires_at IS NULL OR s.expires_at > now());",
        ";",
        WEBHOOK + "test_secrets_overlap_and_are_limited",
    ),
    mutant(
        "rights",
        "the gateway that only reads",
        "sql/roles.sql",
        "\tcoupon, coupon_void, installation, keeper, receive_rejected, user_coupon\n"
        "\tTO couponmq_gateway;\n",
        "\tcoupon, coupon_void, installation, keeper, receive_rejected, user_coupon\n"
        "\tTO couponmq_gateway;\nGRANT UPDATE ON coupon TO couponmq_gateway;\n",
        "tests/sql/test_sql_roles.py::test_it_may_not",
    ),
    mutant(
        "keys",
        "the key that PostgreSQL has revoked, when Redis' keys come back",
        "sql/function/api_key_restore.sql",
        "WHEN there.revoked_at IS NOT NULL THEN NULL",
        "WHEN false THEN NULL",
        KEYS + "test_postgresql_put_back_revives_no_revoked_key",
    ),
    mutant(
        "keys",
        "the revocation that only Redis has",
        "sql/function/api_key_restore.sql",
        "WHEN own.revoked THEN 'revoked'",
        "WHEN false THEN 'revoked'",
        KEYS + "test_postgresql_put_back_revives_no_revoked_key",
    ),
    mutant(
        "keys",
        "the number of changes of keys, which goes on above that of Redis",
        "sql/function/api_key_restore.sql",
        "SET num = redis_version WHERE num < redis_version;",
        "SET num = num;",
        KEYS + "test_the_number_continues_above_that_of_redis",
    ),
]
