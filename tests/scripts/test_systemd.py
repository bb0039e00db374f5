"""The units of deploy/systemd/: systemd reads them without a word, finds them hardened, and they
agree with the programs."""

import re
import shutil
import subprocess

import pytest

from stack import ROOT

UNITS = ROOT / "deploy/systemd"
SERVICES = ("coupon-gateway.service", "coupon-worker@.service", "coupon-admin.service")
SOCKETS = ("coupon-gateway.socket", "coupon-gateway-http.socket", "coupon-admin.socket")
EXPOSURE_MAX = 2.0


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


@pytest.mark.parametrize("unit", SERVICES)
def test_exposure(unit):
    command = ("systemd-analyze", "security", "--offline=yes", "--no-pager")
    threshold = f"--threshold={10 * EXPOSURE_MAX:.0f}"
    text = run(*command, threshold, str(UNITS / unit))
    exposure = float(re.search(r"Overall exposure level for .*: ([\d.]+)", text)[1])
    print(unit, exposure)
    assert 0 < exposure <= EXPOSURE_MAX


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
