"""couponctl reads a file of settings as systemd does, whose generator for environment.d has the
reader of EnvironmentFile=: the same lines, by chance, to both."""

import os
import random
import re
import subprocess

import pytest

from seed import seeds
from stack import Stack

SYSTEMD = "/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator"
NAME = "COUPON_LOG_FORMAT"  # an error prints its value
# Without $, which only the generator expands.
PIECES = ["a", "b c", " ", "  ", "'", '"', "\\", '\\"', "\\\\", "\\`", "#", ";", "=", "ä", "\r"]


def lines_draw(chance):
    """A few lines of which most are good: the value may be quoted, and anything may be wrong."""
    lines = []
    for _ in range(chance.randrange(1, 4)):
        text = "".join(chance.choices(PIECES, k=chance.randrange(6)))
        quote = chance.choice(["", "", "'", '"'])
        value = quote + text + quote
        head = chance.choice([f"{NAME}=", f"{NAME}=", f" {NAME} = ", "# ", ";", f"#{NAME}=", ""])
        lines.append(head + (value if head else ""))
    return "\n".join(lines) + chance.choice(["", "\n"])


def by_couponctl(folder):
    """The value; None: the file is refused."""
    done = subprocess.run(
        [Stack("").build_dir / "couponctl", "list"],
        env={"COUPON_CONFIG_DIR": str(folder), "DATABASE_URL": "host=/nonexistent"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    said = done.stderr.decode()
    if "couponmq.conf, line " in said:
        return None
    found = re.search(f'{NAME} is "(.*)": allowed are text and json', said, re.DOTALL)
    assert found or "PostgreSQL" in said, said  # it went on with the default
    return found[1] if found else ""


def by_systemd(folder):
    done = subprocess.run(
        [SYSTEMD],
        env={**os.environ, "XDG_CONFIG_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = re.findall(rf"^{NAME}=(.*)$", done.stdout, re.MULTILINE)
    if not found:
        return ""
    quoted = re.fullmatch(r'"(.*)"', found[-1])
    return re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else found[-1]


@pytest.mark.parametrize("seed", seeds(20))
def test_a_file_means_the_same_to_systemd(tmp_path, seed):
    chance, accepted = random.Random(seed), 0
    (tmp_path / "environment.d").mkdir()
    for _ in range(20):
        text = lines_draw(chance)
        for path in tmp_path / "couponmq.conf", tmp_path / "environment.d/a.conf":
            path.write_bytes(text.encode())
        value = by_couponctl(tmp_path)
        accepted += value is not None
        if value:  # the generator ignores a line without a value
            assert value == by_systemd(tmp_path), repr(text)
    assert accepted > 3
