#!/usr/bin/env python3
"""make docs: writes what the pages of docs/reference/ have from tables.

- Each bullet of a setting in config.md, and of a metric in metrics.md, from the tables in the code.
  A bullet stays where it is; for a new setting write the head of its bullet, "- **`NAME`**", in the
  section to which it belongs, for a metric "- `couponmq_name`".
- Synopsis and options of each command on its page, and the lists in couponctl/README.md, from what
  the programs print (--help json). They are between two lines, <!-- make docs: NAME --> and
  <!-- make docs: end -->; for a new command write these two lines below its heading.

    docs.py BUILD_DIR"""

import json
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {"GATEWAY": "gateway", "WORKER": "worker", "CTL": "couponctl", "RUSH": "rush",
            "ADMIN": "admin"}  # fmt: skip
SETTING = re.compile(
    r'^SETTING_(?:TEXT|NUMBER)\( ?\w+, "(\w+)", "([a-z-]+)", ([A-Z |]+), '
    r'(?:"([^"]*)"|(\d+), (\d+), (\d+)), "([^"]*)"\)$',
    re.MULTILINE,
)
METRIC = re.compile(r'"(\w+)", "(counter|gauge|histogram)", "([^"]*)"')
STAT = re.compile(r'^STAT\(\w+, "(\w+)", "([^"]*)"\)$', re.MULTILINE)
OF_CAMPAIGN = re.compile(r'X\(\w+, "(keeper_coupon_\w+)",[ \\]*"([^"]*)"\)')


def code(path):
    """With each entry of a table on one line, and each text in one literal."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"\n\s+", " ", re.sub(r'"\s*\n\s*"', "", text))


def settings():
    """ENVIRONMENT: (help, flag, default, range or "text", the programs that read it)."""
    found = {}
    table = code(ROOT / "common/program/setting_table.h")
    for env, flag, mask, text, number, least, most, help_ in SETTING.findall(table):
        readers = [name for bit, name in PROGRAMS.items() if mask == "ALL" or bit in mask.split()]
        range_ = f"{least}–{most}" if number else "text"
        found[env] = (help_, f"--{flag}", number or text, range_, readers)
    return found


def metrics():
    """NAME: (type, help), of the tables and of those that have labels."""
    found = {}
    for folder in ("gateway", "worker", "keeper", "admin"):
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            text = code(path)
            found |= {
                f"couponmq_{name}": (type_, help_) for name, type_, help_ in METRIC.findall(text)
            }
            found |= {
                f"couponmq_worker_{n}_total": ("counter", help_) for n, help_ in STAT.findall(text)
            }
            found |= {f"couponmq_{n}": ("gauge", help_) for n, help_ in OF_CAMPAIGN.findall(text)}
    return found


def setting_bullets():
    return {
        f"- **`{env}`**": f": {help_}. `{flag}`, default {f'`{default}`' if default else 'empty'}, "
        f"{range_}, read by {', '.join(readers)}."
        for env, (help_, flag, default, range_, readers) in settings().items()
    }


def metric_bullets():
    return {f"- `{name}`": f" ({type_}): {help_}" for name, (type_, help_) in metrics().items()}


PAGES = {
    "docs/reference/config.md": (r"^(- \*\*`[A-Z_]+`\*\*).*(?:\n  .*)*", setting_bullets),
    "docs/reference/metrics.md": (r"^(- `couponmq_\w+`)(?: \(|$).*(?:\n  .*)*", metric_bullets),
}


def page_made(name):
    """The text that the page should have."""
    pattern, bullets_read = PAGES[name]
    bullets, seen = bullets_read(), []

    def bullet(found):
        seen.append(found[1])
        if found[1] not in bullets:
            sys.exit(f"docs: {name}: the code has no {found[1]}: remove this bullet")
        return filled(found[1] + bullets[found[1]])

    text = re.sub(pattern, bullet, (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    missing = bullets.keys() - set(seen)
    if missing or len(seen) > len(set(seen)):
        sys.exit(f"docs: {name}: each once is needed: {sorted(missing) or sorted(seen)}")
    return text


# ---- commands

COMMANDS = "docs/reference/couponctl"  # a page for each first word of a command
RUSH = "docs/reference/coupon-rush.md"
BLOCK = re.compile(r"<!-- make docs: (?!end)(.+) -->\n(?:.*\n)*?<!-- make docs: end -->\n")
SHARED = ("key", "version", "by", "json")  # options that README.md describes for all pages


def tables(build, program):
    """What the program prints of itself."""
    told = [Path(build) / program, "--help", "json"]
    return json.loads(subprocess.run(told, capture_output=True, text=True, check=True).stdout)


def walk(commands):
    for command in commands:
        yield command
        yield from walk(command["commands"])


def commands_of(ctl):
    """All commands of couponctl's tables, those below another one after it."""
    return list(walk(one for group in ctl["groups"] for one in group["commands"]))


def filled(text):
    """A bullet, or a paragraph, of 100 columns."""
    below = "  " if text.startswith("- ") else ""
    return textwrap.fill(
        text, 100, subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    )


def ended(text):
    text = re.sub(r"\s+", " ", text.strip())
    return text + ("" if text.endswith(".") else ".")


def sentence(text):
    return ended(text)[0].upper() + ended(text)[1:]


def commands_table(groups, page):
    """Rows of commands below the subjects of {subject: commands}, with links from a page."""
    rows, links = ["| command | what it does |", "| --- | --- |"], [""]
    for subject, commands in groups.items():
        rows += [f"| **{subject}** | |"] if subject else []
        for name, summary in [(one["name"], one["summary"]) for one in commands]:
            first, _, below = name.partition(" ")
            target = f"{first}.md" if f"{first}.md" != page else ""
            rows.append(f"| [{name}] | {summary} |")
            links.append(f"[{name}]: {target}{'#' + name.replace(' ', '-') if below else ''}")
    return rows + links


def option_named(option):
    dashes = "" if option["name"].startswith("-") else "--"
    return f"`{dashes}{option['name']}{' ' + option['value'] if option['value'] else ''}`"


def option_help(option):
    """In one line, with the words of a list."""
    words = ", ".join(option.get("words") or [])
    is_list = option.get("value") == "LIST" and words
    return " ".join(option["help"].split()) + (f"; one or more of {words}" if is_list else "")


def options_told(options):
    """Bullets of options."""
    return [filled(f"- {option_named(one)}: {option_help(one)}") for one in options]


def synopsis(command):
    """couponctl show ID --curve [OPTIONS]"""
    name, _, mode = command["name"].partition(" --")
    words = ["couponctl", name, command["argument"], mode and f"--{mode}"]
    words += [command["runs"] and "[OPTIONS]", command["takes_words"] and "-- COMMAND"]
    return " ".join(word for word in words if word)


def command_told(command, shared):
    """The block of a command: of one that has commands below it, their list."""
    if command["commands"]:
        return commands_table({"": command["commands"]}, f"{command['name']}.md")
    own = [one for one in command["options"] if one not in shared]
    common = [option_named(one) for one in shared if one in command["options"]]
    lines = ["```", synopsis(command), "```", "", filled(sentence(command["summary"]))]
    if own:
        lines += ["", *options_told(own)]
    if common:
        link = "[options of many commands](README.md#options-of-many-commands)"
        lines += ["", filled(f"Also {', '.join(common)}: {link}.")]
    return lines


def blocks_made(build):
    """{(page, name): lines}, of all that the programs tell."""
    ctl, rush = tables(build, "couponctl"), tables(build, "coupon-rush")
    commands = commands_of(ctl)
    modes = [mode for command in commands for mode in command["modes"]]
    told = Counter(json.dumps(one) for command in commands + modes for one in command["options"])
    most = {}
    for text, _ in told.most_common():
        most.setdefault(json.loads(text)["name"], json.loads(text))
    shared = [most[name] for name in SHARED]
    groups = {group["subject"]: list(walk(group["commands"])) for group in ctl["groups"]}
    exits = [f"| {one['status']} | {one['meaning']} |" for one in ctl["exits"]]
    readme = f"{COMMANDS}/README.md"
    return {
        (readme, "commands"): commands_table(groups, "README.md"),
        (readme, "options of many commands"): options_told(shared),
        (readme, "exit statuses"): ["| exit status | meaning |", "| --- | --- |", *exits],
        (RUSH, "coupon-rush"): ["```", "coupon-rush [OPTIONS]", "```", "",
                                *options_told(rush["options"])],
        **{
            (f"{COMMANDS}/{command['name'].split()[0]}.md", command["name"]): command_told(
                command, shared
            )
            for command in commands + modes
        },
    }  # fmt: skip


def command_pages_made(build):
    """{page: the text that it should have}."""
    blocks, pages, seen = blocks_made(build), {}, []
    for path in [*sorted((ROOT / COMMANDS).glob("*.md")), ROOT / RUSH]:
        page = str(path.relative_to(ROOT))

        def block(found, page=page):
            seen.append((page, found[1]))
            if seen[-1] not in blocks:
                sys.exit(f"docs: {page}: no program tells {found[1]}: remove this block")
            lines = "\n".join(blocks[seen[-1]])
            return f"<!-- make docs: {found[1]} -->\n\n{lines}\n\n<!-- make docs: end -->\n"

        pages[page] = BLOCK.sub(block, path.read_text(encoding="utf-8"))
    missing = blocks.keys() - set(seen)
    if missing or len(seen) > len(set(seen)):
        sys.exit(f"docs: each block once is needed: {sorted(missing) or sorted(seen)}")
    return pages


if __name__ == "__main__":
    for made in [{page: page_made(page) for page in PAGES}, command_pages_made(sys.argv[1])]:
        for page, text in made.items():
            (ROOT / page).write_text(text, encoding="utf-8")
