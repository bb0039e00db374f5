"""A backup of PostgreSQL, as far as it concerns one coupon, and the numbers by which programs
notice that it was put back."""

import json
import os
import subprocess

TABLES = {
    "code": "coupon_id",
    "coupon": "id",
    "coupon_generation": "coupon_id",
    "coupon_late": "coupon_id",
    "coupon_void": "coupon_id",
    "receive_rejected": "coupon_id",
    "user_coupon": "coupon_id",
}
WHOLE = ("keeper", "change_count")
CHANGES = "couponmq:changes"


def numbers_of(db):
    """The numbers of transactions: {stripe: number}."""
    return {row["stripe"]: int(row["num"]) for row in db.query("change_counts")}


class Backup:
    def __init__(self, db, coupon):
        self.where = {table: f" WHERE {name} = {coupon}" for table, name in TABLES.items()}
        self.where |= dict.fromkeys(WHOLE, "")
        self.rows = {table: self.rows_of(db, table) for table in self.where}

    def rows_of(self, db, table):
        found = db.execute(f"SELECT to_jsonb(t) FROM {table} AS t{self.where[table]}")
        return [row for (row,) in found]

    def put_back(self, db):
        """In one transaction, which is not counted."""
        with db.connection.transaction():
            db.query("recover_session")
            for table, rows in self.rows.items():
                db.execute(f"DELETE FROM {table}{self.where[table]}")
                db.execute(
                    f"INSERT INTO {table} SELECT * FROM"
                    f" jsonb_populate_recordset(NULL::{table}, %s::jsonb)",
                    json.dumps(rows),
                )
        db.execute("RESET couponmq.recovering")


def recover(program, redis_client, db):
    """What `couponctl recover --all` counted; None: it found nothing to recover."""
    host, port = (redis_client.connection_pool.connection_kwargs[n] for n in ("host", "port"))
    done = subprocess.run(
        [str(program), "recover", "--all", "--json"],
        env={
            **os.environ,
            "REDIS_URL": f"redis://{host}:{port}/0",
            "DATABASE_URL": db.connection.info.dsn + f" password={db.connection.info.password}",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
