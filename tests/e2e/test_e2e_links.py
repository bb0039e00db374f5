"""A worker's connections to RabbitMQ: one that hangs does not delay the others."""


import pytest

from relay import Relay, port_of
from stack import wait_until

CONFIRM_SELECT = b"\x00\x55\x00\x0a"  # only connections that publish request confirms


@pytest.fixture
def deaf(rough):
    """A relay that holds back the data of a connection from its first publisher's frame on."""
    proxy = Relay(port_of(rough.env["AMQP_URL"]))
    proxy.trap(CONFIRM_SELECT)
    yield proxy
    proxy.close()


def test_a_publisher_that_hangs_does_not_hold_up_settling(rough, rough_pg, worker_make, deaf):
    coupon = rough.coupon_make(100)
    with rough.client() as client:
        wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
        rough.stop("worker-1")
        worker = worker_make(rough, AMQP_URL=deaf.url(rough.env_of("worker")["AMQP_URL"]))
        wait_until(lambda: deaf.trapped_num() > 0)
        for user in range(1, 21):
            assert client.issue(coupon, user)["code"] == 0
            issued = "SELECT issued_num = %s FROM coupon WHERE id = %s"
            wait_until(lambda user=user: rough_pg.execute(issued, (user, coupon)).fetchone()[0])
        assert worker.metrics()["couponmq_worker_publisher_up"] == 0
        assert (
            client.issue(coupon, 21, ack="issued")["status"] == "issued"
        ), "by the look-up at its deadline"
    assert worker.metrics()["couponmq_worker_replies_lost_total"] == 1
    assert worker.terminate() == 0


@pytest.mark.long
def test_the_keeper_is_not_held_up_by_its_publisher(rough, rough_redis, worker_make, deaf):
    rough.stop("worker-1")
    worker = worker_make(rough, AMQP_URL=deaf.url(rough.env_of("worker")["AMQP_URL"]))
    wait_until(lambda: "keeper_elected" in worker.log())
    coupon = rough.coupon_make(1)
    key = f"coupon:{{{coupon}}}"
    wait_until(lambda: rough_redis.exists(key))
    hung = deaf.trapped_num()
    rough_redis.hset(key + ":outbox", "0" * 26, "not a message")
    wait_until(lambda: deaf.trapped_num() > hung)
    for _ in range(5):
        other = rough.coupon_make(1)
        wait_until(lambda other=other: rough_redis.exists(f"coupon:{{{other}}}"))
    assert "keeper_lost" not in worker.log()
    rough_redis.delete(key + ":outbox")
