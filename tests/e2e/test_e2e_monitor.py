"""A worker's metrics and health over HTTP."""


import requests

from process import Process, metrics_read
from stack import dial, wait_until


def status(url):
    try:
        return requests.get(url, timeout=60).status_code
    except requests.RequestException:
        return None


def summed(stack, name):
    return sum(metrics_read(stack.worker_http(number, "/metrics"))[name] for number in (1, 2))


def test_counters_of_what_is_settled_and_rejected(stack, gateway, make_coupon, pg):
    coupon = make_coupon(10)
    names = [
        "couponmq_worker_issued_total",
        "couponmq_worker_rejected_total",
        "couponmq_worker_rejections_total{out_of_stock}",
    ]
    before = [summed(stack, name) for name in names]
    pg.execute("UPDATE coupon SET total_num = 2 WHERE id = %s", (coupon,))
    requests_at_once = [
        {"op": "issue", "coupon": coupon, "user": str(user), "ack": "issued"}
        for user in range(1, 6)
    ]
    codes = [reply["code"] for reply in gateway.pipeline(requests_at_once)]
    assert sorted(codes) == [0, 0, 9, 9, 9], "admitted before the first rejection is freed"
    wait_until(
        lambda: [summed(stack, name) for name in names]
        == [before[0] + 2, before[1] + 3, before[2] + 3]
    )
    assert (
        summed(stack, "couponmq_worker_consumer_up")
        == summed(stack, "couponmq_worker_database_up")
        == 2
    )


def test_ready_while_it_can_settle(rough, worker_make):
    worker = worker_make(rough)
    wait_until(lambda: status(worker.http("/readyz")) == 200)
    told = wait_until(
        lambda: (told := requests.get(worker.http("/readyz"), timeout=60).json())["redis"] == "ok"
        and told
    )
    assert (told["rabbitmq"], told["postgresql"], told["ready"]) == ("ok", "ok", True)
    rough.stop("postgres")
    wait_until(lambda: status(worker.http("/readyz")) == 503)
    assert requests.get(worker.http("/readyz"), timeout=60).json()["postgresql"] == "not connected"
    assert status(worker.http("/healthz")) == 200
    rough.start("postgres")
    wait_until(lambda: status(worker.http("/readyz")) == 200)


def test_held_while_postgresql_is_away(rough, worker_make):
    coupon = rough.coupon_make(10)
    with rough.client() as client:
        wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
        rough.stop("worker-1")
        worker = worker_make(rough)
        wait_until(lambda: status(worker.http("/readyz")) == 200)
        rough.stop("postgres")
        assert client.issue(coupon, 1)["code"] == 0
        wait_until(lambda: worker.metrics()["couponmq_worker_held"] == 1)
        rough.start("postgres")
        wait_until(lambda: worker.metrics()["couponmq_worker_held"] == 0)


def test_paths_and_methods(stack):
    url = stack.worker_http(1, "")
    head = requests.head(url + "/metrics", timeout=60)
    assert (head.status_code, head.content) == (200, b"")
    assert status(url + "/v1/issue") == 404
    assert requests.post(url + "/metrics", timeout=60).status_code >= 400
    with dial(url.partition("://")[2], 3) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20000)
        client.settimeout(5)
        answer = client.recv(4096)
        assert not answer or b" 4" in answer.splitlines()[0]
    assert status(url + "/healthz") == 200


def test_the_address_is_checked_at_the_start(stack):
    for wrong in (
        "nowhere",
        "127.0.0.1:0",
        f"127.0.0.1:{stack.worker_http(1, '').rpartition(':')[2]}",
    ):
        worker = Process(
            stack, "coupon-worker", "worker-refused", {"COUPON_WORKER_HTTP_LISTEN": wrong}
        )
        assert worker.child.wait(10) == 1
        assert f'COUPON_WORKER_HTTP_LISTEN is "{wrong}"' in worker.log()
