"""`couponctl distribute` while a gateway or the workers fail, or limits are reached: each listed
user still gets the coupon once."""

import signal
from contextlib import contextmanager

import pytest

from giving import DONE, KEY, STOPPED, Giving, ended, given, list_write
from stack import wait_until

MANY = [str(user) for user in range(1, 30_001)]


@pytest.fixture
def giving_make(rough, rough_coupon, tmp_path):
    def make(n, *options, **settings):
        coupon = rough_coupon(100_000, limit=3).coupon
        path = list_write(tmp_path / "users", MANY[:n])
        return Giving(rough, coupon, path, *options, **settings)

    return make


@pytest.mark.long
def test_the_gateway_dies_and_returns(rough, rough_pg, giving_make):
    giving = giving_make(len(MANY), "--rate", 10_000)
    process = giving.start()
    for end in (rough.kill9, rough.stop):
        before = giving.issued()
        wait_until(lambda before=before: giving.issued() > before)
        end("gateway")
        assert process.poll() is None
        rough.start("gateway")
    assert ended(process)[2] == DONE
    assert given(rough_pg, giving.coupon) == {user: [KEY] for user in MANY}


def test_a_gateway_that_is_away(rough, giving_make):
    giving = giving_make(10, "--patience-s", 1)
    rough.stop("gateway")
    out, err, code = ended(giving.start())
    assert code == STOPPED and "the gateway cannot be reached: Connection refused" in err
    assert "left" in out
    rough.start("gateway")
    assert giving.run()["issued"] == 10


def test_a_frozen_gateway_is_left_by_a_signal(rough, rough_pg, giving_make):
    giving = giving_make(len(MANY), "--rate", 10_000)
    process = giving.start()
    wait_until(lambda: giving.issued() > 0)
    rough.sigstop("gateway")
    process.send_signal(signal.SIGINT)
    with pytest.raises(Exception):
        process.wait(1)  # for what is in flight
    process.send_signal(signal.SIGINT)
    assert ended(process)[2] == -signal.SIGINT
    rough.thaw()
    giving.options = ()
    assert giving.run()["finished"]
    assert given(rough_pg, giving.coupon) == {user: [KEY] for user in MANY}


@contextmanager
def without_workers(rough):
    rough.stop("worker-1")
    yield
    rough.start("worker-1")


def test_unknown_answers(rough, rough_pg, giving_make, gateway_make):
    gateway = gateway_make(rough, COUPON_ISSUED_TIMEOUT_MS=200)
    giving = giving_make(500, listen=gateway.settings["COUPON_LISTEN"])
    with without_workers(rough):
        process = giving.start()
        assert "waiting: the gateway answers unknown" in next(
            line for line in process.stderr if "waiting" in line
        )
    assert ended(process)[2] == DONE
    assert given(rough_pg, giving.coupon) == {user: [KEY] for user in MANY[:500]}


@pytest.mark.long
def test_busy_answers(rough, rough_pg, giving_make, gateway_make):
    gateway = gateway_make(rough, COUPON_INFLIGHT_MAX=20)
    giving = giving_make(3000, listen=gateway.settings["COUPON_LISTEN"])
    assert giving.run()["refused"] == {}
    assert gateway.metrics()["couponmq_answers_total{busy}"] > 0
    assert given(rough_pg, giving.coupon) == {user: [KEY] for user in MANY[:3000]}
