"""A disk whose power can be cut (disk.c), with ext4 on it."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from stack import process_gone, process_tree, wait_until

SOURCE = Path(__file__).with_name("disk.c")
MIB = 16384  # most of it is never written
FILES = 65536
KEEP = ("none", "some", "part")


class NoDisk(Exception):
    """None can be made here, and why."""


def told(*command):
    """Its output, or why there is no disk."""
    try:
        done = subprocess.run(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False,
        )  # fmt: skip
    except FileNotFoundError as why:
        raise NoDisk(f"no {command[0]}") from why
    if done.returncode:
        raise NoDisk(f"{command[0]}: {done.stdout.strip()}")
    return done.stdout.strip()


class Disk:
    """Mounted at `path`, an empty folder; its own files are in the folder `home`."""

    def __init__(self, home, path, mib=MIB):
        self.path, self.loop = Path(path), None
        self.home = Path(tempfile.mkdtemp(prefix="power-", dir=home))
        program = self.home / "power_disk"
        flags = told("pkg-config", "--cflags", "--libs", "fuse3").split()
        warnings = ("-Wall", "-Wextra", "-Werror")
        subprocess.run(["cc", "-O1", *warnings, SOURCE, "-o", program, *flags], check=True)
        self.server = subprocess.Popen(
            [program, self.home, str(mib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, bufsize=1, start_new_session=True,
        )  # fmt: skip
        ready = self.server.stdout.readline().strip()
        try:
            if ready != "ready":
                raise NoDisk(ready)
            self.attach()
            told(
                *("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=1"),
                *("-J", "size=16", "-N", FILES, self.loop),
            )
            self.mount()
        except BaseException:
            self.close()
            raise

    def attach(self):
        image = self.home / "mount" / "disk"
        self.loop = told("losetup", "--find", "--show", "--direct-io=on", image)

    def mount(self):
        told("mount", self.loop, self.path)

    def ask(self, command):
        self.server.stdin.write(f"{command}\n")
        return self.server.stdout.readline().strip()

    def cut(self):
        """Nothing that is asked of it is answered any more. Returns what was in its cache."""
        return self.ask("cut")

    def cut_at(self, number):
        """At this write or flush from now on, counted from 1; 0: not any more."""
        self.ask(f"cut_at {number}")

    def is_cut(self):
        return self.ask("is_cut") == "yes"

    def fail(self):
        """Once those that used it are killed: they end when they are answered."""
        self.ask("fail")

    def back(self, keep, seed):
        """Mounted again, with none, some or a part of what was in its cache."""
        self.unmount()
        kept = self.ask(f"back {keep} {seed}")
        self.attach()
        self.mount()
        return kept

    def unmount(self):
        def is_unmounted():
            # A child that the process has made since its tree was read may wait for good.
            for pid in processes_in(self.path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["umount", self.path], stderr=subprocess.DEVNULL, check=False)
            return not os.path.ismount(self.path)

        wait_until(is_unmounted)
        told("losetup", "--detach", self.loop)
        self.loop = None

    def close(self):
        """At any moment: what waits for it is answered first."""
        with contextlib.suppress(OSError):
            self.fail()
        if self.loop:
            self.unmount()
        self.server.stdin.close()
        self.server.wait()
        subprocess.run(
            ["umount", "-l", self.home / "mount"], stderr=subprocess.DEVNULL, check=False
        )
        for file in ("current", "durable", "power_disk"):
            (self.home / file).unlink(missing_ok=True)
        for folder in (self.home / "mount", self.home):
            if folder.exists():
                folder.rmdir()


class Machine:
    """A service of the stack whose folder is on a disk of its own from now on."""

    def __init__(self, stack, name):
        self.stack, self.name = stack, name
        self.folder = (stack.run_dir / name).resolve()
        stack.stop(name)
        self.before = self.folder.with_name(f"{self.folder.name}.before")
        self.folder.rename(self.before)
        self.folder.mkdir()
        self.disk = None
        try:
            self.disk = Disk(stack.run_dir, self.folder)
            subprocess.run(["cp", "-a", f"{self.before}/.", self.folder], check=True)
            subprocess.run(["sync", "--file-system", self.folder], check=True)
        except BaseException:
            self.folder_back()
            raise
        finally:
            stack.start(name)

    def close(self, keeps=True):
        """keeps: what is on the disk is wanted in the folder."""
        if self.stack.runs(self.name):
            self.stack.stop(self.name)
        if keeps:
            shutil.rmtree(self.before)
            subprocess.run(["cp", "-a", self.folder, self.before], check=True)
            (self.before / "lost+found").rmdir()
        self.folder_back()

    def folder_back(self):
        if self.disk:
            self.disk.close()
        self.folder.rmdir()
        self.before.rename(self.folder)


def processes_in(folder):
    """The processes whose working directory is there."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path(os.readlink(f"/proc/{entry}/cwd")).is_relative_to(folder):
                found.append(int(entry))
    return found


def power_cut(machines, chance, at=0, also=lambda: None):
    """Cuts the power of all of them at once, and kills the processes that `also` kills; the disks
    are back, and nothing runs. at: when the disk of the first is written to or flushed so many
    times more. Returns what was said of each."""
    if at:
        machines[0].disk.cut_at(at)
        wait_until(machines[0].disk.is_cut)
    cached = [machine.disk.cut() for machine in machines]
    running = [machine for machine in machines if machine.stack.runs(machine.name)]
    pids = [pid for one in running for pid in process_tree(one.stack.pid(one.name))]
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        also()
    finally:
        for machine in machines:
            machine.disk.fail()
    wait_until(lambda: all(map(process_gone, pids)))
    told = []
    for machine, of in zip(machines, cached):
        keep = chance.choice(KEEP)
        kept = machine.disk.back(keep, chance.randrange(1 << 30))
        told.append(f"{machine.name}: {of} in the cache of its disk, {keep}: {kept}")
    return told
