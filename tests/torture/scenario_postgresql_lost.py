"""PostgreSQL is replaced by a base backup that was taken in mid-campaign, twice, and recovered."""

import os
import shutil
import subprocess

from services import say

from scenario import POSTGRESQL_BACK, scenario

USERS = 40


def base_backup(rig):
    """The folders of the running server's data and of a backup of it."""
    data = (rig.stack.run_dir / "postgres").resolve() / "data"
    backup = data.with_name("backup")
    settings, owner = rig.stack.kept(), data.stat()
    command = ["pg_basebackup", "-D", str(backup), "-U", "postgres", "--checkpoint=fast"]
    command += ["-h", "127.0.0.1", "-p", str(int(settings["STACK_PORT_BASE"]) + 32)]
    if os.geteuid() == 0:
        ids = (f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups")
        command = ["setpriv", *ids, "--", *command]
    password = {"PGPASSWORD": settings["STACK_PG_PASSWORD"]}
    subprocess.run(command, env={**os.environ, **password}, check=True, cwd="/")
    return data, backup


def campaigns_change(rig, chance):
    """Coupons created, enlarged, paused and closed after the backup, with receives of keys and of
    several slots. Returns the replies by coupon."""
    stack, replies = rig.stack, {}
    made = [stack.coupon_make(USERS * 2, limit=2, valid_days=chance.randint(1, 90))
            for _ in range(3)]  # fmt: skip
    with rig.gateways[0].process.client() as client:
        for coupon in made:
            rig.wait(lambda: client.call("coupon", coupon=coupon)["code"] == 0)  # noqa: B023
            replies[coupon] = [
                client.issue(coupon, f"user|{user % USERS}", key=f"k{user}", ack="issued")
                for user in range(USERS * 2)
            ]
    stack.ctl("stock", made[0], "--total", USERS * 3)
    stack.ctl("pause", made[1])
    stack.ctl("close", made[2])
    return replies


def reject_one(rig):
    """A receive that PostgreSQL has no stock for. Returns its coupon, once the worker has recorded
    the rejection in Redis."""
    coupon = rig.stack.coupon_make(100)
    total = f"UPDATE coupon SET total_num = %s WHERE id = {coupon}"
    with rig.pg() as pg, rig.redis() as cache, rig.gateways[0].process.client() as client:
        rig.wait(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
        pg.execute(total, (1,))
        assert client.issue(coupon, "first", ack="issued")["status"] == "issued"
        assert client.issue(coupon, "rejected:user", ack="issued")["status"] == "rejected"
        rig.wait(lambda: cache.llen(f"coupon:{{{coupon}}}:rejected") == 1)
        pg.execute(total, (100,))
    return coupon


def rejected_of(rig, coupon):
    with rig.pg() as pg:
        return pg.execute(
            "SELECT user_id, slot, batch, idx, reason, received_at FROM receive_rejected"
            " WHERE coupon_id = %s",
            (coupon,),
        ).fetchall()


def rows_of(rig, coupons):
    with rig.pg() as pg:
        return pg.execute(
            "SELECT c.id, c.name, c.status, c.total_num, c.version, u.user_id, u.slot, u.batch,"
            " u.idx, u.key, u.received_at, u.valid_from, u.valid_to"
            " FROM coupon AS c JOIN user_coupon AS u ON u.coupon_id = c.id"
            " WHERE c.id = ANY(%s) ORDER BY 1, u.user_id, u.slot",
            [list(map(int, coupons))],
        ).fetchall()


def put_back(rig, data, backup):
    rig.stack.stop("postgres")
    shutil.rmtree(data)
    backup.rename(data)
    rig.stack.start("postgres")
    rig.wait(lambda: any("event=postgresql_behind" in part.log() for part in rig.workers))


@scenario(**POSTGRESQL_BACK)
def postgresql_put_back(rig, chance):
    """PostgreSQL replaced by a base backup of before; couponctl recover; twice."""
    for _ in range(2):
        rig.wait_answers(chance.randint(1, 300))
        data, backup = base_backup(rig)
        rig.on_end(lambda: shutil.rmtree(backup, ignore_errors=True))  # noqa: B023
        rig.wait_answers(chance.randint(1, 300))
        replies = campaigns_change(rig, chance)
        assert all(r["status"] == "issued" for several in replies.values() for r in several)
        rejecting = reject_one(rig)
        rig.wait_answers(chance.randint(1, 300))
        before = rows_of(rig, replies), rejected_of(rig, rejecting)
        put_back(rig, data, backup)
        rig.pause(chance, 0, 2)
        told = rig.stack.ctl("recover", "--all")
        say(told.splitlines()[-1])
        assert "rejected: receive" not in told, told
        assert (rows_of(rig, replies), rejected_of(rig, rejecting)) == before
        rig.wait_answers(200)
