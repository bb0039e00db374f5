"""A Redis for the scripts: the one of REDIS_URL, or a private one; and always a private one for what would disturb others."""
import os
import shutil
import socket
import subprocess
import time

import pytest
import redis

from script_coupon import Coupon, client_new


def port_free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def server_start(folder):
    port = port_free()
    server = shutil.which("redis-server") or pytest.skip("no redis-server")
    process = subprocess.Popen(
        [server, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
         "--appendonly", "no"], stdout=subprocess.DEVNULL)
    client = client_new(f"redis://127.0.0.1:{port}/0")
    deadline = time.monotonic() + 10
    while True:
        try:
            client.ping()
            return process, client
        except redis.ConnectionError:
            if time.monotonic() > deadline or process.poll() is not None:
                process.kill()
                raise
            time.sleep(0.01)


@pytest.fixture(scope="session")
def private_redis(tmp_path_factory):
    process, client = server_start(tmp_path_factory.mktemp("redis"))
    yield client
    client.close()
    process.terminate()
    process.wait(timeout=10)


@pytest.fixture(scope="session")
def shared_redis(request):
    url = os.environ.get("REDIS_URL")
    if not url:
        return request.getfixturevalue("private_redis")
    client = client_new(url)
    request.addfinalizer(client.close)
    return client


@pytest.fixture
def coupon(shared_redis):
    c = Coupon(shared_redis)
    yield c
    c.delete()


@pytest.fixture
def private_coupon(private_redis):
    c = Coupon(private_redis)
    yield c
    c.delete()
