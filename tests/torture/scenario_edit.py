"""An operator edits campaigns in mid-sale, with a tool that is killed, while other things fail."""

import json
import os
import subprocess

from faults import FAULTS

from kill import killed
from scenario import scenario

FAULTS_MET = (
    "redis_killed",
    "postgresql_killed",
    "keeper_frozen",
    "workers_killed",
    "gateway_killed",
)
EDITS = 12
END = "2099-01-01T00:00:{:02}Z"


def version(rig, coupon):
    return json.loads(rig.stack.ctl("show", coupon, "--json"))["postgresql"]["version"]


def edit(rig, coupon, number):
    """Both stores have the new terms at the end of the command, or a keeper gives them to Redis."""
    return [
        str(rig.stack.build_dir / "couponctl"), "edit", coupon,
        "--version", str(version(rig, coupon)), "--end", END.format(number),
        "--metadata", json.dumps({"edit": number}),
    ]  # fmt: skip


def killed_edit(rig, chance, coupon, number):
    def start():
        return subprocess.Popen(
            edit(rig, coupon, number),
            env={**os.environ, **rig.stack.env_of("operator")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    for _ in killed(start, chance, 1, 0.05):
        pass


def ends(rig, coupon):
    with rig.pg() as pg:
        row = pg.execute(
            "SELECT extract(epoch FROM end_at)::bigint * 1000 FROM coupon WHERE id = %s", (coupon,)
        ).fetchone()
    return str(row[0] or 0), rig.redis_get(coupon, "end")


def edits(fault):
    def run(rig, chance):
        rig.wait_answers(200)
        for number in range(EDITS):
            coupon = chance.choice(rig.load.campaigns).coupon
            if number == EDITS // 2:
                with FAULTS[fault].lasting(rig, chance):
                    rig.pause(chance, 0.1, 1.0)
            else:
                killed_edit(rig, chance, coupon, number)
        for campaign in rig.load.campaigns:
            rig.wait(lambda: len(set(ends(rig, campaign.coupon))) == 1)  # noqa: B023
        rig.wait_answers(200)

    run.__name__ = f"edits_{fault}"
    run.__doc__ = f"Edits are killed at any moment, and meanwhile: {fault}."
    return run


for name in FAULTS_MET:
    scenario()(edits(name))
