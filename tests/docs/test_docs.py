"""The documents describe every setting, metric, answer and operation, and have no dead links."""

import json
import re
import subprocess
import sys

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from stack import ROOT, Stack, wait_until

sys.path.append(str(ROOT / "scripts"))
import docs  # noqa: E402

DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *DOCS.rglob("*.md"),
        *ROOT.glob("*.md"),
        *ROOT.glob("sdk/*/README.md"),
        *ROOT.glob("examples/*/README.md"),
    ]
)
PROGRAMS = {"gateway": "coupon-gateway", "worker": "coupon-worker", "couponctl": "couponctl",
            "rush": "coupon-rush", "admin": "coupon-admin"}  # fmt: skip


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def table_rows(page):
    """The cells of every table row of a page, without their backquotes."""
    for line in text(page).splitlines():
        if line.startswith("|"):
            yield [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]


def bullets(page_text):
    """Each top-level bullet of a page on one line, without its dash."""
    for found in re.finditer(r"^- (.*(?:\n  .*)*)", page_text, re.MULTILINE):
        yield re.sub(r"\s*\n\s+", " ", found[1])


def one_line_each(table):
    """A table in C with each entry on one line, and each text in one literal."""
    return re.sub(r"\n\s+", " ", re.sub(r'"\s*\n\s*"', "", table))


def entries(path, macro):
    """The arguments of each MACRO(…) of a table in C, text without its quotes."""
    found = re.findall(rf"^{macro}\((.*)\)$", one_line_each(text(path)), re.MULTILINE)
    assert found, f"no {macro} in {path}"
    return [
        [
            part.strip().strip('"')
            for part in re.findall(r'"[^"]*"|[^,"]+', arguments)
            if part.strip()
        ]
        for arguments in found
    ]


def printed(program, *words):
    told = [Stack("").build_dir / program, *words]
    return subprocess.run(told, capture_output=True, text=True, check=True, timeout=120).stdout


def commands_of_help():
    """Each command that runs, by its name, as --help json has it."""

    def walk(commands):
        for command in commands:
            yield command
            yield from walk(command["commands"])

    groups = json.loads(printed("couponctl", "--help", "json"))["groups"]
    return {
        command["name"]: command
        for group in groups
        for command in walk(group["commands"])
        if command["runs"]
    }


@pytest.mark.parametrize("program", PROGRAMS.values())
def test_help_is_short(program):
    """It fits a screen of 50 lines and 80 columns; that of couponctl names every command."""
    lines = printed(program, "--help").splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 80
    if program == "couponctl":
        named = {found[1] for line in lines if (found := re.match(r"  ([a-z]+) +[a-z]", line))}
        assert named == {name.split()[0] for name in commands_of_help()}


def settings_of_help(program):
    """ENVIRONMENT: (help, flag, default, range), as printed by --help json; --help settings has
    the same for people."""
    people = re.sub(r"\s+", " ", printed(program, "--help", "settings"))
    settings = {}
    for one in json.loads(printed(program, "--help", "json"))["settings"]:
        is_number = "least" in one
        default = str(one["default"])
        range_ = f", from {one['least']} to {one['most']}" if is_number else ""
        head = f" --{one['flag']}, {one['name']} {one['help']} default: "
        assert f"{head}{default or '(empty)'}{range_} " in f"{people} "
        settings[one["name"]] = (
            one["help"],
            f"--{one['flag']}",
            default,
            f"{one['least']}–{one['most']}" if is_number else "text",
        )
    assert settings and len(re.findall(r" --[a-z-]+, [A-Z_]+ ", people)) == len(settings)
    return settings


@pytest.mark.parametrize("page", docs.PAGES)
def test_the_page_is_as_the_tables_say(page):
    """`make docs` writes it."""
    assert docs.page_made(page) == text(page)


def test_the_pages_of_commands_are_as_the_programs_say():
    """`make docs` writes synopsis and options, and fails unless each command has its place."""
    made = docs.command_pages_made(Stack("").build_dir)
    assert {page: text(page) for page in made} == made


def test_the_table_of_commands_is_that_of_the_help():
    """The README of couponctl has the commands of --help, in that order, with their sentences; and
    each has a page, which begins with whom it is for, shows an example or a form, and links."""
    page = "docs/reference/couponctl/README.md"
    rows = [row for row in table_rows(page) if re.fullmatch(r"\[[a-z]+\]", row[0])]
    help_ = printed("couponctl", "--help")
    wanted = re.findall(r"^  ([a-z]+) +(.*)$", help_, re.MULTILINE)
    assert len(wanted) > 30 and [(row[0][1:-1], row[1]) for row in rows] == wanted
    pages = {path.stem for path in (DOCS / "reference/couponctl").glob("*.md")}
    assert pages == {name for name, _ in wanted} | {"README"}


def blocks_of_code(page):
    """Those that are not between two lines of `make docs`."""
    return re.findall(r"^```\n(.*?)^```$", docs.BLOCK.sub("", page), re.MULTILINE | re.DOTALL)


def test_each_command_has_an_example():
    """Below its heading, or for one with commands below it, below one of those."""
    lacks = []
    for path in sorted((DOCS / "reference/couponctl").glob("*.md")):
        if path.stem == "README":
            continue
        page = path.read_text(encoding="utf-8")
        examples = [one for one in blocks_of_code(page) if f"couponctl {path.stem}" in one]
        if not examples or not re.match(r"# couponctl \w+\n\nFor ", page):
            lacks.append(path.stem)
    assert lacks == []


def test_the_tables_are_what_the_programs_read():
    wanted = {}
    for reader, program in PROGRAMS.items():
        for env, told in settings_of_help(program).items():
            before = wanted.setdefault(env, (*told, []))
            assert before[:-1] == told, f"{env}: the programs differ"
            before[-1].append(reader)
    assert docs.settings() == wanted


OF_THE_WORKER = re.compile("couponmq_(worker|keeper)_")
OF_ADMIN = re.compile("couponmq_admin_")


def metrics_given(url):
    given = {}
    for family in text_string_to_metric_families(requests.get(url, timeout=60).text):
        name = family.name + ("_total" if family.type == "counter" else "")
        given[name] = (family.type, family.documentation)
    return given


def test_metrics_has_what_the_gateway_gives(stack):
    """After a request with a key: those of keys are there once one was used."""
    key = stack.ctl("key", "create", "--name", "test", "--role", "read")
    bearer = {"Authorization": f"Bearer {key}"}
    wait_until(
        lambda: requests.get(stack.http("/v1/ping"), headers=bearer, timeout=60).status_code == 200
    )
    given = metrics_given(stack.http("/metrics"))
    assert {
        name: told
        for name, told in docs.metrics().items()
        if not OF_THE_WORKER.match(name) and not OF_ADMIN.match(name)
    } == given


def test_metrics_has_what_a_worker_gives(stack):
    given = metrics_given(stack.worker_http(1, "/metrics"))
    assert {
        name: told for name, told in docs.metrics().items() if OF_THE_WORKER.match(name)
    } == given


def test_metrics_has_the_counters_of_the_log():
    page = text("docs/reference/metrics.md")
    assert [
        name for _, name, _ in entries("worker/metric_table.h", "STAT") if f"`{name}`" not in page
    ] == []


def test_protocol_has_every_answer():
    wanted = [(code, status, http, meaning) for _, code, status, http, meaning in answers()]
    rows = table_rows("docs/reference/errors.md")
    documented = {row[0]: row for row in rows if len(row) == 4 and row[0].isdigit()}
    assert list(documented) == sorted((code for code, *_ in wanted), key=int)
    page = text("docs/reference/errors.md")
    lacking = [
        code for code, *_ in wanted if not re.search(rf"^(?:- )?\*\*{code}\*\* `", page, re.M)
    ]
    assert lacking == [], "what a client does with each"
    for code, status, http, meaning in wanted:
        assert status in re.findall(r"\w+", documented[code][1]) and documented[code][2:] == [
            http,
            meaning,
        ]


def answers():
    found = re.findall(
        r'^ANSWER\((\w+), (\d+), "(\w+)", (\d+), "([^"]*)"\)$',
        one_line_each(text("common/message/answer_table.h")),
        re.MULTILINE,
    )
    assert found
    return found


def test_protocol_has_every_operation():
    page = text("docs/reference/protocol.md")
    (section,) = re.findall(r"^## Operations$(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^### (.*)$", section, re.MULTILINE)
    described = {name.strip() for heading in headings for name in heading.split(",")}
    operations = {name for _, name, *_ in entries("gateway/listen/op_table.h", "OP")}
    assert described == operations
    page += text("docs/reference/http.md")
    over_http = operations - {"auth"}  # a header there
    assert [name for name in over_http if f"/v1/{name}" not in page] == []


def test_events_has_every_type_and_member():
    """As asyncapi.json, which other tests compare with what is published."""
    schemas = json.loads(text("docs/reference/asyncapi.json"))["components"]["schemas"]
    wanted = {}
    for schema in schemas.values():
        if type_ := schema.get("properties", {}).get("type", {}).get("const"):
            data = schemas[schema["properties"]["data"]["$ref"].rpartition("/")[2]]
            always = set(data["required"])
            wanted[type_] = (always, set(data["properties"]) - always)
    page = "docs/reference/events.md"
    assert len(wanted) == 9 and set(wanted) <= {row[0] for row in table_rows(page) if len(row) == 2}
    told = {
        row[0]: ({"coupon", *re.findall(r"\w+", row[1])}, set(re.findall(r"\w+", row[2])))
        for row in table_rows(page)
        if len(row) == 3 and row[0] in wanted
    }
    assert told == wanted


def log_events_documented():
    """The names at the head of each bullet."""
    return {
        name
        for bullet in bullets(text("docs/reference/logs.md"))
        for name in re.findall(r"`(\w+)`", bullet.split(": ")[0])
    }


def test_docs_have_every_log_event():
    """An event is the first argument of log_warn() and the like, directly or through a function."""
    function = r"(?:log_(?:info|warn|error|each)|log_failure|attempt_failed|failed)"
    event = re.compile(
        function + r'\((?:\w+(?:->\w+)*,\s+)?(?:[^";()]*\? )?"([a-z_]+)"(?:\s+: "([a-z_]+)")?'
    )
    logged = {
        name
        for part in ("common", "gateway", "worker", "events", "keeper", "admin")
        for file in (ROOT / part).rglob("*.c")
        for names in event.findall(file.read_text(encoding="utf-8"))
        for name in names
        if name
    }
    assert len(logged) > 50
    assert logged - log_events_documented() == set()
    strings = "".join(
        file.read_text(encoding="utf-8")
        for part in ("common", "gateway", "worker", "events", "keeper", "admin")
        for file in (ROOT / part).rglob("*.[ch]")
    )
    assert {name for name in log_events_documented() if f'"{name}"' not in strings} == set()


def test_exit_statuses_have_one_meaning():
    """The table in C, the manual and --help agree."""
    table = one_line_each(text("ctl/args.h").replace("\\\n", "\n"))
    meanings = re.findall(r'EXIT\(\w+, (\d+),\s*"([^"]*)"\)', table)
    assert [int(number) for number, _ in meanings] == list(range(len(meanings))) and meanings
    (manual,) = re.findall(
        r"^\| exit status \| meaning \|\n.*\n((?:\|.*\n)+)",
        text("docs/reference/couponctl/README.md"),
        re.MULTILINE,
    )
    assert re.findall(r"^\| (\d+) \| (.*) \|$", manual, re.MULTILINE) == meanings
    assert (
        re.findall(r"^ +(\d+)  (.*)$", printed("couponctl", "--help", "exit"), re.MULTILINE)
        == meanings
    )


def test_couponctl_has_one_rule_for_all_commands():
    """--json of each that prints a result; pages of each that lists something."""
    commands = {name: printed("couponctl", *name.split(), "--help") for name in commands_of_help()}
    assert 50 < len(commands) <= 70
    without = {name for name, help_ in commands.items() if "\n  --json\n" not in help_}
    assert without == {"lock", "export", "codes export", "setup"}
    # Settings are read before the command, so a word has a value with each command or with none.
    options = set(
        re.findall(r"^  (--[a-z-]+)(?: (\w+))?", "\n".join(commands.values()), re.MULTILINE)
    )
    assert {name for name, value in options if value} & {
        name for name, value in options if not value
    } == set()
    pages = {name for name in commands if name.split()[-1] in ("list", "history")}
    assert len(pages) > 7
    for name in pages:
        assert re.search(r"\n  --after \w+\n", commands[name]), name
        assert "\n  --count N\n      at most N, 1 to 100000; default: " in commands[name], name


def test_couponctl_has_every_finding_of_an_audit():
    table = text("ctl/audit/finding_table.h")
    found = re.findall(r'^FINDING\(\w+, "(\w+)", "(P\d+)"\)$', table, re.MULTILINE)
    assert len(found) == table.count("\nFINDING(") > 0
    rows = {row[0]: row for row in table_rows("docs/reference/couponctl/audit.md") if len(row) == 3}
    documented = {kind: (rows[kind][1], bool(rows[kind][2])) for kind, _ in found if kind in rows}
    assert documented == {kind: (promise, True) for kind, promise in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_link_is_dead(page):
    dead = []
    links = r"\]\(([^)\s]+)\)|^\[[^]]+\]: (\S+)$"
    for found in re.finditer(links, page.read_text(encoding="utf-8"), re.MULTILINE):
        target = found[1] or found[2]
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = page.parent / path if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            dead.append(target)
    assert dead == []


def crash_points():
    """The crash points of lifecycle.md: (heading, {label: text}) of each section of level 4."""
    page = text("docs/about/lifecycle.md").partition("\n## Crash points\n")[2]
    found = []
    for section in re.split(r"^#### ", page, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        body = re.split(r"^#+ ", body, flags=re.MULTILINE)[0]
        found.append((heading, dict(bullet.split(": ", 1) for bullet in bullets(body))))
    return found


def test_each_fault_point_is_used_and_described():
    points = dict(entries("common/fault_table.h", "FAULT"))
    sources = "".join(
        file.read_text(encoding="utf-8")
        for part in ("gateway", "worker", "events", "keeper", "ctl")
        for file in (ROOT / part).rglob("*.c")
    )
    used = re.findall(r"\bfault_point(?:_half)?\((\w+)", sources)
    assert sorted(used) == sorted(points), "each is used once"
    named = " ".join(heading for heading, _ in crash_points())
    assert [name for name in points.values() if f"`{name}`" not in named] == []


def test_each_crash_point_names_its_test():
    """Each fault point has a scenario, kill_POINT; ONLY= selects all that contain a word."""
    listed = subprocess.run(
        ["/usr/bin/python3", "-B", ROOT / "tests/torture/run.py", "--list"],
        capture_output=True,
        text=True,
        check=True,
    )
    scenarios = [line.split()[0] for line in listed.stdout.splitlines()]
    faults = dict(entries("common/fault_table.h", "FAULT")).values()
    assert [name for name in faults if f"kill_{name}" not in scenarios] == []
    points = crash_points()
    assert len(points) > 50
    said = {"Left behind", "Recovery"}
    assert [heading for heading, parts in points if set(parts) - {"Client", "Tests"} != said] == []
    assert [
        heading
        for heading, parts in points
        if not re.search(r"`(ONLY=\w|tests/)", parts.get("Tests", ""))
        and not any(f"`{name}`" in heading for name in faults)
    ] == []
    named = {
        name
        for page in PAGES
        for name in re.findall(r"`ONLY=(\w+)`", page.read_text(encoding="utf-8"))
    }
    assert [name for name in named if not any(name in scenario for scenario in scenarios)] == []


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_and_file_that_is_named_exists(page):
    missing = []
    for path, _, name in re.findall(
        r"`((?:tests|common|gateway|worker|events|keeper|ctl|codes|lua|sql|scripts|bench|docs)"
        r"/[\w./-]+)"
        r"(?:(?:`\s+`)?(::(\w+)))?`",
        page.read_text(encoding="utf-8"),
    ):
        file = ROOT / path
        defined = re.compile(rf"\b{name}\(|\bCONSTRAINT {name}\b")
        if not file.exists() or (name and not defined.search(file.read_text(encoding="utf-8"))):
            missing.append(f"{path}::{name}" if name else path)
    assert missing == []


FIGURES = "docs/about/figures.txt"  # that `make bench` has written
NUMBER = r"\d[\d,]*(?:\.\d+)?"


def figures_of(*labels):
    """The numbers in a line of the figures: the first that begins with the last label, below the
    first that begins with the one before, and so on."""
    below = text(FIGURES)
    for label in labels:
        below = "\n" + below.partition("\n")[2]
        found = re.search(rf"\n *{re.escape(label)}(.*)", below)
        assert found, f"{FIGURES} has no line {labels}"
        below = below[found.start() + 1 :]
    value = re.search(rf"  ({NUMBER}(?: / {NUMBER})*) ", found[1])
    return value[1].split(" / ")


def test_the_readme_shows_figures_of_the_benchmark():
    section = text("README.md").partition("\n## Figures\n")[2].partition("\n## ")[0]
    calm, ten = figures_of("lines: peak in time"), figures_of("lines: peak in time", "10 x")
    tls = figures_of("lines, TLS: peak in time")
    ten_tls = figures_of("lines, TLS: peak in time", "10 x")
    accepted, issued = (figures_of(f"1,000/s, ack={ack}: p50") for ack in ("accepted", "issued"))
    assert re.findall(r"^\|[^|]*\| (\d[^|]*) \|$", section, re.MULTILINE) == [
        f"{calm[0]} /s",
        f"{tls[0]} /s",
        f"{ten[2]} / {ten_tls[2]} /s",
        f"{figures_of('64 connections without pipelining')[1]} /s",
        f"{accepted[1]} / {issued[1]} ms",
        f"{figures_of('end to end, to the last committed row')[0]} /s",
    ]
    told = " ".join(section.split())
    assert f"of {ten[0]} users a second it could start {ten[1]}" in told
    date, machine = text(FIGURES).splitlines()[:2]
    assert date.partition(",")[0] in told and machine in told


def test_the_readme_shows_figures_of_the_comparison():
    told, compared = " ".join(text("README.md").split()), text("docs/about/compare.md")
    function, combiner, couponmq = (
        re.search(rf"^\| {way} [^|]*\| +({NUMBER}) ", compared, re.MULTILINE)[1]
        for way in ("4c", "11", "10b")
    )
    assert f"committed {function} a second of one item" in told
    assert f"committed {combiner}, couponmq {couponmq}." in told


def test_the_readme_has_no_number_of_its_own():
    """Each from 1,000 on is one of the benchmark or of the comparison."""
    prose = re.sub(r"^```.*?^```$", "", text("README.md"), flags=re.MULTILINE | re.DOTALL)
    known = text(FIGURES) + text("docs/about/compare.md")
    assert set(re.findall(r"\d+(?:,\d{3})+", prose)) <= set(re.findall(NUMBER, known))


def test_performance_shows_all_figures():
    assert f"```\n{text(FIGURES)}```\n" in text("docs/about/performance.md")


def test_the_readme_is_short_and_leads_to_each_page():
    assert len(text("README.md").splitlines()) <= 200
    seen, left = set(), [ROOT / "README.md", DOCS / "index.md"]  # the site begins with the other
    while left:
        page = left.pop()
        if page.suffix != ".md" or page in seen:
            continue
        seen.add(page)
        links = re.findall(r"\](?:\(|: )([^)#\s]+)", page.read_text(encoding="utf-8"))
        left += [(page.parent / link).resolve() for link in links if ":" not in link]
    assert [str(page) for page in PAGES if page not in seen] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_line_is_wider_than_100_columns(page):
    """Outside code blocks. A line that is only a URL cannot be broken."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    wide = [line for line in prose.splitlines() if len(line) > 100]
    assert [line for line in wide if not re.fullmatch(r"\s*<?https?://\S+", line)] == []


def test_security_names_tests_that_there_are():
    page = text("docs/guides/security.md")
    wanted = set(re.findall(r"`(test_\w+)`", page))
    there = {
        name
        for path in [*ROOT.glob("tests/**/*.py"), *ROOT.glob("tests/unit/*.c")]
        for name in re.findall(r"\b(test_\w+)\(", path.read_text(encoding="utf-8"))
    }
    assert wanted and wanted <= there, wanted - there
