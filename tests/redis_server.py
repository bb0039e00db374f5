"""A private Redis without persistence."""
import shutil
import subprocess
import time

import pytest
import redis

from script_coupon import client_new
from stack import port_free


def server_start(folder):
    port = port_free()
    server = shutil.which("redis-server") or pytest.skip("no redis-server")
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
