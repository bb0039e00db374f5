"""What tests may be skipped, and where: any other skip is a failure, of pytest (conftest.py), of a
program of cmocka (scripts/test.sh) and of a scenario (torture/run.py).

skips.py PROGRAM::TEST prints the reason; the exit status is 1 if that may not be skipped here."""

import fnmatch
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path


def lacks(*tools):
    return not all(map(shutil.which, tools))


ROOT = Path(__file__).resolve().parents[1]
RELEASE = Path("/etc/debian_version").read_text("ascii").strip()
BUILD = os.environ.get("BUILD_DIR", "")
DEBIAN_12 = RELEASE.startswith("12")
SELENIUM = importlib.util.find_spec("selenium")
YAML = importlib.util.find_spec("yaml")
KUBECTL_IS_NEW = ["bash", "-c", ". scripts/installed.sh; kubectl_is_new"]
NO_KUBECTL = subprocess.run(KUBECTL_IS_NEW, cwd=ROOT, check=False).returncode != 0
NPM_DONE = "node_modules/.package-lock.json"  # npm writes it last
NO_TYPES = lacks("node") or not (ROOT / "build/kubernetes" / NPM_DONE).exists()
NO_AXE = not (ROOT / "build/console" / NPM_DONE).exists()
NO_GENERATORS = lacks("node") or not (ROOT / "build/generators" / NPM_DONE).exists()
NO_SITE = lacks("mkdocs", "node") or not (ROOT / "build/diagrams" / NPM_DONE).exists()
NO_BROWSER = not SELENIUM or lacks("chromium", "chromedriver")
SANITIZED = "address" in BUILD or "thread" in BUILD
IS_USER = os.getuid() != 0
HAS_FILTER = "Seccomp:\t0" not in Path("/proc/self/status").read_text("ascii")
NO_DISK = IS_USER or HAS_FILTER or not all(map(os.path.exists, ("/dev/fuse", "/dev/loop-control")))
# In a root folder that is no mount point, for instance, no namespace of mounts can be private.
NAMESPACES = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "true"]
NO_MACHINE = IS_USER or HAS_FILTER or subprocess.run(NAMESPACES, check=False).returncode != 0
TORTURE = "tests/torture/"

# The tests, whether they may be skipped here, and why.
SKIPS = (
    ("unit_test_redis_tls::*", DEBIAN_12, "hiredis of Debian 12 has no TLS"),
    ("unit_test_redis_tls::test_a_build_without_*", not DEBIAN_12, "hiredis has TLS"),
    ("unit_test_log_output::test_foreign_pipe", IS_USER, "only root has another user's pipe"),
    ("unit_test_limits::*_dies_in_the_middle", HAS_FILTER, "no process may be stepped here"),
    ("unit_test_limits::*_is_counted_for_another", HAS_FILTER, "no process may be stepped here"),
    ("unit_test_word_table::*_process_dies_*", HAS_FILTER, "no process may be stepped here"),
    ("tests/e2e/test_e2e_systemd.py::*_thread_*", HAS_FILTER, "no thread may be frozen here"),
    ("tests/console/*", NO_BROWSER, "make test-console"),
    (
        "tests/console/test_console_operation.py::test_what_is_wrong_*",
        os.environ.get("TLS") == "yes",
        "a store's own port",
    ),
    ("tests/console/test_console_look.py::test_axe_*", NO_AXE, "make test-console"),
    ("tests/docs/test_compose.py::*", lacks("docker-compose"), "make test-compose"),
    ("tests/docs/test_kubernetes.py::*", NO_KUBECTL or not YAML, "make test-kubernetes"),
    ("tests/docs/test_kubernetes.py::*type*", NO_TYPES, "make test-kubernetes"),
    ("tests/docs/test_site.py::*", NO_SITE, "make site"),
    ("tests/docs/test_site.py::test_in_a_browser*", NO_BROWSER, "make test-console"),
    (
        "tests/e2e/test_e2e_admin_connections.py::*behind*",
        SANITIZED,
        "sanitizers have their own malloc",
    ),
    ("tests/e2e/test_e2e_browser.py::*", lacks("chromium"), "make test-outside"),
    (
        "tests/e2e/test_e2e_lock.py::test_zookeeper_*",
        not os.environ.get("WITH_ZOOKEEPER"),
        "WITH_ZOOKEEPER=1",
    ),
    ("tests/e2e/test_e2e_memory.py::*", SANITIZED, "sanitizers have their own malloc"),
    *(
        (f"tests/e2e/test_e2e_outside.py::test_{test}*", lacks(*tools), "make test-outside")
        for test, *tools in (
            ("testssl", "testssl"),
            ("slowhttptest", "slowhttptest"),
            ("other_clients", "ab", "h2load"),
        )
    ),
    ("tests/e2e/test_e2e_pooler.py::*", lacks("pgbouncer"), "make test-outside"),
    ("tests/e2e/test_e2e_store_tls.py::test_nobody_on_the_*", IS_USER, "only root may capture"),
    ("tests/e2e/test_e2e_store_tls.py::test_a_build_*", not DEBIAN_12, "hiredis has TLS"),
    *(
        (f"tests/e2e/test_e2e_store_tls.py::{test}", DEBIAN_12, "hiredis of Debian 12 has no TLS")
        for test in ("test_a_wrong_certificate_*", "test_certificates_that_*", "test_sentinels")
    ),
    ("tests/generators/*", NO_GENERATORS, "make test-generators"),
    ("tests/scripts/test_setup.py::*", NO_MACHINE, "no machine of namespaces here"),
    ("tests/scripts/test_start.py::*", NO_MACHINE, "no machine of namespaces here"),
    ("tests/scripts/test_upgrade.py::*", NO_MACHINE, "no machine of namespaces here"),
    ("tests/power/*", NO_DISK, "no disk for power cuts"),
    ("tests/scripts/test_install.py::*_purge", NO_MACHINE, "nothing may be mounted"),
    ("tests/scripts/test_run_ha.py::*", lacks("patroni", "etcd", "haproxy"), "make run-ha"),
    (TORTURE + "*", NO_DISK, "no disk, or no group of processes with a limit"),
)


def reason(test):
    """Why that test may be skipped here; None: it may not."""
    for pattern, is_here, why in SKIPS:
        if is_here and fnmatch.fnmatchcase(test, pattern):
            return why
    return None


if __name__ == "__main__":
    print(reason(sys.argv[1]) or "tests/skips.py does not allow it here")
    sys.exit(reason(sys.argv[1]) is None)
