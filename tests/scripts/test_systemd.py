"""The units of deploy/systemd/: systemd reads them without a word, finds them hardened, and they
agree with the programs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from stack import ROOT

UNITS = ROOT / "deploy/systemd"
SERVICES = ("coupon-gateway.service", "coupon-worker@.service", "coupon-admin.service")
SOCKETS = ("coupon-gateway.socket", "coupon-gateway-http.socket", "coupon-admin.socket")
# Prints what couponctl setup writes: the files of secrets, then the settings with their files.
SETUP = """
set -euo pipefail
eval "$(sed -n 's/^readonly \\(PROGRAMS=.*\\)/\\1/p' setup.sh)"
ETC=$1 SECRETS=$1/secrets NAME=couponmq ADMIN_URL=postgresql://owner@db
PORT_REDIS=1 PORT_RABBITMQ=2 PORT_POSTGRESQL=3
declare -A MODE=([redis]=$2 [rabbitmq]=$2 [postgresql]=$2)
declare -A URL=([redis]=redis://r [rabbitmq]=amqp://a [postgresql]=postgresql://p)
file_text() { cat "$1"; }
. ./choice.sh
. ./programs.sh
mkdir -p "$SECRETS"
passwords() { secrets | cut -d ' ' -f 1; }
(cd "$SECRETS" && passwords | xargs touch code-keys)
ls "$SECRETS"
echo
settings
"""


def run(*command):
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    ).stdout


def setting(name):
    """The default of a number."""
    table = (ROOT / "common/program/setting_table.h").read_text()
    return int(re.search(rf'"{name}",\s*"[a-z-]+",[\sA-Z|]+,\s*(\d+)', table)[1])


def values(unit, name):
    return re.findall(rf"^{name}=(.*)$", (UNITS / unit).read_text(), re.M)


@pytest.fixture
def root(tmp_path):
    """A root with the units of the system and ours, and what they start."""
    units = tmp_path / "usr/lib/systemd/system"
    shutil.copytree("/usr/lib/systemd/system", units, symlinks=True)
    for unit in ("couponmq.target", *SERVICES, *SOCKETS):
        shutil.copy(UNITS / unit, units)
    for path in ("usr/sbin/coupon-gateway", "usr/sbin/coupon-worker", "usr/sbin/coupon-admin"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copy("/bin/true", tmp_path / path)
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/kill", tmp_path / "bin")
    return tmp_path


def verified(root):
    """What systemd says about them."""
    units = ("couponmq.target", *SERVICES, *SOCKETS)
    names = [unit.replace("@.", "@1.") for unit in units]
    # The manual pages are not built yet.
    return run("systemd-analyze", "verify", "--man=no", f"--root={root}", *names)


def test_every_unit_is_here():
    found = {path.name for path in UNITS.iterdir()}
    assert found == {"couponmq.target", "couponmq.sysusers", *SERVICES, *SOCKETS}


def test_systemd_has_nothing_to_say(root):
    assert verified(root) == ""


@pytest.mark.parametrize("unit", [*SERVICES, *SOCKETS])
def test_systemd_names_what_is_wrong(root, unit):
    """So that the silence above says something."""
    path = root / "usr/lib/systemd/system" / unit
    path.write_text(path.read_text() + "Wished=yes\n")
    assert "Wished" in verified(root)


def documented_exposures():
    text = " ".join((ROOT / "docs/guides/deploy.md").read_text("utf-8").split())
    found = re.search(
        r"exposure of ([\d.]+) for gateway and worker, and of ([\d.]+) for admin", text
    )
    return dict(zip(SERVICES, (found[1], found[1], found[2])))


@pytest.mark.parametrize("unit", SERVICES)
def test_exposure(unit):
    """It is the documented one."""
    text = run("systemd-analyze", "security", "--offline=yes", "--no-pager", str(UNITS / unit))
    found = re.search(r"Overall exposure level for .*: ([\d.]+)", text)[1]
    assert found == documented_exposures()[unit]


def is_read_by(program, name):
    """Whether the program has the setting."""
    table = (ROOT / "common/program/setting_table.h").read_text()
    programs = re.search(rf'"{name}",\s*"[a-z-]+",\s*([A-Z| ]+)', table)[1].split(" | ")
    return program.upper() in programs or programs == ["ALL"]


@pytest.mark.parametrize("mode", ["local", "given"])
@pytest.mark.parametrize("unit", SERVICES)
def test_a_program_sees_the_secrets_that_it_needs(tmp_path, unit, mode):
    """And no other one that couponctl setup has made."""
    told = subprocess.run(
        ["bash", "-c", SETUP, "bash", str(tmp_path), mode],
        stdout=subprocess.PIPE, cwd=ROOT / "deploy/setup", text=True, check=True,
    ).stdout  # fmt: skip
    made, settings = (part.splitlines() for part in told.split("\n\n"))
    program = re.match("coupon-([a-z]+)", unit)[1]
    needed = set()
    for line in settings:
        file, name, value = line.split()
        if file in ("couponmq", program) and "/secrets/" in value:
            if is_read_by(program, name.removesuffix("_FILE")):
                needed.add(Path(value).name)
    hidden = values(unit, "InaccessiblePaths")
    assert all(path.startswith("-/etc/couponmq/secrets/") for path in hidden)
    hidden = {Path(path).name for path in hidden}
    assert len(needed) >= 3 and set(made) - hidden == needed
    if mode == "local":
        assert hidden < set(made)


def test_the_user_is_made(tmp_path):
    """In an empty system, once."""
    (tmp_path / "etc").mkdir()
    folder = tmp_path / "usr/lib/sysusers.d"
    folder.mkdir(parents=True)
    shutil.copy(UNITS / "couponmq.sysusers", folder / "couponmq.conf")
    for _ in range(2):
        run("systemd-sysusers", f"--root={tmp_path}", "couponmq.conf")
        lines = (tmp_path / "etc/passwd").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("couponmq:")]
        assert line.endswith(":/var/lib/couponmq:/usr/sbin/nologin")
        assert "couponmq:" in (tmp_path / "etc/group").read_text()
    for unit in SERVICES:
        assert (values(unit, "User"), values(unit, "Group")) == (["couponmq"], ["couponmq"])


def test_limits_are_those_of_the_settings():
    """TimeoutStopSec= is longer than the longest wait, and there are enough descriptors."""
    stops_s = setting("COUPON_DRAIN_S") + setting("COUPON_STOP_WAIT_S") + 13
    assert stops_s < int(values("coupon-gateway.service", "TimeoutStopSec")[0])
    admin_s = setting("COUPON_ADMIN_TIMEOUT_MS") / 1000 + 15
    assert admin_s <= int(values("coupon-admin.service", "TimeoutStopSec")[0])
    descriptors = setting("COUPON_CONNECTIONS_MAX") + 200
    assert descriptors <= int(values("coupon-gateway.service", "LimitNOFILE")[0])


def test_sockets_have_the_addresses_of_the_settings():
    table = (ROOT / "common/program/setting_table.h").read_text()
    for unit, name in zip(SOCKETS, ("COUPON_LISTEN", "COUPON_HTTP_LISTEN", "COUPON_ADMIN_LISTEN")):
        address = re.search(rf'"{name}",[^"]*"[a-z-]+",[^"]*"([\d.:]+)"', table)[1]
        assert values(unit, "ListenStream") == [address]


def test_whoever_stops_couponmq_stops_all_of_it():
    for unit in (*SERVICES, *SOCKETS):
        assert values(unit, "PartOf") == values(unit, "WantedBy") == ["couponmq.target"]
