"""An operator's commands on the campaigns of the load: receives are voided, and the terms of voids
edited."""

import contextlib
import json
import subprocess

KILL_S = 0.05
AT_MOST_S = 2.0  # then a command that waits for a service is killed
RECENT = 400  # answers of which one is chosen


def terms_change(rig, campaign, returns):
    """An operator's edit; one on an older version, or without a service, is refused, and one that
    waits for a service is killed."""
    shown = rig.stack.ctl_run("show", campaign.coupon, "--json")
    if shown.returncode == 0:
        version = json.loads(shown.stdout)["postgresql"]["version"]
        edit = ("edit", campaign.coupon, "--version", version, "--void-returns", returns)
        with contextlib.suppress(subprocess.TimeoutExpired):
            rig.stack.ctl_run(*edit, timeout=AT_MOST_S)


def receive_choose(chance, campaign):
    """The receive of a recent answer: settled or not, and sometimes voided before."""
    if campaign.voidings and chance.random() < 0.15:
        return chance.choice(campaign.voidings).receive
    recent = [ask.receive for ask in campaign.asked[-RECENT:] if ask.receive and ask.code == 0]
    return chance.choice(recent) if recent else None


def voids(rig, chance, n, killed=0.3):
    for _ in range(n):
        campaign = chance.choice(rig.load.campaigns)
        if chance.random() < 0.2:
            terms_change(rig, campaign, chance.choice(("yes", "no")))
        receive = receive_choose(chance, campaign)
        if receive:
            is_killed = chance.random() < killed
            campaign.void(receive, chance.uniform(0, KILL_S) if is_killed else AT_MOST_S)
