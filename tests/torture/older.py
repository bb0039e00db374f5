"""The programs of an older commit, built beside this tree's in the run folder, for upgrades."""

import os
import shutil
import subprocess

import psycopg
from services import pg_superuser, say

from scenario import Skipped

from stack import ROOT

# Used without a tag: the last commit before the functions of PostgreSQL had files of their own.
COMMIT_FIRST = "15cc99d2"


def git(*arguments):
    """Its output, or None when it fails."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


def commit_find():
    """UPGRADE_FROM, or the newest tag before this commit, or the commit above."""
    wanted = os.environ.get("UPGRADE_FROM")
    wanted = wanted or git("describe", "--tags", "--abbrev=0", "HEAD") or COMMIT_FIRST
    commit = git("rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}")
    if not commit:
        raise Skipped(f"this clone has no commit {wanted} to upgrade from: set UPGRADE_FROM")
    return commit


def older_build(run_dir):
    """Returns the folder with the programs. They are built once for each run folder."""
    commit = commit_find()
    folder = run_dir / f"older-{commit[:8]}"
    built = folder / "build"
    if not (built / "coupon-worker").exists():
        say(f"building {commit[:8]}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
        quick = ["OPTIMISE=-O1 -g", "WARN=-w"]
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("MAKEFLAGS", "MAKELEVEL", "BUILD_DIR", "SAN", "FAULTS")
        }
        done = subprocess.run(
            ["make", "-C", str(folder), "-j2", "build", *quick],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{commit[:8]} cannot be built: {done.stdout[-2000:]}"
    return built


def database_empty(stack):
    """A new database without tables, and Redis without coupons. No program may run."""
    with pg_superuser(stack, "postgres") as pg:
        pg.execute("DROP DATABASE couponmq WITH (FORCE)")
        pg.execute("CREATE DATABASE couponmq OWNER couponmq_owner")


def migrate(stack, build_dir):
    """`couponctl migrate` of these programs."""
    done = subprocess.run(
        [str(build_dir / "couponctl"), "migrate"],
        env={**os.environ, **stack.env}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, f"couponctl migrate: {done.stdout}{done.stderr}"
    with pg_superuser(stack) as pg:
        pg.execute("GRANT couponmq_app TO couponmq")
    return done.stdout


def rows_fill(stack, coupon, number):
    """User coupons of a coupon that is not under load: a migration meets tables with data."""
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"], autocommit=True) as pg:
        pg.execute(
            "INSERT INTO user_coupon (user_id, coupon_id, slot, batch, idx, received_at,"
            " valid_from) SELECT user_id, %s, 1, gen_random_uuid(), 0, now(), now()"
            " FROM generate_series(1, %s) AS user_id",
            (coupon, number),
        )
        pg.execute(
            "UPDATE coupon SET total_num = %s, issued_num = %s WHERE id = %s",
            (number, number, coupon),
        )
