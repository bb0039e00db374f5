"""A stack for tests that kill its gateway or need a worker of their own; drivers that are built."""

import subprocess

import pytest

from process import gateway_process
from stack import ROOT

GSON = "/usr/share/java/gson.jar"


@pytest.fixture(scope="session")
def own_stack(stack_make):
    """Without a worker."""
    own = stack_make()
    own.services()
    own.start("gateway")
    return own


@pytest.fixture
def plain_url(stack):
    """The URL of a gateway without TLS, in a test with the mark `plain`: the samples name no
    authority, and Node and Java take none from the environment of the tests."""
    gateway = gateway_process(stack, "gateway-samples")
    yield gateway.http("")
    gateway.terminate()


@pytest.fixture(scope="session")
def java(stack):
    """The command of Java's driver, which is compiled with the client and the sample of its
    README. Their comments are those of javadoc."""
    classes, sdk = stack.build_dir / "java", ROOT / "sdk/java"
    sources = sorted([*sdk.glob("*.java"), *sdk.glob("src/couponmq/*.java")])
    options = ["--release", "17", "-Xlint:all,-serial", "-Werror", "-Xdoclint:all,-missing"]
    subprocess.run(["javac", *options, "-cp", GSON, "-d", classes, *sources], check=True)
    return ["java", "-cp", f"{GSON}:{classes}", "Driver"]
