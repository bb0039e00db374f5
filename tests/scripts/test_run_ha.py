"""`make run-ha`: three machines come up, although the bootstrap of PostgreSQL fails at first."""

import os
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from stack import PORT_BASE, ROOT, RUN_DIR, port_base_free, wait_until

sys.path.append(str(ROOT / "tests/ha"))

from bed import MACHINES, Bed  # noqa: E402

QUIET_S = 20  # then a bootstrap has failed; 60 s where no test waits for it
LIMIT_S = 900


@pytest.fixture
def bed():
    one = Bed(f"{RUN_DIR}-ha", port_base_free(PORT_BASE + 800))
    yield one
    one.script("clean")


def key_take(bed):
    """As a Patroni that has taken the key `initialize`, and does not know it."""
    try:
        name = f"http://{bed.hosts()['m1']}:{bed.port(23)}/v2/keys/service/couponmq/initialize"
        answer = requests.put(name, {"value": ""}, params={"prevExist": "false"}, timeout=5)
    except (FileNotFoundError, requests.RequestException):
        return False
    assert answer.status_code != 412, "Patroni has taken it already"
    return answer.status_code == 201


def initdb_of(bed):
    """The pid of an initdb of one of the machines, or None."""
    folders = [str((bed.run_dir / f"{machine}-postgres").resolve()) for machine in MACHINES]
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_text().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if words[0].endswith("/initdb") and any(f"{folder}/data" in words for folder in folders):
            return int(process.name)
    return None


@pytest.mark.long
@pytest.mark.skipif(
    not all(map(shutil.which, ("patroni", "etcd", "haproxy"))), reason="no patroni, etcd or haproxy"
)
def test_a_bootstrap_that_fails_begins_again(bed):
    """The key is taken by nobody; then the initdb of who takes it is killed in its middle."""
    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(bed.script, "run", BOOTSTRAP_S=QUIET_S)
        wait_until(lambda: run.done() or key_take(bed), LIMIT_S)
        initdb = wait_until(lambda: run.done() or initdb_of(bed), LIMIT_S)
        assert not run.done(), run.result()
        os.kill(initdb, signal.SIGKILL)
    assert "the bootstrap of PostgreSQL has told nothing new" in run.result()
    failed = [m for m in MACHINES if "Failed to bootstrap cluster" in bed.log(f"{m}-patroni")]
    assert len(failed) == 1
    wait_until(bed.is_whole)
