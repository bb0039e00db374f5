"""--version of each program, and the versions of the services in the log."""

import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest
import redis

from stack import wait_until

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("coupon-gateway", "coupon-worker", "couponctl", "coupon-rush")


def version_stated():
    (version,) = re.findall(
        r'^#define PROGRAM_VERSION "(.+)"$', (ROOT / "common/program/program.h").read_text(), re.M
    )
    return version


@pytest.mark.parametrize("program", PROGRAMS)
def test_version(stack, program):
    result = subprocess.run(
        [str(stack.build_dir / program), "--version"], capture_output=True, text=True, check=True
    )
    pattern = rf"{program} {re.escape(version_stated())}( \(git \S+\))?\n"
    assert re.fullmatch(pattern, result.stdout), result.stdout


def source_version(tmp_path, *commands):
    """What the build of a copy of the source takes as its version in git, after the commands."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for command in commands:
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *command], check=True)
    make = ["make", "-C", str(tmp_path), "SAN=", "BUILD_DIR=build", "build/gen/version.o"]
    subprocess.run(make, check=True, capture_output=True)
    (text,) = re.findall('"(.*)"', (tmp_path / "build/gen/version.c").read_text())
    return text


def test_the_source_without_a_repository_has_no_version_of_git(tmp_path):
    """Also inside the repository of another project."""
    assert source_version(tmp_path) == ""
    inside = tmp_path / "inside"
    inside.mkdir()
    commands = (["init", "-q", str(tmp_path)],)
    commit = ["-C", str(tmp_path), "commit", "-q", "--allow-empty", "-m", "x"]
    assert source_version(inside, *commands, commit) == ""


def test_the_source_in_its_repository_has_the_version_of_git(tmp_path):
    commands = (
        ["init", "-q", str(tmp_path)],
        ["-C", str(tmp_path), "commit", "-q", "--allow-empty", "-m", "x"],
        ["-C", str(tmp_path), "tag", "v7"],
    )
    assert source_version(tmp_path, *commands) == "v7"


def versions_logged(log):
    return re.findall(r'event=service_version service=(\w+) version="([^"]+)"(.*)', log)


def test_the_log_has_the_version_of_each_service(rough, gateway_make, worker_make):
    with redis.Redis.from_url(rough.env["REDIS_URL"], decode_responses=True) as client:
        info = client.info("server")
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"]) as pg:
        postgres = pg.execute("SHOW server_version").fetchone()[0]
    cache = f"Redis {info['redis_version']}"
    if "valkey_version" in info:
        cache = f"Valkey {info['valkey_version']}"
    gateway, worker = gateway_make(rough), worker_make(rough)
    for process in (gateway, worker):
        wait_until(lambda: len(versions_logged(process.log())) >= 3)
    restarts = gateway.log().count("event=redis_ready")
    rough.restart("redis")
    wait_until(lambda: gateway.log().count("event=redis_ready") > restarts)
    for process in (gateway, worker):
        found = {service: version for service, version, _ in versions_logged(process.log())}
        assert found["redis"] == cache and found["postgresql"] == f"PostgreSQL {postgres}"
        assert re.fullmatch(r"RabbitMQ \d+\.\d+.*", found["rabbitmq"])
        assert len(versions_logged(process.log())) == 3, "once, as long as they are the same"
