"""What systemd is for a program: the test gives it sockets, and hears what it is told."""

import os
import socket
import struct
import subprocess
import threading
from collections import namedtuple
from pathlib import Path

from process import Process
from stack import wait_until

# systemd says for which process the sockets and the watchdog are: for the one that it executes.
EXECUTE = """\
number=3
for fd in $SOCKETS; do
    eval "exec $number<&$fd"
    number=$((number + 1))
done
unset SOCKETS
export LISTEN_PID=$$ WATCHDOG_PID=$$ SYSTEMD_EXEC_PID=${STARTED:-$$}
exec "$@"
"""
CREDENTIALS = struct.Struct("3i")
PAUSE = b"PAUSE=1"
Told = namedtuple("Told", "pid name value")


class Manager:
    """A socket for sd_notify(3). What comes is kept in order, each assignment by itself."""

    def __init__(self, folder, reads=True):
        self.path = Path(folder) / "notify"
        self.path.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind(str(self.path))
        self.told = []
        self.pauses, self.goes_on = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        if reads:
            self.thread.start()

    def read(self):
        """From now on."""
        if self.thread.is_alive():
            self.goes_on.set()
        else:
            self.thread.start()

    def _read(self):
        while True:
            text, control, *_ = self.socket.recvmsg(4096, socket.CMSG_SPACE(CREDENTIALS.size))
            if not text:
                return
            if text == PAUSE:
                self.pauses.set()
                self.goes_on.wait()
                continue
            pid = CREDENTIALS.unpack(control[0][2])[0]
            # All at once: who has seen one of them may ask for the others.
            lines = text.decode().splitlines()
            self.told += [Told(pid, *line.split("=", 1)) for line in lines]

    def fill(self):
        """As a systemd that reads nothing any more, until read()."""
        if self.thread.is_alive():
            self.goes_on.clear()
            self.pauses.clear()
            self._send(PAUSE)
            self.pauses.wait()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                while True:
                    sender.sendto(b"FILLED=1", str(self.path))
            except BlockingIOError:
                pass

    def count(self, name):
        return sum(told.name == name for told in self.told)

    def last(self, name):
        return next((told.value for told in reversed(self.told) if told.name == name), None)

    def wait(self, name, times=1):
        wait_until(lambda: self.count(name) >= times)

    def close(self):
        """What was told before has been read."""
        if self.thread.is_alive():
            self.goes_on.set()
            self._send(b"")
            self.thread.join()
        self.socket.close()

    def _send(self, text):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(text, str(self.path))


class Service(Process):
    """A program as systemd starts it. `sockets`: pairs of a name and a socket that listens."""

    def __init__(self, stack, program, manager=None, sockets=(), watchdog_ms=0, **settings):
        self.stack = stack
        self.program = program
        self.settings = {name: str(value) for name, value in settings.items()}
        self.manager = manager
        self.sockets = sockets
        self.watchdog_ms = watchdog_ms
        self.log_path = stack.run_dir / f"{program}-of-systemd.log"
        self.log_begin = self.log_path.stat().st_size if self.log_path.exists() else 0
        self.start()

    def start(self):
        env = {
            **os.environ,
            **self.stack.env_of(self.program.removeprefix("coupon-")),
            "COUPON_DRAIN_S": "0",
            "COUPON_UNIX_SOCKET": "",
            **self.settings,
        }
        fds = [one.fileno() for _, one in self.sockets]
        env["SOCKETS"] = " ".join(map(str, fds))
        if fds:
            env["LISTEN_FDS"] = str(len(fds))
            env["LISTEN_FDNAMES"] = ":".join(name for name, _ in self.sockets)
        if self.manager:
            env["NOTIFY_SOCKET"] = str(self.manager.path)
        if self.watchdog_ms:
            env["WATCHDOG_USEC"] = str(self.watchdog_ms * 1000)
        with open(self.log_path, "ab") as log:
            self.child = subprocess.Popen(
                ["bash", "-c", EXECUTE, "bash", str(self.stack.build_dir / self.program)],
                env=env,
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
