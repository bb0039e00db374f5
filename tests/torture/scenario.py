"""The registry of scenarios. The files tests/torture/scenario_*.py are imported automatically; each
scenario is one decorated function."""

import importlib
from pathlib import Path

from verdict import UNKNOWN_SHARE

SCENARIOS = {}

# What clients may be answered when something fails: see verdict.Allowed.
OUTCOMES_LATE = {"unknown": 0.3}  # those who wait for RabbitMQ or PostgreSQL
POSTGRESQL_AWAY = {"answers": ("status unavailable",), "unknown": 0.3}
POSTGRESQL_BACK = {
    "answers": ("unavailable", "status unavailable"), "unknown": 0.5, "events": "complete",
}  # fmt: skip
GATEWAY_STARTS = {"answers": ("unavailable",), "unknown": 0.3}  # without connections at first
REDIS_AWAY = {"answers": ("unavailable",), "unknown": 0.3}
# A user whose slot Redis has lost may be accepted a second time, which PostgreSQL rejects.
REDIS_LOSES = {**REDIS_AWAY, "reasons": ("slot_taken", "key_taken")}


class Skipped(Exception):
    """The scenario cannot be run here."""


class Scenario:
    def __init__(self, function, options):
        self.name, self.function = function.__name__, function
        self.about = " ".join((function.__doc__ or "").split("\n\n")[0].split())
        self.gateways = options.pop("gateways", 2)
        self.workers = options.pop("workers", 2)
        self.beside = options.pop("beside", True)
        self.settings = options.pop("settings", {})
        self.prepare = options.pop("prepare", None)
        self.rate = options.pop("rate", True)
        self.crowd = options.pop("crowd", True)
        self.events = options.pop("events", "exact")
        self.answers = options.pop("answers", ())
        self.reasons = options.pop("reasons", ())
        self.unknown = options.pop("unknown", UNKNOWN_SHARE)
        assert not options, f"scenario {self.name}: unknown {options}"


def scenario(**options):
    """
    @scenario(gateways=2, workers=2, beside=True, settings={}, prepare=None, rate=True, crowd=True,
              events="exact", answers=(), reasons=(), unknown=0.01)
    def name_of_it(rig, chance): …

    beside: whether `make test` may choose it, where much else runs. settings: of gateways and
    workers, besides rig.SETTINGS. prepare(rig, chance): called before the load begins, for relays
    and such. rate: whether the rate before and after is compared. crowd: whether crowd.py asks
    beside the load. events: "exact"; "complete", where PostgreSQL is put back and some are of what
    is undone; "lost", where RabbitMQ loses the subscriber's queue or its binding; "moved", where
    clocks move, and times prove nothing.
    answers, reasons, unknown: what may happen to requests, see verdict.Allowed; every other answer,
    and every other rejection, is a violation.
    """

    def register(function):
        assert function.__name__ not in SCENARIOS, f"two scenarios {function.__name__}"
        SCENARIOS[function.__name__] = Scenario(function, options)
        return function

    return register


def scenarios_load():
    """All scenarios by name, in the order of their files."""
    for file in sorted(Path(__file__).parent.glob("scenario_*.py")):
        importlib.import_module(file.stem)
    return SCENARIOS
