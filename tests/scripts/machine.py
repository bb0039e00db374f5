"""A machine for tests of couponctl setup: namespaces of this one, with an /etc, /usr and /var of
its own, which begin as copies, stores without data, and ports and processes of its own. Debian's
services run as they do anywhere; only systemd does not, and a `systemctl` of our own starts and
stops what it is told.

    machine.py init FOLDER       its first process
    machine.py systemctl WORD..  its systemctl"""

import fcntl
import grp
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parent.parent.parent
PREFIX = Path("/run/opt")  # where couponmq is installed in it, unless by its packages
SHIMS = Path("/run/shims")
UNITS = Path("/run/units")
ETC = Path("/etc/couponmq")
# Folders of the stores: empty, with their owner and mode.
FOLDERS = {
    "/var/lib/postgresql": ("postgres", "postgres", 0o755),
    "/var/lib/rabbitmq": ("rabbitmq", "rabbitmq", 0o755),
    "/var/lib/redis": ("redis", "redis", 0o750),
    "/var/log/postgresql": ("root", "postgres", 0o1775),
    "/var/log/rabbitmq": ("rabbitmq", "rabbitmq", 0o755),
    "/var/log/redis": ("redis", "adm", 0o2750),
}
START_S = 120


class Machine:
    def __init__(self, folder, build_dir=None):
        """`folder` must exist; nothing of the machine stays in it. Without `build_dir` nothing of
        couponmq is installed."""
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child",
             "--mount-proc", "/usr/bin/python3", "-B", HERE, "init", folder],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        told = self.process.stdout.readline()
        assert told == "ready\n", told
        tasks = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.init = tasks.read_text().split()[0]
        self.inside = Path(f"/proc/{self.init}/root")
        self.shims_make()
        if build_dir:
            self.install(build_dir)

    def services_start(self):
        """As the installation of their packages does."""
        version = max(path.name for path in Path("/usr/lib/postgresql").iterdir())
        self.out("pg_createcluster", version, "main")
        self.out("systemctl", "start", "postgresql.service", "rabbitmq-server.service")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def install(self, build_dir):
        """As packages do it: other users than root may not enter the source tree."""
        for name in ("bin/couponctl", "sbin/coupon-gateway", "sbin/coupon-worker",
                     "sbin/coupon-admin"):  # fmt: skip
            target = self.inside / PREFIX.relative_to("/") / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(build_dir / Path(name).name, target)
        # Where coupon-admin finds it.
        (self.inside / "run/opt/sbin/couponctl").symlink_to("../bin/couponctl")
        shutil.copytree(ROOT / "deploy", self.inside / "run/opt/lib/couponmq")
        account = 'u couponmq - "couponmq" /var/lib/couponmq -\n'
        (self.inside / "etc/sysusers.d").mkdir(exist_ok=True)
        (self.inside / "etc/sysusers.d/couponmq.conf").write_text(account)

    def shims_make(self):
        shims = self.inside / SHIMS.relative_to("/")
        shims.mkdir()
        shim = shims / "systemctl"
        shim.write_text(f'#!/bin/sh\nexec /usr/bin/python3 -B {HERE} systemctl "$@"\n')
        shim.chmod(0o755)
        # rabbitmqctl of RabbitMQ 4 does not read from standard input.
        shim = shims / "rabbitmqctl"
        shim.write_text('#!/bin/sh\nexec /usr/sbin/rabbitmqctl "$@" </dev/null\n')
        shim.chmod(0o755)

    def words(self, *words, **env):
        """The words that run a program in the machine, with this environment alone."""
        path = f"{SHIMS}:{PREFIX}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return [
            "nsenter", f"--target={self.init}", "--mount", "--net", "--pid", "--uts", "--ipc", "--",
            "env", "-i", f"PATH={path}", "HOME=/root", "LANG=C.UTF-8",
            *(f"{name}={value}" for name, value in env.items()), *map(str, words),
        ]  # fmt: skip

    def run(self, *words, stdin="", **env):
        return subprocess.run(
            self.words(*words, **env), input=stdin, capture_output=True, text=True, timeout=600
        )

    def out(self, *words, **options):
        done = self.run(*words, **options)
        assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def run_as(self, user, *words, **options):
        return self.run("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--",
                        *words, **options)  # fmt: skip

    def sql(self, database, text):
        done = self.run_as("postgres", "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", database,
                           stdin=text)  # fmt: skip
        assert done.returncode == 0, (text, done.stderr)
        return done.stdout


# ---- in the machine


def mount(*words):
    subprocess.run(["mount", *words], check=True)


def loopback_up():
    with socket.socket() as probe:
        name, set_flags, up_and_running = b"lo", 0x8914, 0x41
        fcntl.ioctl(probe, set_flags, struct.pack("16sh14x", name, up_and_running))


def init(folder):
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "tmpfs", folder)
    etc = Path(folder) / "etc"
    subprocess.run(["cp", "-a", "/etc", etc], check=True)
    # What this machine may have of its own.
    for name in ("couponmq", "postgresql"):
        shutil.rmtree(etc / name, ignore_errors=True)
    for leftover in (*(etc / "redis").glob("*couponmq*"), *(etc / "rabbitmq").glob("rabbitmq.c*")):
        leftover.unlink()
    mount("--bind", etc, "/etc")
    for path in ("/usr", "/var"):
        upper, work = (Path(folder) / f"{path[1:]}-{part}" for part in ("upper", "work"))
        upper.mkdir()
        work.mkdir()
        layers = f"lowerdir={path},upperdir={upper},workdir={work}"
        mount("-t", "overlay", "-o", layers, "overlay", path)
    for path, (user, group, mode) in FOLDERS.items():
        ids = f"uid={pwd.getpwnam(user).pw_uid},gid={grp.getgrnam(group).gr_gid}"
        mount("-t", "tmpfs", "-o", f"{ids},mode={mode:o}", "tmpfs", path)
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for path in ("/run/systemd/system", "/run/lock", UNITS):
        Path(path).mkdir(parents=True)
    socket.sethostname("machine")
    with open("/etc/hosts", "a", encoding="ascii") as hosts:
        hosts.write("127.0.0.1 machine\n")
    loopback_up()
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:  # processes whose parent has ended
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.2)


def settings_of(*names):
    """The lines of files in /etc/couponmq, as EnvironmentFile= of systemd reads them."""
    env = {}
    for name in names:
        path = ETC / f"{name}.conf"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        for line in lines:
            if line.strip() and not line.startswith(("#", ";")):
                key, _, value = line.partition("=")
                env[key] = value
    return env


def port_answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(what, condition):
    deadline = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"systemctl: {what} did not start")
        time.sleep(0.05)


class Unit:
    def __init__(self, name):
        self.name = name
        self.kind, _, instance = name.rpartition(".")[0].partition("@")
        self.instance = instance
        self.pid_file = UNITS / f"{name}.pid"
        self.enabled_file = UNITS / f"{name}.enabled"

    def pid(self):
        """The process ID, if it runs."""
        try:
            pid = int(self.pid_file.read_text())
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return pid if state != "Z" else 0

    def is_active(self):
        if self.kind == "postgresql":
            return port_answers(5432)
        if self.kind == "rabbitmq-server":
            return port_answers(5672)
        if self.kind == "couponmq":
            return self.pid_file.exists()
        return self.pid() != 0

    def spawn(self, words, user, env):
        with open(UNITS / f"{self.name}.log", "ab") as log:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **env},
                user=user, group=user, extra_groups=[], start_new_session=True, cwd="/",
                close_fds=True,
            )  # fmt: skip
        self.pid_file.write_text(str(process.pid))

    def start(self):
        if self.is_active():
            return
        if self.kind == "couponmq":
            self.pid_file.write_text("0")
        elif self.kind == "postgresql":
            (version,) = os.listdir("/etc/postgresql")
            subprocess.run(["pg_ctlcluster", "--skip-systemctl-redirect", version, "main", "start"],
                           check=True)  # fmt: skip
        elif self.kind == "rabbitmq-server":
            with open("/var/log/rabbitmq/out", "ab") as log:
                subprocess.Popen(["rabbitmq-server"], stdin=subprocess.DEVNULL, stdout=log,
                                 stderr=log, start_new_session=True, cwd="/")  # fmt: skip
            # rabbitmqctl itself takes long, so it is not asked again and again.
            wait_for(self.name, self.is_active)
            subprocess.run(["rabbitmqctl", "-q", "await_startup"], check=True, capture_output=True)
        elif self.kind == "redis-server":
            self.redis_start()
        else:
            self.program_start()

    def redis_start(self):
        name = f"redis-{self.instance}" if self.instance else "redis"
        folder = Path(f"/run/{name}")
        folder.mkdir(exist_ok=True)
        shutil.chown(folder, "redis", "redis")
        conf = Path(f"/etc/redis/{name}.conf")
        lines = conf.read_text("utf-8").splitlines()
        (port,) = [line.split()[1] for line in lines if line.startswith("port ")]
        self.spawn(["redis-server", conf, "--daemonize", "no"], "redis", {})
        wait_for(self.name, lambda: port_answers(int(port)))

    def program_start(self):
        program = self.kind.removeprefix("coupon-")
        env = settings_of("couponmq", program, f"{program}-{self.instance}")
        log = UNITS / f"{self.name}.log"
        begun = log.stat().st_size if log.exists() else 0
        program = PREFIX / "sbin" / self.kind
        if not program.exists():
            program = Path("/usr/sbin") / self.kind
        self.spawn([program], "couponmq", env)

        def is_ready():
            return b"event=ready" in log.read_bytes()[begun:] or not self.pid()

        wait_for(self.name, is_ready)
        if not self.pid():
            sys.exit(f"systemctl: {self.name} ended: {log.read_text()[begun:]}")

    def stop(self):
        if self.kind == "couponmq":
            for file in UNITS.glob("coupon-*.service.pid"):
                Unit(file.name.removesuffix(".pid")).stop()
            self.pid_file.unlink(missing_ok=True)
            return
        pid = self.pid()
        if pid:
            os.kill(pid, signal.SIGTERM)
            wait_for(f"the end of {self.name}", lambda: not self.pid())


def systemctl(words):
    is_quiet = "-q" in words or "--quiet" in words
    now = "--now" in words
    verb, *names = [word for word in words if not word.startswith("-")]
    if any("*" in name for name in names):
        names = [
            file.name.removesuffix(".pid")
            for name in names
            for file in (UNITS.glob(f"{name}.pid") if "*" in name else [UNITS / f"{name}.pid"])
        ]
    units = [Unit(name if "." in name else f"{name}.service") for name in names]
    assert verb == "daemon-reload" or units or "*" in "".join(words), words
    with open(UNITS / "calls", "a", encoding="utf-8") as calls:
        calls.write(" ".join(words) + "\n")
    # As systemd: one of several is enough, and none of a pattern is not active.
    if verb == "is-enabled":
        assert is_quiet
        return 0 if any(unit.enabled_file.exists() for unit in units) else 1
    if verb == "is-active":
        return 0 if any(unit.is_active() for unit in units) else 3
    for unit in units:
        if verb == "start":
            unit.start()
        elif verb == "stop":
            unit.stop()
        elif verb in ("restart", "try-restart"):
            if verb == "restart" or unit.is_active():
                unit.stop()
                unit.start()
        elif verb == "enable":
            unit.enabled_file.touch()
            if now:
                unit.start()
        elif verb == "disable":
            unit.enabled_file.unlink(missing_ok=True)
            if now:
                unit.stop()
        else:
            sys.exit(f"systemctl: unknown {verb}")
    return 0


@contextmanager
def machine_open(folder, build_dir):
    one = Machine(folder, build_dir)
    try:
        yield one
    finally:
        one.close()


if __name__ == "__main__":
    if sys.argv[1] == "init":
        init(sys.argv[2])
    sys.exit(systemctl(sys.argv[2:]))
