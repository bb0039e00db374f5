"""A Redis for the scripts: the one of REDIS_URL, or a private one; and always a private one for
tests that would disturb others."""
import os

import pytest

from redis_server import server_start
from script_coupon import Coupon, client_new


@pytest.fixture(scope="session")
def private_redis(tmp_path_factory):
    process, client = server_start(tmp_path_factory.mktemp("redis"))
    yield client
    client.close()
    process.terminate()
    process.wait(timeout=120)


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
