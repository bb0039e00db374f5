"""HAProxy with deploy/haproxy.cfg before two gateways of a test."""

import csv
import os
import re
import shutil
import socket
import subprocess

from stack import ROOT, TRUST, has_tls, port_answers, port_free, wait_until

CONFIG = ROOT / "deploy/haproxy.cfg"
ADDRESS = "127.0.0.3"  # from which it connects
HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
PORTS = {"7411": "COUPON_LISTEN", "7480": "COUPON_HTTP_LISTEN"}


def config_make(path, ports, gateways, check):
    """The file with the addresses of the test, and time for checks on a slow machine."""
    text = CONFIG.read_text("utf-8")
    text = f"global\n    stats socket {path}.sock level admin\n" + text[text.index("\ndefaults") :]
    text = text.replace("\ndefaults\n", f"\ndefaults\n    source {ADDRESS}\n")
    text = re.sub(r".*-3 10\.2\.0\.3:.*\n", "", text)  # there are two
    text = text.replace("timeout check 1s", f"timeout check {check}")
    if has_tls():
        text = text.replace("# default-server check-ssl", "default-server check-ssl")
        text = text.replace("/etc/haproxy/couponmq-ca.pem", str(TRUST.bundle))
    for port, name in PORTS.items():
        text = text.replace(f"bind :{port}", f"bind 127.0.0.1:{ports[name]}")
        for number, gateway in enumerate(gateways, 1):
            text = text.replace(f"10.2.0.{number}:{port}", gateway.settings[name])
    assert "10.2." not in text and "bind :" not in text
    path.write_text(text)


class Balancer:
    def __init__(self, folder, gateways, check):
        self.ports = {name: port_free() for name in PORTS.values()}
        self.path = folder / "haproxy.cfg"
        config_make(self.path, self.ports, gateways, check)
        self.child = subprocess.Popen([HAPROXY, "-db", "-f", self.path])
        wait_until(lambda: all(port_answers(port) for port in self.ports.values()))

    def address(self, name):
        return f"127.0.0.1:{self.ports[name]}"

    def stats(self, backend, server):
        """What HAProxy says of it: its state, and how many connections there are."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(f"{self.path}.sock")
            admin.sendall(b"show stat\n")
            text = admin.makefile("r").read()
        rows = csv.DictReader(text.removeprefix("# ").splitlines())
        (row,) = [row for row in rows if (row["pxname"], row["svname"]) == (backend, server)]
        return re.match("[A-Z]+", row["status"])[0], int(row["scur"])

    def states(self, number):
        """The states of a gateway, as the balancer sees it."""
        return {self.stats(backend, f"gateway-{number}")[0] for backend in ("lines", "http")}

    def wait(self, number, state):
        wait_until(lambda: self.states(number) == {state})

    def end(self):
        self.child.terminate()
        self.child.wait(120)
