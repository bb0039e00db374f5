"""An artificial next version of the programs, for upgrades: this tree with next_version.patch,
which has a migration, a new version of settle() and packed messages of a new version."""

import os
import shutil
import subprocess
from pathlib import Path

from stack import FOLDERS, ROOT

PATCH = Path(__file__).with_suffix(".patch")
SOURCES = ("Makefile", "scripts", "sql", "lua", "docs", *FOLDERS)


def run(*command, **options):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}"


def next_version_build(run_dir, target="build"):
    """Returns the folder with the programs. They are built once for each run folder, from the
    objects of this tree as far as those are the same."""
    folder = run_dir / "next-version"
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        for name in (*SOURCES, "build"):
            if (ROOT / name).exists():
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                run("cp", "-a", str(ROOT / name), str(part / name))
        run("patch", "-p1", "--fuzz=0", "-i", str(PATCH), cwd=part)
        part.rename(folder)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MAKEFLAGS", "MAKELEVEL", "BUILD_DIR", "SAN", "FAULTS")
    }
    run("make", "-C", str(folder), "-j2", target, env=environment)
    return folder / "build"
