"""The log on standard error: who does not read it holds up nothing."""

import os
import signal
import subprocess
import threading

import pytest

from stack import Client, port_answers, port_free, wait_until


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.long
def test_a_log_that_nobody_reads_stops_nothing(stack, make_coupon, processes):
    """Standard error is a pipe that is full: requests are answered, the end of the process is not
    held up, and once the pipe is read, the log goes on and tells how much was dropped."""
    coupon = make_coupon(4000)
    address = f"127.0.0.1:{port_free()}"
    settings = {
        "COUPON_LISTEN": address,
        "COUPON_HTTP_LISTEN": "off",
        "COUPON_UNIX_SOCKET": "",
        "COUPON_TRACE": "all",
        "COUPON_PROCESSES": str(processes),
    }
    with subprocess.Popen(
        [str(stack.build_dir / "coupon-gateway")],
        env={**os.environ, **stack.env, **settings},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as gateway:
        try:
            wait_until(lambda: port_answers(int(address.rpartition(":")[2])))
            with Client(address) as client:
                wait_until(lambda: client.issue(coupon, 1)["code"] in (0, 4))
                for user in range(2, 3001):
                    assert client.issue(coupon, user)["code"] == 0
                log = []
                reader = threading.Thread(target=lambda: log.extend(gateway.stderr))
                reader.start()
                wait_until(lambda: any(b"event=log_dropped" in line for line in log))
                assert client.issue(coupon, 1)["code"] == 4
            gateway.send_signal(signal.SIGTERM)
            assert gateway.wait(30) == 0
            reader.join()
        finally:
            gateway.kill()
    assert all(line.startswith(b"time=") and line.endswith(b"\n") for line in log)
    assert b"event=stopped" in b"".join(log[-100:])
