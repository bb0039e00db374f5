"""Operations and faults on the three services of the rig's stack."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import psycopg
from load import Ask, now

from scenario import Skipped


def say(text):
    """The steps of a scenario: printed below the seed, to explain a failure."""
    print(f"    {text}", flush=True)


def pg_superuser(stack, database="couponmq"):
    settings = stack.kept()
    return psycopg.connect(
        host="127.0.0.1", port=int(settings["STACK_PORT_BASE"]) + 32, user="postgres",
        dbname=database, password=settings["STACK_PG_PASSWORD"], autocommit=True, connect_timeout=5,
        application_name="torture",
    )  # fmt: skip


def rabbitmqctl(stack, *arguments):
    return stack.rabbitmqctl(*arguments)


def rabbitmq_eval(stack, expression):
    """Evaluates an Erlang expression in the broker."""
    return stack.rabbitmq_eval(expression)


def ask(rig, campaign, user, part=None, **members):
    """One additional request to this gateway, recorded in the load's history; returns the reply."""
    part = part or rig.gateways[0]
    one = Ask("issue", user, **members)
    one.client, one.gateway, one.at = "scenario", part.name, now()
    campaign.note(one)
    with part.process.client() as client:
        client.send_bytes(one.line(0, campaign.coupon).encode())
        return one.answer(client.read_reply())


class SmallDisk:
    """A file system of a few megabytes in memory, and how to fill it."""

    def __init__(self, path, size):
        self.path = path
        path.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "torture", path]
        if subprocess.run(mount, check=False).returncode != 0:
            path.rmdir()
            raise Skipped("no disk can be mounted here: root may")
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid)

    def fill(self):
        with open(self.path / "ballast", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self):
        (self.path / "ballast").unlink(missing_ok=True)

    def remove(self):
        subprocess.run(["umount", self.path], check=True)
        self.path.rmdir()


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class MemoryLimit:
    """A process that gets hardly any more memory: the kernel's OOM killer ends it."""

    LEFT_BYTES = 4096

    def __init__(self, pid):
        self.pid = pid
        self.folder, limit = self.find(pid)
        try:
            self.folder.mkdir()
            (self.folder / limit).write_text(str(self.LEFT_BYTES))
            (self.folder / "cgroup.procs").write_text(str(pid))
        except OSError as why:
            self.remove()
            raise Skipped(f"the memory of a process cannot be limited here: {why}") from why

    @staticmethod
    def find(pid):
        """A folder for a group of its own, and the name of the limit in it."""
        root = Path("/sys/fs/cgroup")
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if "memory" in kinds.split(","):
                return root / "memory" / path.lstrip("/") / f"oom-{pid}", "memory.limit_in_bytes"
            if not kinds and (root / "cgroup.controllers").exists():
                return root / path.lstrip("/") / f"oom-{pid}", "memory.max"
        raise Skipped("there is no group of processes whose memory is limited")

    def remove(self):
        """The process may still be there, and gets memory again."""
        with contextlib.suppress(OSError):
            (self.folder.parent / "cgroup.procs").write_text(str(self.pid))
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def on_small_disk(rig, name, left):
    """prepare(): the service's folder on a disk with about so many bytes left, `rig.disk`."""
    folder = rig.stack.run_dir / name
    before = folder.with_name(f"{name}.before")
    SmallDisk(folder.with_name(f"{name}.try"), left).remove()  # whether one can be made
    rig.stack.stop(name)
    folder.rename(before)
    rig.disk = SmallDisk(folder, size_of(before) + left)
    subprocess.run(["cp", "-a", f"{before}/.", folder], check=True)
    rig.on_end(lambda: from_small_disk(rig, name, before))
    rig.stack.start(name)


def from_small_disk(rig, name, before):
    rig.disk.free()
    rig.stack.stop(name)
    shutil.rmtree(before)
    subprocess.run(["cp", "-a", rig.disk.path, before], check=True)
    rig.disk.remove()
    before.rename(rig.disk.path)
    rig.stack.start(name)
