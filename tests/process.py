"""Programs of couponmq as children of the test, which sets their settings and reads their exit
codes."""

import json
import os
import resource
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import requests
from prometheus_client.parser import text_string_to_metric_families

from stack import Client, port_free, process_gone, process_tree, url_of, wait_until

ENDS_S = 120
NOBODY = 65534
ISSUER, AUDIENCE = "https://shop.example", "couponmq"  # of tokens
STANDARD_N = 3  # descriptors: 0, 1, 2
LINES_SHOWN = 60  # of the log, when a test fails


def metrics_read(url):
    """name, or name{label value}: value."""
    samples = {}
    for family in text_string_to_metric_families(requests.get(url, timeout=60).text):
        for sample in family.samples:
            labels = ",".join(sample.labels.values())
            samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return samples


def confirmed_wait(stack):
    """Until RabbitMQ has confirmed all that the stack's gateway has published."""
    url = stack.http("/metrics")
    wait_until(lambda: metrics_read(url)["couponmq_receives_unconfirmed"] == 0)


@contextmanager
def no_descriptors(pid):
    """The process gets none beside those that it has, even if it closes some."""
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (STANDARD_N, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def privileges_drop():
    """A limit on processes does not apply to root."""
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)


class Process:
    """One program with the stack's settings and additional ones. Its log is among those of the
    stack."""

    def __init__(self, stack, program, name, settings, descriptors_max=None, unprivileged=False):
        self.stack = stack
        self.settings = {name: str(value) for name, value in settings.items()}
        self.log_path = stack.run_dir / f"{name}.log"
        self.log_begin = self.log_path.stat().st_size if self.log_path.exists() else 0

        def limits():
            if descriptors_max:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors_max, descriptors_max))
            if unprivileged:
                privileges_drop()

        with open(self.log_path, "ab") as log, open(stack.build_dir / program, "rb") as binary:
            self.child = subprocess.Popen(
                [str(stack.build_dir / program)],
                # the user nobody may not read every folder
                executable=f"/proc/self/fd/{binary.fileno()}",
                pass_fds=[binary.fileno()],
                env={
                    **os.environ,
                    **stack.env_of(Path(program).name.removeprefix("coupon-")),
                    **self.settings,
                },
                stdin=subprocess.PIPE,  # nothing comes: who asks there waits for good
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=limits,
            )

    def log(self):
        return self.log_path.read_bytes()[self.log_begin :].decode(errors="replace")

    def memory(self):
        """Resident bytes."""
        pages = int(Path(f"/proc/{self.child.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def signal(self, number):
        self.child.send_signal(number)

    def terminate(self):
        """SIGTERM; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.child.wait(ENDS_S)

    def kill9(self):
        self.child.kill()
        self.child.wait(ENDS_S)

    def end(self):
        if self.child.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.child.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                self.kill9()
        print(self.log_path.name, *self.log().splitlines()[-LINES_SHOWN:], sep="\n")


class Worker(Process):
    """A worker with metrics on a port of its own."""

    def __init__(self, stack, name, settings):
        self.port = port_free()
        super().__init__(
            stack,
            "coupon-worker",
            name,
            {"COUPON_WORKER_HTTP_LISTEN": f"127.0.0.1:{self.port}", **settings},
        )

    def http(self, path):
        return url_of(f"127.0.0.1:{self.port}", path)

    def metrics(self):
        return metrics_read(self.http("/metrics"))

    def ready(self):
        """It consumes receives and uses, over a connection each."""
        return self.log().count("event=ready ") == 2


class Gateway(Process):
    def processes(self):
        """The children of --processes."""
        return [pid for pid in process_tree(self.child.pid)[1:] if not process_gone(pid)]

    def client(self, timeout=60.0):
        return Client(self.settings["COUPON_LISTEN"], timeout)

    def http(self, path):
        return url_of(self.settings["COUPON_HTTP_LISTEN"], path)

    def metrics(self):
        return metrics_read(self.http("/metrics"))

    def answers(self):
        try:
            return requests.get(self.http("/healthz"), timeout=60).ok
        except requests.RequestException:
            return False

    def ready(self):
        """One process answers and lacks nothing; of several, each may issue."""
        several = int(self.settings.get("COUPON_PROCESSES", 1))
        if several > 1 and self.log().count("event=gateway_known") < several:
            return False
        return requests.get(self.http("/readyz"), timeout=60).json().get("degraded") == []

    def trouble(self, part):
        """The reason why the part is not ready, or ok."""
        return requests.get(self.http("/readyz"), timeout=60).json()[part]


def gateway_process(stack, name, ready=True, descriptors_max=None, unprivileged=False, **settings):
    """ready: True: wait until it is; False: only until it answers; None: not at all."""
    gateway = Gateway(
        stack,
        "coupon-gateway",
        name,
        {
            "COUPON_LISTEN": f"127.0.0.1:{port_free()}",
            "COUPON_HTTP_LISTEN": f"127.0.0.1:{port_free()}",
            "COUPON_UNIX_SOCKET": "",
            "COUPON_DRAIN_S": 0,
            **settings,
        },
        descriptors_max,
        unprivileged,
    )
    if ready is not None:
        wait_until(gateway.answers)
    if ready:
        wait_until(gateway.ready)
    return gateway


def jwks_write(folder, jwks):
    """A file of token keys that a gateway takes."""
    folder.chmod(0o755)
    path = folder / "jwks.json"
    path.write_text(json.dumps(jwks))
    path.chmod(0o600)
    return path


def guarded_process(stack, name, jwks, **settings):
    """A gateway where each request needs a key, or a token by this file. It logs all of them, so
    that each test of it is one of the access log, too."""
    return gateway_process(
        stack,
        name,
        COUPON_AUTH="required",
        COUPON_TOKEN_KEYS=str(jwks),
        COUPON_TOKEN_ISSUER=ISSUER,
        COUPON_TOKEN_AUDIENCE=AUDIENCE,
        COUPON_TOKEN_LEEWAY_S="0",
        COUPON_LOG_ACCESS="1",
        **settings,
    )
