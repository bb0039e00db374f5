"""A standby of a stack's PostgreSQL: a real one, made by pg_basebackup."""

import contextlib
import os
import signal
import subprocess
from urllib.parse import urlsplit

import psycopg

from stack import PORT_BASE, port_free, process_gone, wait_until

NAME = "standby"  # in synchronous_standby_names, and of its folder
URLS = ("DATABASE_URL", "DATABASE_ADMIN_URL")


class Standby:
    """Follows the stack's PostgreSQL until promote()."""

    def __init__(self, stack):
        self.stack = stack
        self.primary = int(stack.kept().get("STACK_PORT_BASE", PORT_BASE)) + 32
        self.data = (stack.run_dir / "postgres").resolve() / NAME
        self.bin = os.path.dirname(os.readlink(f"/proc/{stack.pid('postgres')}/exe"))
        self.port = port_free()
        self.child = None
        admin = urlsplit(stack.env["DATABASE_ADMIN_URL"])
        self.host, self.primary = admin.hostname, admin.port
        self.password = stack.kept()["STACK_PG_PASSWORD"]
        self._run("rm", "-rf", self.data)
        self._run(
            f"{self.bin}/pg_basebackup", "-D", self.data, "-R", "-c", "fast", "-h", self.host,
            "-p", self.primary, "-U", "postgres",
        )  # fmt: skip

    def _as_owner(self):
        owner = os.stat(self.data.parent).st_uid
        if os.getuid() == 0:
            return ["setpriv", f"--reuid={owner}", f"--regid={owner}", "--clear-groups", "--"]
        return []

    def _run(self, *command):
        done = subprocess.run(
            [*self._as_owner(), *map(str, command)],
            env={**os.environ, "PGPASSWORD": self.password, "LC_ALL": "C.UTF-8"},
            cwd=self.data.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, (command, done.stderr)

    def start(self):
        settings = [f"port={self.port}", f"cluster_name={NAME}", "unix_socket_directories="]
        with open(self.stack.run_dir / f"{NAME}.log", "ab") as log:
            self.child = subprocess.Popen(
                [*self._as_owner(), f"{self.bin}/postgres", "-D", str(self.data)]
                + [part for setting in settings for part in ("-c", setting)],
                env={**os.environ, "LC_ALL": "C.UTF-8"},
                cwd=self.data.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers)

    def _answers(self):
        try:
            with self.superuser():
                return True
        except psycopg.OperationalError:
            return False

    def stop(self):
        """At once, as if it had lost its power."""
        if self.child and self.child.poll() is None:
            self.child.send_signal(3)
            self.child.wait(60)
            wait_until(lambda: process_gone(self.child.pid))

    def promote(self):
        self._run(f"{self.bin}/pg_ctl", "promote", "-w", "-D", self.data)

    def remove(self):
        self.stop()
        self._run("rm", "-rf", self.data)

    # Connections

    def superuser(self, port=None):
        return psycopg.connect(
            host=self.host, port=port or self.port, user="postgres", password=self.password,
            dbname="couponmq", autocommit=True, connect_timeout=10,
        )  # fmt: skip

    def on_primary(self):
        return self.superuser(self.primary)

    def urls(self, *ports, program="worker"):
        """The settings of a program that connects to these, the first that can be written."""
        env = {**self.stack.env, **self.stack.env_of(program)}
        told = {}
        for name in URLS:
            url = urlsplit(env[name])
            hosts = ",".join(f"{self.host}:{port}" for port in ports)
            query = "&".join(filter(None, [url.query, "target_session_attrs=read-write"]))
            told[name] = url._replace(
                netloc=f"{url.netloc.rpartition('@')[0]}@{hosts}",
                query=query if len(ports) > 1 else url.query,
            ).geturl()
        return told

    def both(self, program="worker"):
        return self.urls(self.primary, self.port, program=program)

    def ctl(self, *arguments, **settings):
        """couponctl on the standby, or where the settings say."""
        return subprocess.run(
            [str(self.stack.build_dir / "couponctl"), *map(str, arguments)],
            env={
                **os.environ,
                **self.stack.env_of("operator"),
                **(settings or self.urls(self.port, program="operator")),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    # What the primary waits for

    def synchronous(self, name=NAME):
        """Each COMMIT of the primary waits for it; with "" for none."""
        self.names_set(name)
        if name:
            wait_until(lambda: self.state("sync_state") == "sync")

    def names_set(self, name=NAME):
        with self.on_primary() as pg:
            pg.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
            pg.execute("SELECT pg_reload_conf()")

    def cleared(self):
        """The names are cleared, and no COMMIT waits any more."""
        self.names_set("")
        with self.on_primary() as pg:
            pg.execute("SELECT pg_logical_emit_message(true, 'test', '')")

    @contextlib.contextmanager
    def frozen(self, *pids):
        """Processes of the primary."""
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def checkpointer(self):
        with self.on_primary() as pg:
            return pg.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"
            ).fetchone()[0]

    def state(self, column):
        with self.on_primary() as pg:
            row = pg.execute(f"SELECT {column} FROM pg_stat_replication").fetchone()
            return row and row[0]

    def caught_up(self):
        with self.on_primary() as pg:
            end = pg.execute("SELECT pg_current_wal_lsn()").fetchone()[0]
        wait_until(lambda: self.has(end))

    def has(self, end):
        with self.superuser() as pg:
            return pg.execute("SELECT pg_last_wal_replay_lsn() >= %s", (end,)).fetchone()[0]

    def sessions(self, like, where="true"):
        with self.on_primary() as pg:
            rows = pg.execute(
                f"SELECT pid FROM pg_stat_activity WHERE {where} AND application_name LIKE %s",
                (like,),
            ).fetchall()
            return [pid for pid, in rows]

    def waiting(self, like="coupon-worker%"):
        """The sessions whose COMMIT waits for a standby. The keeper may lock a coupon while its own
        COMMIT waits, so that nobody else comes to a COMMIT: its wait is cancelled."""
        if like != "%":
            for pid in self.sessions("coupon-keeper", "wait_event = 'SyncRep'"):
                self.cancel(pid)
        return self.sessions(like, "wait_event = 'SyncRep'")

    def cancel(self, pid):
        with self.on_primary() as pg:
            pg.execute("SELECT pg_cancel_backend(%s)", (pid,))
