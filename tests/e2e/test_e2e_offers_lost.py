"""What is on offer while a store is away, and after Redis has lost its data."""

import uuid

import pytest

from stack import wait_until


@pytest.fixture
def tag():
    return "t" + uuid.uuid4().hex[:12]


def test_without_postgresql_it_is_what_was_read_last(rough, rough_pg, tag):
    coupon = rough.coupon_make(10, tags=tag)
    rough_pg.close()
    with rough.client() as client:
        rough.stop("postgres")
        (one,) = client.call("offers", tag=tag, user="ann")["offers"]
        assert (one["coupon"], one["stock"], one["claimable"]) == (coupon, 10, True)
        assert client.issue(coupon, "ann")["code"] == 0
        wait_until(lambda: client.call("offers", tag=tag)["offers"][0]["stock"] == 9)
        (one,) = client.call("offers", tag=tag, user="ann")["offers"]
        assert (one["taken"], one["claimable"]) == (1, False)
        rough.start("postgres")
        rough.coupon_edit(coupon, "--name", "known again")
        wait_until(lambda: client.call("offers", tag=tag)["offers"][0]["name"] == "known again")


def test_a_new_gateway_without_postgresql_does_not_know(rough, rough_pg, gateway_make, tag):
    rough.coupon_make(10, tags=tag)
    rough_pg.close()
    rough.sigstop("postgres")
    gateway = gateway_make(rough, ready=False)
    with gateway.client() as client:
        reply = client.call("offers", tag=tag)
        assert (reply["code"], reply["status"]) == (21, "unavailable"), reply
        rough.sigcont("postgres")
        wait_until(lambda: client.call("offers", tag=tag)["code"] == 0)


def test_without_redis_nothing_is_told(rough, tag):
    rough.coupon_make(10, tags=tag)
    with rough.client() as client:
        assert len(client.call("offers", tag=tag)["offers"]) == 1
        rough.stop("redis")
        wait_until(lambda: client.call("offers", tag=tag, user="ann")["code"] == 21)
        rough.start("redis")
        wait_until(lambda: client.call("offers", tag=tag, user="ann")["code"] == 0)


def test_after_redis_has_lost_its_data(rough, rough_redis, tag):
    """Within a second the coupon is unavailable, until it is whole again."""
    coupon = rough.coupon_make(10, limit=2, tags=tag)
    with rough.client() as client:
        assert client.issue(coupon, "ann", ack="issued")["status"] == "issued"
        rough.sigstop("worker-1")  # the keeper
        rough_redis.flushall()

        def offer():
            (one,) = client.call("offers", tag=tag, user="ann")["offers"]
            return one

        wait_until(lambda: offer()["state"] == "unavailable")
        one = offer()
        assert (one["claimable"], one["why"]) == (False, "unavailable")
        assert not {"total", "stock", "limit", "taken", "left"} & one.keys()
        rough.sigcont("worker-1")
        wait_until(lambda: offer()["state"] == "open")
        one = offer()
        assert (one["stock"], one["taken"], one["left"], one["claimable"]) == (9, 1, 1, True)


def test_postgresql_loses_its_notifications(rough, rough_pg, tag):
    """The gateway's session ends, and what changed meanwhile is read by the next one."""
    coupon = rough.coupon_make(10, tags=tag)
    with rough.client() as client:
        assert [one["coupon"] for one in client.call("offers", tag=tag)["offers"]] == [coupon]
        rough_pg.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'coupon-gateway%%'"
        )
        rough_pg.execute(
            "UPDATE coupon SET name = 'another', version = version + 1 WHERE id = %s", (coupon,)
        )
        wait_until(lambda: client.call("offers", tag=tag)["offers"][0]["name"] == "another")
