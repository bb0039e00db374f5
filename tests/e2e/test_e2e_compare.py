"""The known ways of selling (compare/): each runs, and has no other flaws than it tells of."""

import json
import os
import shutil
import subprocess

import pytest

from process import gateway_process
from stack import ROOT, has_tls, wait_until

BUILD = ROOT / os.environ.get("BUILD_DIR", "build")
WAY = BUILD / "compare-way"
FLAWS = ("oversold", "miscounted", "over_limit", "unsold")
LOCKS = ("5d", "5e", "5f", "5g") + (("5h",) if os.environ.get("WITH_ZOOKEEPER") else ())
CORRECT = (
    *("2a", "2b", "4b", "4c", "4d", "5a", "5b", "5c", *LOCKS, "6", "7b", "7c", "7d", "7e", "8b"),
    *("8c", "9b", "9c", "9d", "10a", "10b", "11", "12a", "12b", "13"),
)
# Ten users, the tenth of whom asks three times, and all have read before one of them writes: what
# each way does wrong then is certain. A number is exact, a minimum is what the way cannot avoid.
MEETING = {"users": 10, "clients": 12, "meet": 1}
FLAWED = {
    "1": ({**MEETING, "stock": 5}, {"oversold": 7, "miscounted": 11, "over_limit": 1}),
    "3a": ({**MEETING, "stock": 10}, {"unsold": 9}),
    # each try takes 30 of the 100 ms, and one client a try can write
    "3b": ({**MEETING, "stock": 10, "pause-every": 1, "pause-ms": 30}, {"unsold": "at least 6"}),
    "3c": ({**MEETING, "stock": 10}, {"unsold": 6}),
    "4a": ({**MEETING, "stock": 12}, {"over_limit": 1}),
    "7a": ({**MEETING, "stock": 10}, {"unsold": 9}),
    # one client, whose segments are chosen by the seed
    "8a": ({"users": 10, "clients": 1, "stock": 10}, {"unsold": "at least 1"}),
    "9a": ({**MEETING, "stock": 5}, {"oversold": 7, "over_limit": 1}),
}
# The sixth holder has read, and stops for longer than its lease: five others sell meanwhile.
STOPPED = {"users": 10, "clients": 12, "stock": 12, "connections": 12}
STOPPED |= {"lease-ms": 100, "pause-every": 6, "pause-ms": 3000}
# Ten users in a hundred ask three times at once.
RUSH = {"users": 40, "clients": 16, "connections": 8, "items": 2, "stock": 10}


def way_start(env, *words):
    words = [str(word) for word in (WAY, *words)]
    return subprocess.run(
        words, env={**os.environ, **env}, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def ways():
    return {way["id"]: way for way in json.loads(subprocess.check_output([WAY, "--list"]))}


@pytest.fixture(scope="module")
def plain_env(stack):
    """The ways know no TLS: where the stack has it they get a gateway of their own."""
    if not has_tls():
        yield stack.env
        return
    without = {"COUPON_TLS_CERT": "", "COUPON_TLS_KEY": ""}
    gateway = gateway_process(stack, "gateway-compare", ready=None, **without)
    wait_until(lambda: "event=gateway_known" in gateway.log())
    yield {**stack.env, "COUPON_LISTEN": gateway.settings["COUPON_LISTEN"]}
    gateway.end()


def way_run(env, way, options):
    words = (word for one in options.items() for word in (f"--{one[0]}", one[1]))
    done = way_start(env, way, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def flaws_of(figures):
    return {name: figures[name] for name in FLAWS if figures[name]}


@pytest.mark.long
@pytest.mark.parametrize("way", CORRECT)
def test_sells(plain_env, way):
    figures = way_run(plain_env, way, RUSH)
    assert figures["requests"] == 40 + 4 * 2
    assert figures["attempts"] >= figures["requests"]
    assert flaws_of(figures) == {}
    assert (figures["sold"], figures["told_sold"], figures["stock"]) == (20, 20, 0)


@pytest.mark.long
@pytest.mark.parametrize("way", FLAWED)
def test_sells_wrongly(plain_env, ways, way):
    options, expected = FLAWED[way]
    found = flaws_of(way_run(plain_env, way, options))
    assert set(found) == set(expected) == set(ways[way]["may"].split())
    for name, number in expected.items():
        if isinstance(number, int):
            assert found[name] == number
        else:
            assert found[name] >= int(number.removeprefix("at least "))


@pytest.mark.long
@pytest.mark.parametrize("way", ("5a", "5b", "5c", *LOCKS))
def test_a_holder_that_stops_for_longer_than_its_lease(plain_env, ways, way):
    found = flaws_of(way_run(plain_env, way, STOPPED))
    assert bool(found) == (way not in LOCKS), found
    assert set(found) <= set(ways[way]["may"].split())


def test_a_way_tells_its_flaws_and_why(ways):
    assert set(ways) == {*CORRECT, *FLAWED}
    for way in ways.values():
        may_fail = way["id"] in FLAWED or way["id"] in ("5a", "5b", "5c")
        assert bool(way["wrong"]) == bool(way["may"]) == may_fail, way
        assert set(way["may"].split()) <= set(FLAWS)


def report(env, **settings):
    return subprocess.run(
        ["/usr/bin/python3", "-B", "compare/compare.py"],
        cwd=ROOT,
        env={**os.environ, **env, **settings, "BUILD_DIR": str(BUILD)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.long
def test_the_report(plain_env, tmp_path):
    """Without gnuplot there is no chart: only `make compare` installs it."""
    settings = {"ONLY": "1 8 10b", "USERS": "40", "STOCK": "40", "CLIENTS": "20", "RUNS": "2"}
    done = report(plain_env, **settings, OUT=str(tmp_path))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "compare.md").read_text()
    assert text == done.stdout
    assert "## 40 users for 1 x 40 pieces, 20 clients" in text
    assert "**couponmq commits " in text.partition("\n\n")[2].partition("\n\n")[0]
    for way in ("1 read, then write", "8a stock in 10 segments", "8b segments, moving on"):
        assert text.count(f"| {way} ") == 3
    assert "- 1 read, then write: clients read the same stock" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    if shutil.which("gnuplot"):
        assert "8a stock" in (tmp_path / "compare.svg").read_text()


def test_the_report_names_unknown_ways(env):
    done = report(env, ONLY="4 14")
    assert done.returncode == 1
    assert "ONLY has 14; there are 1 2a 2b 3a" in done.stderr


@pytest.mark.parametrize(
    "words, why",
    [
        (["99"], 'the way is "99"'),
        (["1", "--users", "0"], '--users is "0"; allowed: 1 to 1000000'),
        (["1", "--users", "many"], '--users is "many"'),
        (["1", "--users"], '--users is ""'),
        (["1", "--colour", "2"], 'the option is "--colour"'),
    ],
)
def test_bad_options_are_named(env, words, why):
    done = way_start(env, *words)
    assert done.returncode == 2
    assert why in done.stderr
