#!/usr/bin/env python3
"""make docs: writes each bullet of a setting in docs/reference/config.md, and of a metric in
docs/reference/metrics.md, anew from the tables in the code. A bullet stays where it is; for a new
setting write the head of its bullet, "- **`NAME`**", in the section to which it belongs, for a
metric "- `couponmq_name`"."""

import re
import sys
import textwrap
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
        return textwrap.fill(
            found[1] + bullets[found[1]],
            100,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )

    text = re.sub(pattern, bullet, (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    missing = bullets.keys() - set(seen)
    if missing or len(seen) > len(set(seen)):
        sys.exit(f"docs: {name}: each once is needed: {sorted(missing) or sorted(seen)}")
    return text


if __name__ == "__main__":
    for page in PAGES:
        (ROOT / page).write_text(page_made(page), encoding="utf-8")
