"""An upgrade by packages, under load: from this tree to an artificial next version, which has a
migration and another form of messages (tests/next_version.py), on a machine with Debian's services
(machine.py)."""

import ctypes
import os
import re
import subprocess
import threading

import pytest

from machine import UNITS, Machine
from next_version import PATCH
from skips import NO_MACHINE
from stack import ROOT, Client, wait_until
from ulid import ulid_of

pytestmark = [
    pytest.mark.whole,
    pytest.mark.plain,
    pytest.mark.skipif(NO_MACHINE, reason="no machine of namespaces can be made here"),
]

BUYERS = 4
PAUSE_S = 0.005  # of a buyer: the machine is to be loaded, not full
SOME = 200  # answers
PROGRAMS = ("coupon-worker@1", "coupon-worker@2", "coupon-gateway", "coupon-admin")
FUNCTION = "code_revoke"  # which no buyer needs
LIBC = ctypes.CDLL(None, use_errno=True)
NETWORK = 0x40000000  # CLONE_NEWNET


def run(*command, **options):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}"


def packages_build(tree, folder):
    run("make", "-C", tree, "deb", f"DEB_DIR={folder}")
    return [path for path in folder.glob("couponmq-*.deb") if "-dbgsym" not in path.name]


@pytest.fixture(scope="module")
def present(tmp_path_factory):
    return packages_build(ROOT, tmp_path_factory.mktemp("present"))


@pytest.fixture(scope="module")
def following(tmp_path_factory):
    """The packages of the next version."""
    tree = tmp_path_factory.mktemp("tree")
    run("sh", "-c", f"git ls-files -z | xargs -0 cp --parents -t {tree}", cwd=ROOT)
    run("patch", "-p1", "--fuzz=0", "-i", PATCH, cwd=tree)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "The next version")):
        run("git", "-c", "user.name=couponmq", "-c", "user.email=couponmq@localhost", *words,
            cwd=tree)  # fmt: skip
    return packages_build(tree, tmp_path_factory.mktemp("following"))


class Buyer(threading.Thread):
    """Asks for a coupon for one user after the other, each until it has an answer."""

    def __init__(self, machine, coupon, number):
        super().__init__(daemon=True)
        self.init, self.coupon, self.number = machine.init, coupon, number
        self.receives, self.others = {}, []
        self.unanswered = 0
        self.client = self.wrong = None
        self.ends = threading.Event()

    def run(self):
        try:
            with open(f"/proc/{self.init}/ns/net", encoding="ascii") as network:
                assert LIBC.setns(network.fileno(), NETWORK) == 0, os.strerror(ctypes.get_errno())
            while not self.ends.is_set():
                user = f"{self.number}-{len(self.receives)}"
                reply = None
                while not reply or reply["code"] != 0:
                    self.ends.wait(PAUSE_S)
                    reply = self.ask(user)
                    if reply and reply["code"] != 0:
                        self.others.append(reply["status"])
                self.receives[user] = reply["receive"]
        except Exception as error:  # pylint: disable=broad-except # the test raises it
            self.wrong = error

    def ask(self, user):
        """The reply; None: there is no gateway, or it has closed before it answered."""
        try:
            self.client = self.client or Client("127.0.0.1:7411")
        except ConnectionRefusedError:
            return None
        try:
            return self.client.issue(self.coupon, user, key=user)
        except (AssertionError, OSError):
            self.unanswered += 1
            self.client.close()
            self.client = None
            return None


class Load:
    def __init__(self, machine, coupon):
        self.buyers = [Buyer(machine, coupon, number) for number in range(BUYERS)]
        for buyer in self.buyers:
            buyer.start()

    def wait(self, more=SOME):
        """Until each buyer has so many receives more."""
        wanted = [len(buyer.receives) + more for buyer in self.buyers]

        def have():
            for buyer in self.buyers:
                if buyer.wrong:
                    raise buyer.wrong
            return all(len(buyer.receives) >= n for buyer, n in zip(self.buyers, wanted))

        wait_until(have)

    def end(self):
        for buyer in self.buyers:
            buyer.ends.set()
        for buyer in self.buyers:
            buyer.join()
        return [receive for buyer in self.buyers for receive in buyer.receives.values()]


@pytest.fixture
def machine(tmp_path, present):
    """With the packages of this tree, set up."""
    one = Machine(tmp_path)
    try:
        one.out("rm", "-f", "/var/lib/man-db/auto-update", "/usr/sbin/policy-rc.d")
        one.services_start()
        one.out("dpkg", "-i", *present)
        one.out("couponctl", "setup", "--yes")
        yield one
    finally:
        one.close()


def pids(machine):
    return [machine.out("cat", UNITS / f"{name}.service.pid") for name in PROGRAMS]


def executables(machine):
    """What the programs run; a file that was replaced is called deleted."""
    return [machine.out("readlink", f"/proc/{pid}/exe").strip() for pid in pids(machine)]


def restarts(machine):
    calls = machine.out("cat", UNITS / "calls").splitlines()
    return [call for call in calls if "try-restart" in call]


def rows(machine, coupon):
    found = machine.sql(
        "couponmq", f"SELECT user_id, batch, idx FROM user_coupon WHERE coupon_id = {coupon}"
    )
    for line in found.splitlines():
        user, batch, index = line.split("|")
        yield f"{coupon}.{user}.{ulid_of(batch)}.{index}"


def test_upgrade_under_load(machine, following):
    """The programs go on while their tables are to be changed; then the commands that the package
    has printed upgrade them. Each receive that was answered has its row, once."""
    coupon = machine.out("couponctl", "create", "--name", "Noon", "--total", "1000000").strip()
    machine.out("couponctl", "publish", coupon)
    load = Load(machine, coupon)
    load.wait()
    before, calls = pids(machine), restarts(machine)

    told = machine.out("dpkg", "-i", *following)
    assert "This version of couponmq needs the following" in told
    assert "was not restarted" in told
    assert (pids(machine), restarts(machine)) == (before, calls)
    load.wait()
    commands = re.findall(r"^    (\S.*)$", told, re.MULTILINE)
    assert commands[0] == "couponctl setup" and len(commands) == 3
    for command in commands:
        machine.out("sh", "-c", command)
        load.wait()
    assert not set(pids(machine)) & set(before)
    assert executables(machine) == [f"/usr/sbin/{name.partition('@')[0]}" for name in PROGRAMS]

    # The next one finds all that it needs, though a unit is not as setup leaves it; so does one on
    # a machine that was set up by hand.
    for prepare in ("systemctl disable coupon-admin", "rm /etc/couponmq/setup.record"):
        before = pids(machine)
        machine.out("sh", "-c", prepare)
        assert "not restarted" not in machine.out("dpkg", "-i", *following)
        load.wait()
        assert not set(pids(machine)) & set(before)
        last = [call.partition("try-restart ")[2] for call in restarts(machine)[-2:]]
        assert last == ["coupon-worker@*.service", "coupon-gateway.service coupon-admin.service"]

    # An upgrade that asks PostgreSQL alone, which lacks a function here.
    before, calls = pids(machine), restarts(machine)
    machine.sql("couponmq", f"DROP FUNCTION {FUNCTION}")
    told = machine.out("dpkg", "-i", *following)
    assert FUNCTION in told and "was not restarted" in told
    assert re.findall(r"^    (couponctl .*)$", told, re.MULTILINE) == ["couponctl migrate"]
    assert (pids(machine), restarts(machine)) == (before, calls)
    machine.out("couponctl", "migrate")

    receives = load.end()
    wait_until(lambda: len(list(rows(machine, coupon))) >= len(receives))
    assert sorted(rows(machine, coupon)) == sorted(receives)
    assert machine.out("couponctl", "audit", "--all").splitlines()[-1].startswith("PASS")
    # A gateway that ends closes each connection once; three did.
    print([(buyer.unanswered, len(buyer.others)) for buyer in load.buyers])
    for buyer in load.buyers:
        assert buyer.unanswered <= 3
        assert set(buyer.others) <= {"unavailable", "unknown"}
