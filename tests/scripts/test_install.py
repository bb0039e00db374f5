"""`make install` and `make deb`: which files there are, what the shared library exports, and that
the packages can be installed, removed, purged, and built again as the same bytes."""

import os
import re
import subprocess
from contextlib import contextmanager

import pytest

from skips import NO_MACHINE
from stack import ROOT, port_free

BUILD_DIR = os.environ.get("BUILD_DIR") or "build"
TOOLS = {"bin/couponctl", "bin/coupon-rush"}
SERVERS = {"sbin/coupon-admin", "sbin/coupon-gateway", "sbin/coupon-worker"}
DEVELOPMENT = {"include/couponlock.h", "share/man/man3/couponlock.3"}
DATA_OF_SETUP = {"redis-users.conf", "rabbitmq.json", "fill.awk"}
UNITS = (".service", ".socket", ".target")
LINKS = """\
WHEN has couponmq.target.wants
WHEN has couponmq.target.wants/coupon-admin.service
WHEN has couponmq.target.wants/coupon-gateway.service
WHEN has couponmq.target.wants/coupon-gateway.socket
WHEN has couponmq.target.wants/coupon-worker@1.service
WHEN has couponmq.target.wants/coupon-worker@eu.service
WHEN has multi-user.target.wants/couponmq.target
"""
# What tests/scripts/package_life.sh prints.
LIVED = f"""\
{LINKS.replace("WHEN", "enabled")}\
/etc/couponmq 755 root:root
/etc/couponmq/secrets 750 root:couponmq
couponmq:/var/lib/couponmq:/usr/sbin/nologin
{LINKS.replace("WHEN", "upgraded")}\
upgraded has code-keys
upgraded has couponmq.conf
upgraded has of-the-admin
upgraded has password
upgraded has worker-2.conf
removed: stop coupon-*.socket
removed: stop coupon-gateway.service coupon-admin.service
removed: stop couponmq.target coupon-worker@*.service
{LINKS.replace("WHEN", "removed")}\
removed has code-keys
removed has couponmq.conf
removed has of-the-admin
removed has password
removed has worker-2.conf
reinstalled has code-keys
reinstalled has couponmq.conf
reinstalled has of-the-admin
reinstalled has password
reinstalled has worker-2.conf
{LINKS.replace("WHEN", "reinstalled")}\
reinstalled has /usr/bin/couponctl
reinstalled has /usr/sbin/coupon-gateway
purged has code-keys
purged has of-the-admin
"""


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make(*words, **env):
    return run("make", "-C", ROOT, f"BUILD_DIR={BUILD_DIR}", *words, env={**os.environ, **env})


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def files(root):
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def pages(*sections):
    found = [(path, path.suffix[1:]) for path in (ROOT / BUILD_DIR / "man").glob("*")]
    return {f"share/man/man{number}/{path.name}" for path, number in found if number in sections}


def completions():
    found = (ROOT / BUILD_DIR / "completion").glob("*")
    return {f"share/bash-completion/completions/{path.name}" for path in found}


def units():
    return {path.name for path in (ROOT / "deploy/systemd").glob("*") if path.suffix in UNITS}


def of_systemd():
    """The files that make the user and folders."""
    return {
        f"lib/{path.suffix[1:]}.d/{path.stem}.conf"
        for path in (ROOT / "deploy/systemd").glob("*")
        if path.suffix in (".sysusers", ".tmpfiles")
    }


def of_setup():
    """What couponctl setup runs."""
    parts = {f"setup/{path.name}" for path in (ROOT / "deploy/setup").iterdir()}
    return {f"lib/couponmq/{name}" for name in parts | DATA_OF_SETUP}


# ---- make install


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A root in which all is installed."""
    made = tmp_path_factory.mktemp("root")
    make("install", f"DESTDIR={made}")
    return made


def test_installs_these_files(root):
    library = {"lib/libcouponlock.so", "lib/libcouponlock.so.0", "lib/pkgconfig/couponlock.pc"}
    expected = TOOLS | SERVERS | library | DEVELOPMENT | pages("1", "7", "8") | completions()
    expected |= of_systemd() | {f"lib/systemd/system/{name}" for name in units()} | of_setup()
    assert files(root) == {f"usr/local/{name}" for name in expected}
    assert (root / "etc/couponmq").is_dir()
    for name in TOOLS | SERVERS:
        assert os.access(root / "usr/local" / name, os.X_OK)


def test_units_name_the_installed_programs(root):
    for path in (root / "usr/local/lib/systemd/system").glob("*.service"):
        (program,) = re.findall("^ExecStart=(\\S+)", path.read_text("utf-8"), re.MULTILINE)
        assert program.startswith("/usr/local/sbin/")
        assert (root / program[1:]).exists()


def test_uninstall_removes_all_but_the_settings(tmp_path):
    make("install", f"DESTDIR={tmp_path}", "PREFIX=/opt/couponmq")
    assert (tmp_path / "opt/couponmq/bin/couponctl").exists()
    (tmp_path / "etc/couponmq/couponmq.conf").touch()
    make("uninstall", f"DESTDIR={tmp_path}", "PREFIX=/opt/couponmq")
    assert files(tmp_path) == {"etc/couponmq/couponmq.conf"}
    (tmp_path / "etc/couponmq/couponmq.conf").unlink()
    make("uninstall", f"DESTDIR={tmp_path}", "PREFIX=/opt/couponmq")
    assert not (tmp_path / "etc/couponmq").exists()


@contextmanager
def admin_ready(program):
    """coupon-admin runs, without stores: the line that says so."""
    env = {
        "COUPON_ADMIN_LISTEN": f"127.0.0.1:{port_free()}",
        "DATABASE_URL": "postgresql://127.0.0.1:1/x",
        "REDIS_URL": "redis://127.0.0.1:1",
    }
    with subprocess.Popen([program], env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield next(line for line in process.stderr if "event=ready" in line)
        finally:
            process.terminate()


def test_coupon_admin_finds_couponctl(root, tmp_path):
    """In ../bin, or rather beside itself."""
    for folder in ("bin", "sbin"):
        (tmp_path / folder).mkdir()
    os.link(root / "usr/local/sbin/coupon-admin", tmp_path / "sbin/coupon-admin")
    os.link(root / "usr/local/bin/couponctl", tmp_path / "bin/couponctl")
    with admin_ready(tmp_path / "sbin/coupon-admin") as line:
        assert line.endswith(f" program={tmp_path}/sbin/../bin/couponctl\n")
    os.link(root / "usr/local/bin/couponctl", tmp_path / "sbin/couponctl")
    with admin_ready(tmp_path / "sbin/coupon-admin") as line:
        assert line.endswith(f" program={tmp_path}/sbin/couponctl\n")


# ---- the library of locks


def test_the_library_exports_what_the_header_declares(root):
    declared = set(re.findall(r"^\S[^(\n]*\b(lock_\w+)\(", text("lock/lock.h"), re.MULTILINE))
    declared -= {"lock_lost_fn"}
    assert len(declared) >= 8
    printed = run("nm", "-D", "--defined-only", root / "usr/local/lib/libcouponlock.so.0")
    exported = [line.split()[2] for line in printed.splitlines() if " A " not in line]
    assert set(exported) == {f"{name}@@COUPONLOCK_0" for name in declared}
    symbols = re.findall("^ (lock_\\S+)@", text("debian/libcouponlock0.symbols"), re.MULTILINE)
    assert set(symbols) == declared
    page = text("lock/couponlock.3").partition(".SH DESCRIPTION")[0]
    assert set(re.findall(r"\b(lock_\w+)\(", page)) == declared
    printed = run("readelf", "-d", root / "usr/local/lib/libcouponlock.so")
    assert re.findall("SONAME.*\\[(.*)\\]", printed) == ["libcouponlock.so.0"]


def test_another_program_links_the_library(root, tmp_path):
    """As C and as C++; a wrong URL does not end it."""
    env = {
        **os.environ,
        "PKG_CONFIG_PATH": str(root / "usr/local/lib/pkgconfig"),
        "PKG_CONFIG_SYSROOT_DIR": str(root),
    }
    flags = run("pkg-config", "--cflags", "--libs", "couponlock", env=env).split()
    strict = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
    header = root / "usr/local/include/couponlock.h"
    run("g++", *strict, "-x", "c++", "-fsyntax-only", "-include", header, "/dev/null")
    program = tmp_path / "stranger"
    run("gcc", "-std=c11", *strict, "-o", program, ROOT / "tests/lock/stranger.c", *flags)
    lines = run(program, env={"LD_LIBRARY_PATH": str(root / "usr/local/lib")}).splitlines()
    unreachable, refused = 3, 4
    assert lines[0].startswith(f"{unreachable} 0 Redis: ") and "refused" in lines[0]
    assert lines[1].startswith(f"{refused} 0 the URL is not of the form redis://")
    assert lines[2].startswith(f"{unreachable} 0 PostgreSQL: ") and "refused" in lines[2]
    assert lines[3:] == ["0 x:a%3Ab"]


# ---- the packages of Debian


def test_the_packages_have_the_version_of_the_programs():
    (version,) = re.findall('PROGRAM_VERSION "(.*)"', text("common/program/program.h"))
    assert text("debian/changelog").startswith(f"couponmq ({version.replace('-', '~')}) ")


def test_the_packages_are_built_with_what_the_programs_are():
    """The libraries in scripts/packages.sh, but that of unit tests; manual pages need Python."""
    build = text("scripts/packages.sh").partition("BUILD=(\n")[2].partition(")")[0].split()
    control = text("debian/control").partition("Build-Depends:")[2].partition("\nStandards")[0]
    needed = {name.strip() for name in control.split(",")}
    tests = {"build-essential", "libcmocka-dev"}
    assert set(build) - tests == needed - {"debhelper-compat (= 13)", "python3"}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The folder with the packages."""
    folder = tmp_path_factory.mktemp("packages")
    make("deb", f"DEB_DIR={folder}")
    return folder


def contents(packages, name):
    """The files of the package below usr, but documents and what is for lintian. Units are in /lib
    in Debian 12."""
    (package,) = packages.glob(f"{name}_*.deb")
    listed = run("sh", "-c", f"dpkg-deb --fsys-tarfile {package} | tar -t").splitlines()
    names = [re.sub("^[.]/(usr/)?", "", line) for line in listed if not line.endswith("/")]
    return {name for name in names if not name.startswith(("share/doc/", "share/lintian/"))}


@pytest.mark.whole
def test_packages_have_these_files(packages):
    library = "lib/" + run("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip()

    def packed(names):
        return {f"{name}.gz" if name.startswith("share/man/") else name for name in names}

    server = SERVERS | of_systemd() | {f"lib/systemd/system/{name}" for name in units()}
    server |= of_setup()
    assert contents(packages, "couponmq-server") == server | packed(pages("8"))
    assert contents(packages, "couponmq-client") == TOOLS | completions() | packed(pages("1", "7"))
    assert contents(packages, "libcouponlock0") == {f"{library}/libcouponlock.so.0"}
    links = {f"{library}/libcouponlock.so", f"{library}/pkgconfig/couponlock.pc"}
    assert contents(packages, "libcouponlock-dev") == links | packed(DEVELOPMENT)


@pytest.mark.whole
def test_lintian_has_nothing_to_say(packages):
    (changes,) = packages.glob("*.changes")
    assert run("lintian", "--tag-display-limit", "0", "--fail-on", "none", changes) == ""


@pytest.mark.whole
def test_a_second_build_is_the_same_bytes(packages, tmp_path):
    """In another folder, at another time, with another time zone, language and home."""
    folder = tmp_path / "another/folder"
    strange = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "HOME": "/nonexistent", "LANG": "de_DE.UTF-8"}
    make("deb", f"DEB_DIR={folder}", **strange)
    names = sorted(path.name for path in packages.glob("*.deb"))
    assert len([name for name in names if "-dbgsym" not in name]) == 4
    assert sorted(path.name for path in folder.glob("*.deb")) == names
    for name in names:
        assert (packages / name).read_bytes() == (folder / name).read_bytes(), name


@pytest.mark.whole
def test_install_upgrade_remove_reinstall_purge(packages, tmp_path):
    """In a copy of this system, without stores: what runs is not restarted. Units stay enabled; at
    the end the keys of codes remain, and what is not of the package, but no link of a unit."""
    if NO_MACHINE:
        pytest.skip("nothing may be mounted here")
    found = [path for path in packages.glob("*.deb") if "-dbgsym" not in path.name]
    life = ROOT / "tests/scripts/package_life.sh"
    printed = run(*("unshare", "--mount", "--propagation", "private", life, tmp_path), *found)
    assert printed == LIVED
