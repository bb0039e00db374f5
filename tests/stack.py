"""A local stack for tests: settings, processes to start, kill and freeze, and a socket client."""

import itertools
import json
import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The folders of the C files.
FOLDERS = re.search("^FOLDERS = (.*)", (ROOT / "Makefile").read_text("utf-8"), re.M)[1].split()
RABBITMQ_BIN = os.environ.get("RABBITMQ_BIN", "/usr/lib/rabbitmq/bin")
RABBITMQ_NODE = "couponmq@localhost"
ERL_CALL_TEXT = '{ok, "'  # before a text, and its quote and brace after it
RUN_DIR = os.environ.get("RUN_DIR") or ".run-test"  # of the stack that `make test` started
PORT_BASE = int(os.environ.get("PORT_BASE") or 17400)
PORT_OFFSETS = (11, 21, 25, 32, 69, 72, 79, 80, 81, 82, 90)
SERVICES = ("redis", "rabbitmq", "postgres")
PORTS_FREE_FROM, PORTS_FREE_N = 900, 100  # from PORT_BASE on
# Generous: only what never comes takes so long.
WAIT_S = float(os.environ.get("TEST_WAIT_S") or 120)
ports_given = itertools.count()


def utc(seconds):
    """The second as commands take it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def wait_until(condition, timeout=WAIT_S, interval=0.02):
    """Returns the first true value of condition(); fails with the last one after timeout seconds.
    The interval grows, because several tests wait at once, and a condition may be a whole
    connection to a service."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"still {value!r} after {timeout} s")
        time.sleep(interval)
        interval = max(interval, min(1.5 * interval, 0.25))


def port_answers(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def port_free():
    """A port that is free now, of this run's own range: below those that the kernel gives to
    outgoing connections, and apart from other runs."""
    for _ in range(PORTS_FREE_N):
        port = PORT_BASE + PORTS_FREE_FROM + next(ports_given) % PORTS_FREE_N
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no free port from {PORT_BASE + PORTS_FREE_FROM} on")


def port_base_free(first):
    """The first port base from there on, in steps of 100, none of whose ports is in use."""
    for base in range(first, min(first + 10000, 65400), 100):
        if not any(port_answers(base + offset) for offset in PORT_OFFSETS):
            return base
    raise AssertionError(f"no free ports from {first} on")


def process_stat(pid):
    """(state, parent) of a process, or None when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], int(fields[1])


def process_tree(pid):
    """The process and all its descendants, parents first."""
    children = {}
    for entry in os.listdir("/proc"):
        stat = process_stat(entry) if entry.isdigit() else None
        if stat:
            children.setdefault(stat[1], []).append(int(entry))
    tree = [pid]
    for parent in tree:
        tree += children.get(parent, [])
    return tree


def process_gone(pid):
    """Also its other threads: they may hold its ports for longer than the first one lives."""
    stat = process_stat(pid)
    if stat is None:
        return True
    try:
        return stat[0] in "ZX" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except (FileNotFoundError, ProcessLookupError):
        return True


class TlsSocket(ssl.SSLSocket):
    def shutdown(self, how):
        """Shuts down the connection below, as a plain socket does: replies still arrive."""
        socket.socket.shutdown(self, how)


class Trust:
    """The CA certificates of this run's stacks: for dial(), and by the environment for other
    libraries."""

    def __init__(self):
        self.known = set()
        self.folder = tempfile.TemporaryDirectory(prefix="couponmq-ca-")
        self.bundle = Path(self.folder.name) / "bundle.pem"

    def add(self, path):
        certificate = Path(path).read_bytes()
        if certificate in self.known:
            return
        self.known.add(certificate)
        with self.bundle.open("ab") as file:
            file.write(certificate)
        for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
            os.environ[name] = str(self.bundle)

    def context(self):
        context = ssl.create_default_context(cafile=self.bundle)
        context.sslsocket_class = TlsSocket
        return context


def with_faults(stack, name):
    """The program of the build with fault points, once it is there: the parts of a whole run are
    built beside each other."""
    path = stack.build_dir.with_name(f"{stack.build_dir.name}-fault") / name

    def runs():
        try:
            done = subprocess.run([path, "--version"], stdout=subprocess.DEVNULL, check=False)
        except OSError:  # it is not there, or is being written
            return False
        return done.returncode == 0

    wait_until(runs)
    return path


TRUST = Trust() if os.environ.get("TLS") == "yes" else None  # as scripts/stack.sh has it
PLAIN = []  # not empty: in spite of that this test's own gateways are plain
# What a socket that does not wait raises.
WOULD_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def has_tls():
    return bool(TRUST) and not PLAIN


@contextmanager
def as_the_stack():
    """For what a test marked `plain` asks of its stack, and not of its own gateways."""
    held = PLAIN[:]
    PLAIN.clear()
    try:
        yield
    finally:
        PLAIN.extend(held)


def url_of(address, path=""):
    """HTTP of host:port."""
    return f"{'https' if has_tls() else 'http'}://{address}{path}"


def dial(address, timeout=60.0, receive_bytes=None, source=""):
    """A connection to host:port, under TLS where the stacks have it."""
    host, _, port = address.rpartition(":")
    connection = socket.socket()
    try:
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(timeout)
        connection.bind((source, 0))
        connection.connect((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if has_tls():
            connection = TRUST.context().wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise
    return connection


class Client:
    """The gateway's socket, line by line: sends exactly the given bytes."""

    def __init__(self, address, timeout=60.0, source=""):
        """address is host:port, or the path of a Unix socket."""
        if "/" in address:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(address)
        else:
            self.socket = dial(address, timeout, source=source)
        self.reader = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.reader.close()
        self.socket.close()

    def send_bytes(self, data):
        self.socket.sendall(data)

    def send_line(self, line):
        self.send_bytes((line if isinstance(line, str) else json.dumps(line)).encode() + b"\n")

    def read_line(self):
        """One line without its end; None once the gateway has closed."""
        line = self.reader.readline()
        if not line:
            return None
        assert line.endswith(b"\n"), f"half a line: {line!r}"
        return line[:-1].decode()

    def read_reply(self):
        line = self.read_line()
        assert line is not None, "the gateway closed the connection"
        return json.loads(line)

    def call(self, op, **members):
        self.send_line({"op": op, **members})
        return self.read_reply()

    def pipeline(self, requests):
        """Sends all the requests (dicts without id) at once; returns the replies in the order of
        the requests."""
        lines = [json.dumps({"id": index, **request}) for index, request in enumerate(requests)]
        self.send_bytes(("\n".join(lines) + "\n").encode())
        replies = sorted((self.read_reply() for _ in requests), key=lambda reply: reply["id"])
        assert [reply["id"] for reply in replies] == list(range(len(requests)))
        return replies

    def issue(self, coupon, user, **members):
        return self.call("issue", coupon=str(coupon), user=str(user), **members)


class Stack:
    SCRIPT = "stack.sh"  # of scripts/

    def __init__(self, run_dir, port_base=None):
        self.run_dir = (ROOT / run_dir).resolve()
        self.port_base = port_base
        self.build_dir = (ROOT / os.environ.get("BUILD_DIR", "build")).resolve()
        self.frozen = set()  # pids that sigstop froze
        self.settings = {}  # settings of this stack's processes, in addition to its env
        self.cluster = None  # of RabbitMQ, which env_of() leads to instead: broker_cluster.py

    def script(self, *arguments, **environment):
        """Runs that script with these arguments; environment is extra, GATEWAY_FLAGS="--x 1" for
        instance."""
        result = subprocess.run(
            [str(ROOT / "scripts" / self.SCRIPT), *arguments],
            env={
                **os.environ,
                "RUN_DIR": str(self.run_dir),
                "PORT_BASE": str(self.port_base or ""),
                "BUILD_DIR": str(self.build_dir),
                **{name: str(value) for name, value in {**self.settings, **environment}.items()},
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=900,
        )
        assert (
            result.returncode == 0
        ), f"{self.SCRIPT} {shlex.join(arguments)}: {result.returncode}\n{result.stdout}"
        return result.stdout

    @property
    def env(self):
        """The settings that the programs read, with logins that may do what all of them may."""
        return self._env_read("env")

    def env_of(self, program):
        """The environment with the logins of gateway, worker or operator, which coupon-admin has
        too."""
        login = "operator" if program == "admin" else program
        env = {**self.env, **self._env_read(f"env.{login}")}
        return {**env, **(self.cluster.env(env) if self.cluster else {})}

    def _env_read(self, name):
        lines = (self.run_dir / name).read_text().splitlines()
        words = (shlex.split(line, comments=True) for line in lines)
        env = dict(line[1].split("=", 1) for line in words if line and line[0] == "export")
        if has_tls() and "COUPON_TLS_CA" in env:
            TRUST.add(env["COUPON_TLS_CA"])
        if not has_tls():
            env = {name: value for name, value in env.items() if "COUPON_TLS_" not in name}
        return env

    def kept(self):
        """The secrets and the port base that scripts/stack.sh keeps."""
        lines = (self.run_dir / "settings").read_text().splitlines()
        return dict(shlex.split(line)[0].split("=", 1) for line in lines if "=" in line)

    def _rabbitmq_run(self, *command, **options):
        home = self.run_dir / "rabbitmq"
        base = int(self.kept()["STACK_PORT_BASE"])
        return subprocess.run(
            [*map(str, command)],
            env={
                **os.environ,
                "HOME": str(home),
                "LANG": "C.UTF-8",
                "ERL_EPMD_ADDRESS": "127.0.0.1",
                "ERL_EPMD_PORT": str(base + 69),
                "RABBITMQ_NODENAME": RABBITMQ_NODE,
                "RABBITMQ_DIST_PORT": str(base + 25),
                "RABBITMQ_CONF_ENV_FILE": "/dev/null",
                "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
                "RABBITMQ_LOG_BASE": str(home / "log"),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            **options,
        )

    def rabbitmqctl(self, *arguments):
        """Returns its output; fails if it refuses. It takes a second: see rabbitmq_eval()."""
        result = self._rabbitmq_run(
            f"{RABBITMQ_BIN}/rabbitmqctl", "-q", *arguments, stdin=subprocess.DEVNULL
        )
        assert (
            result.returncode == 0
        ), f"rabbitmqctl {shlex.join(map(str, arguments))}: {result.stdout}{result.stderr}"
        return result.stdout

    def rabbitmq_eval(self, expression):
        """The text of the value of an Erlang expression in the broker."""
        text = f'lists:flatten(io_lib:format("~0p", [begin {expression} end])).\n'
        told = self._rabbitmq_run("erl_call", "-n", RABBITMQ_NODE, "-e", input=text).stdout
        assert told.startswith(ERL_CALL_TEXT), f"{expression}: {told}"
        return told[len(ERL_CALL_TEXT) : -2].replace('\\"', '"')

    def policy_set(self, name, queues, definition):
        """queues: a regular expression; definition: JSON."""
        values = (json.dumps(value) for value in (name, queues, definition))
        name, queues, definition = (f"<<{value}>>" for value in values)
        told = self.rabbitmq_eval(
            f'rabbit_policy:parse_set(<<"/">>, {name}, {queues}, {definition}, 0, <<"queues">>,'
            ' <<"test">>)'
        )
        assert told == "ok", told

    def policy_clear(self, name):
        """Whether it was set or not."""
        self.rabbitmq_eval(f'rabbit_policy:delete(<<"/">>, <<"{name}">>, <<"test">>)')

    def queues_told(self):
        """The names and arguments of all queues, as a text."""
        return self.rabbitmq_eval(
            "lists:sort([{amqqueue:get_name(Q), amqqueue:get_arguments(Q)}"
            " || Q <- rabbit_amqqueue:list()])"
        )

    # The whole stack

    def backends(self):
        self.script("backends")

    def services(self):
        self.script("services")

    def down(self):
        self.script("stop")

    def remove(self):
        self.script("clean")

    # One process: redis, rabbitmq, postgres, gateway, worker-N

    def start(self, *names, **environment):
        self.script("start", *names, **environment)

    def stop(self, *names):
        self.script("stop", *names)

    def restart(self, name, **environment):
        self.stop(name)
        self.start(name, **environment)

    def pid(self, name):
        return int((self.run_dir / f"{name}.pid").read_text())

    def runs(self, name):
        try:
            return not process_gone(self.pid(name))
        except FileNotFoundError:
            return False

    def signal(self, name, number):
        os.kill(self.pid(name), number)

    def kill9(self, name, registers=True):
        """Kills it as a crash does: at once and without cleanup. registers: it can be asked for
        something before, if it is RabbitMQ."""
        if name == "rabbitmq" and registers:
            self.queues_register()
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: process_gone(pid))

    def queues_register(self):
        """Writes the names of the quorum queues to disk. RabbitMQ does so up to three seconds after
        a declaration; a queue that a crash in between takes off its register comes back empty and
        never elects a leader."""
        self.rabbitmq_eval("[ok = dets:sync(Table) || Table <- dets:all()]")

    def _signal(self, pids, number):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass  # a child, for instance of PostgreSQL, may end at any moment

    def sigstop(self, name):
        """Freezes the process and its children until sigcont."""
        pids = process_tree(self.pid(name))
        self.frozen.update(pids)
        self._signal(pids, signal.SIGSTOP)

    def sigcont(self, name):
        self._signal(process_tree(self.pid(name)), signal.SIGCONT)

    def thaw(self):
        """Continues every frozen process, also the children of processes killed meanwhile, which
        then end."""
        self._signal(self.frozen, signal.SIGCONT)
        self.frozen.clear()

    def log(self, name):
        return (self.run_dir / f"{name}.log").read_text(errors="replace")

    def log_has(self, name, text):
        return text in self.log(name)

    # The programs

    def ctl_run(self, *arguments, **options):
        """couponctl; returns the finished process with its stdout and stderr, whatever its exit
        code."""
        return self._tool_run("couponctl", arguments, options)

    def rush_run(self, *arguments, **options):
        """coupon-rush, likewise."""
        return self._tool_run("coupon-rush", arguments, options)

    def _tool_run(self, program, arguments, options):
        if "input" not in options:
            options["stdin"] = subprocess.DEVNULL
        return subprocess.run(
            [str(self.build_dir / program), *map(str, arguments)],
            env={**os.environ, **self.env_of("operator"), **options.pop("settings", {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=options.pop("timeout", 120),
            **options,
        )

    def ctl(self, *arguments):
        """couponctl that has to succeed; returns what it printed. Of a gateway that a test has
        killed a moment ago it is unknown whether it knows the change."""
        result = self.ctl_run(*arguments)
        assert (
            result.returncode == 0 or "gateways may answer as before" in result.stderr
        ), f"couponctl {shlex.join(map(str, arguments))}: {result.stderr}{result.stdout}"
        return result.stdout.strip()

    def rush(self, *arguments):
        """coupon-rush that has to pass."""
        result = self.rush_run(*arguments)
        assert result.returncode == 0, f"coupon-rush: {result.stderr}{result.stdout}"

    def coupon_make(self, total, limit=1, name="test", publish=True, **terms):
        """Creates a coupon and returns its id; terms are couponctl's: begin, end, valid_days,
        valid_from, …"""
        if not terms.keys() & {"valid_days", "valid_from", "valid_to"}:
            terms["valid_days"] = 30
        flags = [
            part for term, value in terms.items() for part in ("--" + term.replace("_", "-"), value)
        ]
        coupon = self.ctl("create", "--name", name, "--total", total, "--limit", limit, *flags)
        if publish:
            self.ctl("publish", coupon)
        return coupon

    def coupon_edit(self, coupon, *options):
        """Changes the version that the coupon has now."""
        shown = json.loads(self.ctl("show", coupon, "--json"))
        return self.ctl("edit", coupon, "--version", shown["postgresql"]["version"], *options)

    def client(self, timeout=60.0):
        return Client(self.env["COUPON_LISTEN"], timeout)

    def client_unix(self, timeout=60.0):
        return Client(self.env["COUPON_UNIX_SOCKET"], timeout)

    def http(self, path):
        return url_of(self.env["COUPON_HTTP_LISTEN"], path)

    def worker_http(self, number, path):
        """The URL of worker-NUMBER, whose port is the gateway's HTTP port plus NUMBER."""
        host, _, port = self.env["COUPON_HTTP_LISTEN"].rpartition(":")
        return url_of(f"{host}:{int(port) + number}", path)
