"""What the programs and stores of the stack count while they work: script calls, messages and
transactions, bytes between each two of them, bytes written to disk, and syncs of the disk.

Bytes on the network are the kernel's for each TCP connection, also for those that end meanwhile
(ss); syncs are counted by perf. Both need root.
"""

import os
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import urlsplit

import cpu
import requests
from rig import redis_open

STORES = {"redis": "REDIS_URL", "rabbitmq": "AMQP_URL", "postgres": "DATABASE_URL"}
TAIL_S = 1  # after the last COMMIT: messages are acked, and removed from the outbox
SYNCS = "syscalls:sys_enter_fsync,syscalls:sys_enter_fdatasync"
CONNECTION = re.compile(r" \S+:(\d+) +\S+:(\d+) (?:users:\(\(\"[^\"]+\",pid=(\d+))?")
BYTES = re.compile(r"bytes_(?:sent|received):(\d+)")


def port_of(url):
    return urlsplit(url if "://" in url else f"//{url}").port


def tree_written(pid):
    """Bytes that it and its children had written to disk. A parent has those of the children that
    have ended."""
    try:
        text = Path(f"/proc/{pid}/io").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    own = int(re.search(r"^write_bytes: (\d+)", text, re.M)[1])
    return own + sum(tree_written(child) for child in cpu.children_of(pid))


def metrics_of(port):
    text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
    found = re.findall(r"^couponmq_(\w+)(?:\{[^}]*\})? (\d+)$", text, re.M)
    return Counter({name: int(value) for name, value in found})


def scripts_of_redis():
    """Calls of all programs, and the µs that Redis was in them."""
    with redis_open() as client:
        found = client.info("commandstats")
    own = [found[f"cmdstat_{name}"] for name in ("eval", "evalsha") if f"cmdstat_{name}" in found]
    return {"redis_scripts": sum(one["calls"] for one in own),
            "redis_scripts_us": sum(one["usec"] for one in own)}  # fmt: skip


def counts_read():
    http = port_of(os.environ["COUPON_HTTP_LISTEN"])
    counts = metrics_of(http)
    for number, _ in enumerate(cpu.pids_of("workers"), 1):
        counts.update(metrics_of(http + number))
    counts.update(scripts_of_redis())
    for store in STORES:
        counts[f"written_{store}"] = sum(map(tree_written, cpu.pids_of(store)))
    return counts


class Syncs:
    """The syncs of each store. Without perf there are none."""

    def __init__(self):
        self.perf = {}
        for store in STORES:
            pids = ",".join(map(str, cpu.tasks_of(store)))
            words = ("perf", "stat", "-x,", "-e", SYNCS, "-p", pids)
            try:
                self.perf[store] = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
            except FileNotFoundError:
                pass

    def end(self):
        counts = {}
        for store, perf in self.perf.items():
            perf.send_signal(signal.SIGINT)
            found = re.findall(r"^(\d+),,syscalls:", perf.communicate()[1], re.M)
            if found:
                counts[f"syncs_{store}"] = sum(map(int, found))
        return counts


def connections(text):
    """(port here, port there): the process here, if it is known, and the bytes."""
    found = {}
    for line in text.splitlines():
        if ends := CONNECTION.search(line):
            n = sum(map(int, BYTES.findall(line)))
            found[int(ends[1]), int(ends[2])] = (int(ends[3] or 0), n)
    return found


class Network:
    """Bytes between each two programs, both ways, while it lasts. Connections of clients end
    meanwhile: ss prints those that do, to a file, since a pipe would be full soon."""

    def __init__(self):
        self.listeners = [port_of(os.environ[f"COUPON{kind}_LISTEN"]) for kind in ("", "_HTTP")]
        ports = " or ".join(f"sport = :{port}" for port in self.listeners)
        self.file = TemporaryFile("w+", encoding="utf-8")
        words = ("stdbuf", "-oL", "ss", "-tinHOE", f"( {ports} )")
        self.ended = subprocess.Popen(words, stdout=self.file)
        self.before = self.open()

    def open(self):
        words = ("ss", "-tinpHO")
        return connections(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    def closed(self):
        self.ended.terminate()
        self.ended.wait()
        self.file.seek(0)
        return connections(self.file.read())

    def end(self):
        found = {**self.closed(), **self.open()}
        stores = {port_of(os.environ[url]): store for store, url in STORES.items()}
        programs = {pid: name for name in ("gateway", "workers") for pid in cpu.tasks_of(name)}
        counts = Counter()
        for (here, there), (pid, n) in found.items():
            n -= self.before.get((here, there), (0, 0))[1]
            if here in self.listeners:
                counts["bytes_client_gateway"] += n
            elif pid in programs and there in stores:
                counts[f"bytes_{programs[pid]}_{stores[there]}"] += n
        return counts


class Counters:
    """`counts` has what was counted while its `with` lasted."""

    def __enter__(self):
        self.before = counts_read()  # asks the gateway, too, so it is not within
        self.network, self.syncs, self.begin_s = Network(), Syncs(), time.monotonic()
        return self

    def __exit__(self, *_):
        time.sleep(TAIL_S)
        seconds = time.monotonic() - self.begin_s
        found = {**self.syncs.end(), **self.network.end(), "seconds": seconds}
        self.counts = counts_read()
        self.counts.subtract(self.before)
        self.counts.update(found)
