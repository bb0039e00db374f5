"""docs/guides/backup.md, "A drill": its commands as they stand there, in their order, on a stack of
their own. Nothing that was accepted is lost, and nobody gets a coupon twice."""

import csv
import os
import re
import subprocess

import psycopg
import pytest

from stack import ROOT

PAGE = (ROOT / "docs/guides/backup.md").read_text(encoding="utf-8")
BLOCK = "== block"


def blocks(stack):
    """Those of the section, for a stack in another folder and for the programs of this build."""
    (section,) = re.findall(r"^## A drill$(.*?)^##+ ", PAGE, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return [
        block.replace(".run/", f"{stack.run_dir}/").replace("$PWD/build", str(stack.build_dir))
        for block in found
    ]


def rows(stack, name):
    """What the export has: (receives by user, lines)"""
    with (stack.run_dir / "drill" / name).open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    return {line["user"]: line["receive"] for line in lines}, lines


@pytest.fixture
def own(stack_make):
    own = stack_make()
    own.services()
    own.start("gateway", "worker-1", "worker-2", "admin")
    yield own
    own.down()


@pytest.mark.whole
def test_each_command_of_the_drill(own):
    parts = blocks(own)
    script = "".join(f"echo '{BLOCK}'\n{block}" for block in parts)
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if "MAKE" not in name},
            "RUN_DIR": str(own.run_dir),
            "PORT_BASE": str(own.port_base),
            "BUILD_DIR": str(own.build_dir),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    told = done.stdout.split(f"{BLOCK}\n")[1:]
    assert len(told) == len(parts) == 8, done.stdout

    # What the page says of each block.
    lost, recovered, compared, again = told[2], told[3], told[4], told[7]
    assert "PostgreSQL is behind Redis by at least" in lost, lost
    assert len(re.findall(r"^receives: brought back 4001,.* lost 0$", recovered, re.M)) == 2
    assert "changed 1" in recovered
    assert re.search(r"^6002$", compared, re.MULTILINE), compared
    assert re.search(r"^7003$", again, re.MULTILINE), again
    for audited in (compared, again):
        assert re.search("^PASS", audited.splitlines()[-1]), audited

    # comm and uniq would have printed these.
    before, _ = rows(own, "before.csv")
    after, lines = rows(own, "after.csv")
    end, all_lines = rows(own, "end.csv")
    assert len(before) == 4001 and before.items() <= after.items()
    assert len(after) == len(lines) == 6001 and after.items() <= end.items()
    assert len(end) == len(all_lines) == 7002 and {"ann", "bob"} <= end.keys()
    receives = re.findall(r"^receive +(\S+)$", compared, re.MULTILINE)
    assert receives and set(receives) == {before["ann"]}
    with psycopg.connect(own.env["DATABASE_ADMIN_URL"]) as pg:
        (coupon,) = {receive.split(".")[0] for receive in end.values()}
        assert pg.execute(
            "SELECT total_num, issued_num, (SELECT count(*) FROM receive_rejected AS r"
            " WHERE r.coupon_id = c.id) FROM coupon AS c WHERE id = %s",
            (coupon,),
        ).fetchone() == (10000, 7002, 0)
