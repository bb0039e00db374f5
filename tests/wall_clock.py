"""Programs with a wall clock of their own (wall_clock.c)."""

import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    """The clock of the programs that are started with `environment`; right at first. Its files are
    in the folder."""

    def __init__(self, folder):
        self.file = Path(folder) / "wall_clock"
        self.set(0)
        library = Path(folder) / "wall_clock.so"
        subprocess.run(
            ["cc", "-std=c11", "-O2", "-fPIC", "-shared", "-o", library, SOURCE], check=True
        )
        self.environment = {
            "LD_PRELOAD": str(library),
            "WALL_CLOCK": str(self.file),
            "ASAN_OPTIONS": "verify_asan_link_order=0",
        }

    def set(self, ahead_s):
        """Writes into one file all the time: the programs have it mapped."""
        with open(self.file, "r+b" if self.file.exists() else "wb") as file:
            file.write(struct.pack("<q", ahead_s))
