"""scripts/packages.sh with a dpkg-query that reports every package as installed."""

import os
import subprocess

import pytest

from stack import ROOT

DPKG_QUERY = """#!/bin/sh
case "$2" in
*Version*) printf %s "$LIBRABBITMQ" ;;
*) shift 2; printf 'installed %s\\n' "$@" ;;
esac
"""


def packages_output(tmp_path, librabbitmq):
    fake = tmp_path / "dpkg-query"
    fake.write_text(DPKG_QUERY, encoding="ascii")
    fake.chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts/packages.sh"],
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "LIBRABBITMQ": librabbitmq,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    "version, fixed",
    [
        ("0.11.0-1", "0.11.0-1+deb12u3"),
        ("0.11.0-1+deb12u2", "0.11.0-1+deb12u3"),
        ("0.14.0-1", "0.15.0-1+deb13u2"),
        ("0.15.0-1+b2", "0.15.0-1+deb13u2"),
        ("0.15.0-1+deb13u1", "0.15.0-1+deb13u2"),
    ],
)
def test_warns_about_an_old_librabbitmq(tmp_path, version, fixed):
    output = packages_output(tmp_path, version)
    assert f"librabbitmq is {version};" in output
    assert fixed in output
    assert "CVE-2026-61547" in output and "CVE-2026-59986" in output


@pytest.mark.parametrize(
    "version",
    ["0.11.0-1+deb12u3", "0.11.0-1+deb12u10", "0.15.0-1+deb13u2", "0.15.0-2", "0.16.0-1"],
)
def test_silent_with_a_fixed_librabbitmq(tmp_path, version):
    assert packages_output(tmp_path, version) == ""
