"""A private Redis without persistence."""
import contextlib
import os
import shutil
import subprocess
import time

import pytest
import redis

from script_coupon import client_new
from stack import port_free

SERVERS = ("redis-server", "valkey-server")


def server_find():
    """REDIS_SERVER, as for scripts/stack.sh."""
    names = [os.environ.get("REDIS_SERVER")] if os.environ.get("REDIS_SERVER") else SERVERS
    return next(filter(None, map(shutil.which, names)), None)


def server_start(folder):
    port = port_free()
    server = server_find() or pytest.skip("no Redis server")
    process = subprocess.Popen(
        [
            server,
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(folder),
            "--save",
            "",
            "--appendonly",
            "no",
        ],
        stdout=subprocess.DEVNULL,
    )
    client = client_new(f"redis://127.0.0.1:{port}/0")
    deadline = time.monotonic() + 60
    while True:
        try:
            client.ping()
            return process, client
        except redis.ConnectionError:
            if time.monotonic() > deadline or process.poll() is not None:
                process.kill()
                raise
            time.sleep(0.01)


@contextlib.contextmanager
def replica_of(port, folder):
    """The process of a replica without Sentinels."""
    words = (server_find(), "--port", port_free(), "--replicaof", f"127.0.0.1 {port}", "--save", "")
    child = subprocess.Popen([*map(str, words)], cwd=folder, stdout=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
