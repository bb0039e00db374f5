"""A worker's connections to RabbitMQ: one that hangs holds up nothing but itself."""

import re
import threading
import time

import pytest

from process import Proxy
from stack import wait_until

CONFIRM_SELECT = b"\x00\x55\x00\x0a"  # only connections that publish ask for confirms


class Deaf(Proxy):
    """A proxy that lets nothing through any more, either way, on a connection from the first publisher's frame on."""

    def __init__(self, port):
        self.hung = 0
        self.ended = threading.Event()
        super().__init__(port)

    def _pump(self, source, target, flowing, whole):
        try:
            while data := source.recv(65536):
                if flowing and CONFIRM_SELECT in data:
                    self.hung += 1
                    self.ended.wait()
                    return
                target.sendall(data)
        except OSError:
            pass

    def close(self):
        self.ended.set()
        super().close()


@pytest.fixture
def deaf(rough):
    proxy = Deaf(int(re.search(r":(\d+)/", rough.env["AMQP_URL"])[1]))
    yield proxy
    proxy.close()


def test_a_publisher_that_hangs_does_not_hold_up_settling(rough, rough_pg, worker_make, deaf):
    coupon = rough.coupon_make(100)
    with rough.client() as client:
        wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
        rough.stop("worker-1")
        worker = worker_make(rough, AMQP_URL=deaf.url(rough.env["AMQP_URL"]))
        wait_until(lambda: deaf.hung > 0)
        begun = time.monotonic()
        for user in range(1, 21):
            assert client.issue(coupon, user)["code"] == 0
            issued = "SELECT issued_num = %s FROM coupon WHERE id = %s"
            wait_until(
                lambda user=user: rough_pg.execute(issued, (user, coupon)).fetchone()[0], timeout=2
            )
        assert time.monotonic() - begun < 10
        assert worker.metrics()["couponmq_worker_publisher_up"] == 0
        assert (
            client.issue(coupon, 21, ack="issued")["status"] == "issued"
        ), "by the look-up at its deadline"
    assert worker.metrics()["couponmq_worker_replies_lost_total"] == 1
    assert worker.terminate() == 0


def test_the_keeper_is_not_held_up_by_its_publisher(rough, rough_redis, worker_make, deaf):
    rough.stop("worker-1")
    worker = worker_make(rough, AMQP_URL=deaf.url(rough.env["AMQP_URL"]))
    wait_until(lambda: "keeper_elected" in worker.log())
    coupon = rough.coupon_make(1)
    key = f"coupon:{{{coupon}}}"
    wait_until(lambda: rough_redis.exists(key))
    hung = deaf.hung
    rough_redis.hset(key + ":outbox", "0" * 26, "not a message")
    wait_until(lambda: deaf.hung > hung)
    for _ in range(5):
        other = rough.coupon_make(1)
        wait_until(lambda other=other: rough_redis.exists(f"coupon:{{{other}}}"), timeout=2)
    assert "keeper_lost" not in worker.log()
    rough_redis.delete(key + ":outbox")
