"""The known ways of selling (compare/): each has its known flaw, and its known strength."""

import json
import os
import shutil
import subprocess

import pytest

from stack import ROOT

BUILD = ROOT / os.environ.get("BUILD_DIR", "build")
WAY = BUILD / "compare-way"
FLAWS = ("oversold", "miscounted", "over_limit", "unsold")
# Twice as many users as pieces; ten in a hundred ask three times at once.
RUSH = {"users": 160, "stock": 80, "clients": 48, "connections": 24}
# As many pieces as users: whoever is sent away leaves one unsold.
EVEN = {**RUSH, "stock": 160}
# Every 30th holder of a lock stops for longer than its lease.
STOPPED = {**RUSH, "lease-ms": 100, "pause-ms": 300, "pause-every": 30}


def way_start(env, *words):
    words = [str(word) for word in (WAY, *words)]
    return subprocess.run(
        words, env={**os.environ, **env}, capture_output=True, text=True, timeout=120
    )


def ways():
    return json.loads(subprocess.check_output([WAY, "--list"], text=True))


def flaws(figures):
    return {name for name in FLAWS if figures[name]}


@pytest.fixture
def sell(env):
    """sell(WAY, options): the figures of one run."""

    may = {way["id"]: set(way["may"].split()) for way in ways()}

    def run(way, options):
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        done = way_start(env, way, *words)
        assert done.returncode == 0, done.stderr
        figures = json.loads(done.stdout)
        assert flaws(figures) <= may[way], figures
        return figures

    return run


LIBRARY = ("5d", "5e", "5f", "5g") + (("5h",) if os.environ.get("WITH_ZOOKEEPER") else ())
CORRECT = ("2", "4b", "5a", "5b", "5c", *LIBRARY, "6", "7b", "8b", "9b", "10a", "10b")


@pytest.mark.parametrize("way", CORRECT)
def test_sells_exactly_the_stock(sell, way):
    figures = sell(way, RUSH)
    assert not flaws(figures)
    assert (figures["sold"], figures["stock"]) == (80, 0)
    assert figures["told_sold"] == 80
    assert figures["requests"] == 160 + 16 * 2


@pytest.mark.parametrize("way", ["2", "5d", "5f", "8b", "9b", "10b"])
def test_sells_two_items(sell, way):
    figures = sell(way, {**RUSH, "items": 2, "users": 100, "stock": 40})
    assert not flaws(figures)
    assert figures["sold"] == 80


def test_read_then_write_sells_pieces_several_times(sell):
    figures = sell("1", RUSH)
    assert figures["oversold"] > 0
    assert figures["miscounted"] > 0


@pytest.mark.parametrize("way", ["3a", "7a"])
def test_who_fails_at_once_leaves_stock_unsold(sell, way):
    figures = sell(way, EVEN)
    assert flaws(figures) == {"unsold"}
    assert figures["told_failed"] == figures["attempts_failed"] > 0


@pytest.mark.parametrize("way", ["3b", "3c"])
def test_a_version_never_oversells_and_costs_attempts(sell, way):
    figures = sell(way, EVEN)
    assert not flaws(figures) - {"unsold"}
    assert figures["attempts_failed"] > 0
    assert figures["attempts"] > figures["requests"]


def test_a_check_before_the_update_gives_several_to_a_user(sell):
    figures = sell("4a", EVEN)
    assert flaws(figures) >= {"over_limit"}
    assert figures["oversold"] == 0
    assert figures["miscounted"] == 0


@pytest.mark.parametrize("way", ["5a", "5b", "5c"])
def test_a_recipe_fails_when_its_holder_stops(sell, way):
    figures = sell(way, STOPPED)
    assert figures["miscounted"] > 0


@pytest.mark.parametrize("way", LIBRARY)
def test_the_fence_refuses_a_holder_that_stopped(sell, way):
    figures = sell(way, STOPPED)
    assert not flaws(figures)
    assert figures["attempts_failed"] > 0


def test_a_segment_that_is_sold_out_leaves_others_unsold(sell):
    assert flaws(sell("8a", EVEN)) == {"unsold"}


def test_segments_sell_all(sell):
    assert not flaws(sell("8b", EVEN))


def test_separate_commands_oversell(sell):
    figures = sell("9a", RUSH)
    assert figures["oversold"] > 0 or figures["over_limit"] > 0


def test_every_way_is_tested():
    tested = {"1", "3a", "3b", "3c", "4a", "7a", "8a", "9a", *CORRECT}
    assert {way["id"] for way in ways()} == tested


def test_a_way_tells_its_flaws_and_why():
    recipes = ("5a", "5b", "5c")
    for way in ways():
        may_fail = way["id"] not in CORRECT or way["id"] in recipes
        assert bool(way["wrong"]) == bool(way["may"]) == may_fail, way
        assert set(way["may"].split()) <= set(FLAWS)


@pytest.mark.long
def test_the_report(env, tmp_path):
    """Without gnuplot there is no chart: only `make compare` installs it."""
    settings = {"ONLY": "1 8a 10", "USERS": "100", "STOCK": "100", "CLIENTS": "50", "RUNS": "1"}
    done = subprocess.run(
        ["/usr/bin/python3", "-B", "compare/compare.py"],
        cwd=ROOT,
        env={**os.environ, **env, **settings, "OUT": str(tmp_path), "BUILD_DIR": str(BUILD)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "compare.md").read_text()
    assert text == done.stdout
    assert "## 100 users for 1 x 100 pieces, 50 clients" in text
    for way in ("1 read, then write", "8a stock in 10 segments", "10b couponmq, ack=issued"):
        assert text.count(f"| {way} ") == 2
    assert "- 1 read, then write: clients read the same stock" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    if shutil.which("gnuplot"):
        assert "10a couponmq" in (tmp_path / "compare.svg").read_text()


def test_the_report_names_unknown_ways(env):
    done = subprocess.run(
        ["/usr/bin/python3", "-B", "compare/compare.py"],
        cwd=ROOT,
        env={**os.environ, **env, "ONLY": "4 12", "BUILD_DIR": str(BUILD)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "ONLY has 12; there are 1 2 3a" in done.stderr


@pytest.mark.parametrize(
    "words, why",
    [
        (["11"], 'the way is "11"'),
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
