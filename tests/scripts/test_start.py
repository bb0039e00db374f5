"""docs/start/install.md: its commands as they stand there, in their order, on a machine that has
the packages of this one and no network."""

import re
import subprocess

import pytest

from machine import Machine
from skips import NO_MACHINE
from stack import ROOT

PAGE = (ROOT / "docs/start/install.md").read_text(encoding="utf-8")
NOTHING_TO_FETCH = 'Dir::Etc { SourceList "/dev/null"; SourceParts "/dev/null"; };\n'
COMMANDS_MOST = 10
NUMBERS = "no one two three four five six seven eight nine ten".split()


def commands(text):
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return "".join(blocks).replace("REPOSITORY", str(ROOT))


@pytest.fixture
def machine(tmp_path):
    """As Debian's installer leaves it, but with what the page installs of Debian."""
    subprocess.run([ROOT / "scripts/packages.sh", "deb"], check=True)
    one = Machine(tmp_path)
    try:
        one.out("tee", "/etc/apt/apt.conf.d/offline", stdin=NOTHING_TO_FETCH)
        one.out("rm", "-f", "/var/lib/man-db/auto-update")  # its index takes long
        one.services_start()
        yield one
    finally:
        one.close()


@pytest.mark.whole
@pytest.mark.skipif(NO_MACHINE, reason="no machine of namespaces can be made here")
def test_each_command_of_the_page(machine):
    begin, _, end = PAGE.partition("\n## What next\n")
    number = len(commands(begin).splitlines())
    assert number <= COMMANDS_MOST and f": {NUMBERS[number]} commands," in begin

    told = machine.out("bash", "-ec", f"mkdir /run/page; cd /run/page\n{commands(begin)}")
    assert re.search("^status +issued$", told, re.MULTILINE), told
    (key,) = re.findall(r"cmq_\w{10}_[\w-]+", told)
    (console,) = set(re.findall(r"Open (http://\S+)", PAGE))
    assert f"Console: {console}\n" in told
    assert "<title>" in machine.out("curl", "-sf", console)
    shown = machine.out("curl", "-sf", "-H", f"Authorization: Bearer {key}",
                        f"{console}admin/v1/campaigns")  # fmt: skip
    assert '"Noon"' in shown
    assert machine.sql("couponmq", "SELECT user_id FROM user_coupon") == "ann\n"

    refused = machine.run("couponctl", "setup", "--remove")
    assert "nothing was removed: PostgreSQL has 1 receives" in refused.stderr
    machine.out("bash", "-ec", commands(end))
    assert machine.run("which", "couponctl").returncode != 0
    assert machine.out("find", "/etc/couponmq", "-type", "f") == "/etc/couponmq/secrets/code-keys\n"
    assert "couponmq" not in machine.out("rabbitmqctl", "-s", "list_vhosts")
    left = machine.sql("postgres", "SELECT rolname FROM pg_roles WHERE rolname LIKE 'couponmq%'")
    assert left == ""
