"""Errors to plant: each function plants one in the stores, and returns the finding that couponctl
audit must report, and a function that undoes it."""

import time

from audit_ground import user
from ulid import ulid_at, ulid_make, ulid_uuid
from user_ids import receive_parts


def issued_num_high(ground):
    return {"kind": "issued_num"}, ground.count_add("issued_num", 1)


def issued_num_low(ground):
    """A row without its count as well."""
    return {"kind": "issued_num"}, ground.count_add("issued_num", -1)


def settled_num_high(ground):
    return {"kind": "settled_num"}, ground.count_add("settled_num", 3)


def settled_num_low(ground):
    return {"kind": "settled_num"}, ground.count_add("settled_num", -1)


def seq_seen_high(ground):
    return {"kind": "seq_seen"}, ground.count_add("seq_seen", 1_000_000)


def seq_seen_low(ground):
    return {"kind": "seq_seen"}, ground.count_add("seq_seen", -1)


def row_deleted(ground):
    back = ground.remove("user_coupon", "user_id = %(user)s", user=user(5))
    return {
        "kind": "row_missing",
        "user": user(5),
        "slot": 1,
        "receive": ground.receives[user(5)],
    }, back


def row_added(ground):
    batch = ulid_make()
    back = ground.row_add(user(777), 1, batch, 3)
    return {
        "kind": "row_unknown",
        "user": user(777),
        "slot": 1,
        "receive": ground.receive(user(777), batch, 3),
    }, back


def row_added_and_issued_num(ground):
    batch = ulid_make()
    back = ground.row_add(user(777), 1, batch, 3)
    counted_back = ground.count_add("issued_num", 1)
    return {
        "kind": "row_unknown",
        "user": user(777),
        "slot": 1,
        "receive": ground.receive(user(777), batch, 3),
    }, lambda: (back(), counted_back())


def user_over_limit(ground):
    batch = ulid_make()
    back = ground.row_add(user(1), ground.limit + 1, batch, 0)
    receive = ground.receive(user(1), batch, 0)
    return {
        "kind": "user_limit",
        "user": user(1),
        "slot": ground.limit + 1,
        "receive": receive,
    }, back


def slot_beyond_limit(ground):
    batch = ulid_make()
    back = ground.row_add(user(778), 9, batch, 0)
    return {
        "kind": "slot_limit",
        "user": user(778),
        "slot": 9,
        "receive": ground.receive(user(778), batch, 0),
    }, back


def issued_and_rejected(ground):
    """Marked as freed, or a worker would mark it."""
    ground.sql(
        "INSERT INTO receive_rejected (coupon_id, batch, idx, user_id, slot, reason,"
        " received_at, freed_at)"
        " SELECT coupon_id, batch, idx, user_id, slot, 'slot_taken', received_at, now()"
        " FROM user_coupon WHERE coupon_id = %(coupon)s AND user_id = %(user)s",
        user=user(6),
    )
    return (
        {
            "kind": "issued_and_rejected",
            "user": user(6),
            "slot": 1,
            "receive": ground.receives[user(6)],
        },
        lambda: ground.remove("receive_rejected", "user_id = %(user)s", user=user(6)),
    )


def issued_twice(ground):
    _, _, batch, index = receive_parts(ground.receives[user(7)])
    back = ground.row_add(user(779), 1, batch, index)
    return {
        "kind": "issued_twice",
        "user": user(779),
        "slot": 1,
        "receive": ground.receive(user(779), batch, index),
    }, back


def slot_removed(ground):
    before = ground.record(user(8))
    ground.redis.hdel(ground.key + ":users", user(8))
    return (
        {
            "kind": "slot_missing",
            "user": user(8),
            "slot": 1,
            "receive": ground.receives[user(8)],
        },
        lambda: ground.redis.hset(ground.key + ":users", user(8), before),
    )


def slot_added(ground):
    batch = ulid_at(1_700_000_000_000)
    back = ground.record_set(user(780), f"1:{batch}:0:")
    return {
        "kind": "slot_unknown",
        "user": user(780),
        "slot": 1,
        "receive": ground.receive(user(780), batch, 0),
    }, back


def slot_added_of_the_future(ground):
    batch = ulid_at(int(time.time() * 1000) + 10**9)
    back = ground.record_set(user(781), f"1:{batch}:0:")
    return {
        "kind": "slot_unknown",
        "user": user(781),
        "slot": 1,
        "receive": ground.receive(user(781), batch, 0),
    }, back


def slot_of_another(ground):
    batch = ulid_at(1_700_000_000_000)
    back = ground.record_set(user(9), f"1:{batch}:4:key of 9")
    return {
        "kind": "slot_receive",
        "user": user(9),
        "slot": 1,
        "receive": ground.receive(user(9), batch, 4),
    }, back


def another_key(ground):
    back = ground.record_set(user(10), ground.record(user(10)) + "0")
    return {
        "kind": "slot_key",
        "user": user(10),
        "slot": 1,
        "receive": ground.receives[user(10)],
    }, back


def records_malformed(ground):
    back = ground.record_set(user(11), "1:not a batch:0:")
    return {"kind": "records_malformed", "user": user(11)}, back


def user_malformed(ground):
    back = ground.record_set("no id", f"1:{ulid_make()}:0:")
    return {"kind": "records_malformed", "user": None}, back


def slot_not_given_back(ground):
    receive = ground.rejected
    _, owner, batch, index = receive_parts(receive)
    record = f"{ground.limit + 1}:{batch}:{index}:"
    before = ground.record(owner)
    back = ground.record_set(owner, before + "\n" + record)
    return {
        "kind": "slot_unfreed",
        "user": user(782),
        "slot": ground.limit + 1,
        "receive": receive,
    }, back


def stock_more(ground):
    return {"kind": "sum"}, ground.add("stock", 1)


def stock_less(ground):
    return {"kind": "sum"}, ground.add("stock", -1)


def reserved_wrong(ground):
    return {"kind": "sum"}, ground.add("reserved", 2)


def lost_wrong(ground):
    return {"kind": "sum"}, ground.add("lost", 1)


def total_in_redis(ground):
    ground.add("total", 5)
    ground.add("stock", 5)
    return {"kind": "terms"}, lambda: (ground.add("total", -5), ground.add("stock", -5))


def total_in_postgresql(ground):
    return {"kind": "terms"}, ground.count_add("total_num", 5)


def changes(ground, owner, *moves):
    """Changes of a receive, each ACTION, ORDER, old and new state; `until` of holds is far."""
    _, _, batch, index = receive_parts(ground.receives[owner])
    place = {"batch": ulid_uuid(batch), "index": index, "user": owner}
    for number, (action, order, old, new) in enumerate(moves):
        ground.sql(
            "INSERT INTO use_operation (coupon_id, batch, idx, action, key, at, user_id, order_id,"
            " result, from_state, to_state, until) VALUES (%(coupon)s, %(batch)s, %(index)s,"
            " %(action)s, %(key)s, now(), %(user)s, %(order)s, 'kept', %(old)s, %(new)s,"
            " CASE %(new)s WHEN 'held' THEN timestamptz '2100-01-01' END)",
            action=action, order=order, old=old, new=new, key=f"{ground.coupon}.{number}", **place,
        )  # fmt: skip
    _, order, _, state = moves[-1]
    ground.sql(
        "INSERT INTO receive_use (coupon_id, batch, idx, user_id, state, order_id, until) VALUES"
        " (%(coupon)s, %(batch)s, %(index)s, %(user)s, %(state)s,"
        " CASE WHEN %(state)s <> 'free' THEN %(order)s END,"
        " CASE %(state)s WHEN 'held' THEN timestamptz '2100-01-01' END)",
        order=order, state=state, **place,
    )  # fmt: skip
    expected = {"user": owner, "slot": 1, "receive": ground.receives[owner]}

    def undo():
        for table in ("use_operation", "receive_use"):
            ground.pg.execute(f"DELETE FROM {table} WHERE coupon_id = %s", (ground.coupon,))

    return expected, undo


def used_twice(ground):
    moves = (("use", "a", "free", "used"), ("use", "b", "free", "used"))
    expected, undo = changes(ground, user(3), *moves)
    return {"kind": "use_taken", **expected}, undo


def unused_by_another(ground):
    moves = (("use", "a", "free", "used"), ("rollback", "b", "used", "free"))
    expected, undo = changes(ground, user(3), *moves)
    return {"kind": "use_taken", **expected}, undo


def hold_taken(ground):
    moves = (("hold", "a", "free", "held"), ("use", "b", "free", "used"))
    expected, undo = changes(ground, user(3), *moves)
    return {"kind": "hold_taken", **expected}, undo


def used_without_history(ground):
    expected, undo = changes(ground, user(3), ("use", "a", "free", "used"))
    ground.sql("DELETE FROM use_operation WHERE coupon_id = %(coupon)s")
    return {"kind": "use_state", **expected}, undo


def use_forgotten(ground):
    expected, undo = changes(ground, user(3), ("use", "a", "free", "used"))
    ground.sql("DELETE FROM receive_use WHERE coupon_id = %(coupon)s")
    return {"kind": "use_state", **expected}, undo


def used_by_another(ground):
    expected, undo = changes(ground, user(3), ("use", "a", "free", "used"))
    ground.sql("UPDATE receive_use SET order_id = 'b' WHERE coupon_id = %(coupon)s")
    return {"kind": "use_state", **expected}, undo


def used_and_never_issued(ground):
    _, undo = changes(ground, user(3), ("use", "a", "free", "used"))
    for table in ("use_operation", "receive_use"):
        ground.sql(f"UPDATE {table} SET idx = 200 WHERE coupon_id = %(coupon)s")
    return {"kind": "use_unknown", "user": user(3)}, undo


def budget_miscounted(ground):
    name = f"audit.{ground.coupon}"
    ground.pg.execute(
        "INSERT INTO budget (name, currency, amount, spent) VALUES (%s, 'EUR', 1000, 1)", (name,)
    )
    ground.sql(
        "UPDATE coupon SET budget = %(name)s, amount_off = 1, currency = 'EUR'"
        " WHERE id = %(coupon)s",
        name=name,
    )

    def undo():
        ground.sql(
            "UPDATE coupon SET budget = NULL, amount_off = NULL, currency = NULL"
            " WHERE id = %(coupon)s"
        )
        ground.pg.execute("DELETE FROM budget WHERE name = %s", (name,))

    return {"kind": "budget_sum"}, undo


ANYWHERE = [
    issued_num_high, issued_num_low, settled_num_high, row_deleted, row_added,
    row_added_and_issued_num, user_over_limit, slot_beyond_limit, issued_and_rejected, issued_twice,
    slot_removed, slot_added, slot_added_of_the_future, slot_of_another, another_key,
    records_malformed, user_malformed, slot_not_given_back, stock_more, stock_less, reserved_wrong,
    lost_wrong, total_in_redis, total_in_postgresql,
]  # fmt: skip


# These are set right by the next settlement, or stop it.


def coupon_malformed(ground):
    before = ground.redis.hget(ground.key, "stock")
    ground.redis.hset(ground.key, "stock", "many")
    return {"kind": "coupon_malformed"}, lambda: ground.redis.hset(ground.key, "stock", before)


def coupon_field_missing(ground):
    before = ground.redis.hget(ground.key, "version")
    ground.redis.hdel(ground.key, "version")
    return {"kind": "coupon_malformed"}, lambda: ground.redis.hset(ground.key, "version", before)


def users_of_another_type(ground):
    key, aside = ground.key + ":users", "aside:" + ground.coupon
    ground.redis.rename(key, aside)
    ground.redis.set(key, "a string")
    return {"kind": "key_type"}, lambda: ground.redis.rename(aside, key)


def outbox_of_another_type(ground):
    ground.redis.rpush(ground.key + ":outbox", "a list")
    return {"kind": "key_type"}, lambda: ground.redis.delete(ground.key + ":outbox")


def number_never_given_out(ground):
    return {"kind": "receive_lost", "user": None, "receive": None}, ground.add("seq", 4)


AT_REST = [
    settled_num_low, seq_seen_high, seq_seen_low, coupon_malformed, coupon_field_missing,
    users_of_another_type, outbox_of_another_type, number_never_given_out,
]  # fmt: skip
OF_ORDERS = [
    used_twice, unused_by_another, hold_taken, used_without_history, use_forgotten,
    used_by_another, used_and_never_issued, budget_miscounted,
]  # fmt: skip
# Not slot_removed: of a limit of 1 the keeper counts the users, and brings a lost one back.
OF_ANY_LIMIT = [row_deleted, slot_added, stock_more, stock_less]
