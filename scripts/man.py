#!/usr/bin/env python3
"""make man, make completion: writes manual pages to a folder, or the completion of bash to standard
output, from the tables that the programs print (--help json). Pages also have the text of docs/:
that of a command is in docs/reference/couponctl/, on the page of its first word.
    man.py BUILD_DIR man FOLDER | man.py BUILD_DIR completion"""

import os
import re
import sys
import textwrap
import time
from pathlib import Path

from docs import BLOCK, COMMANDS, RUSH, commands_of, ended, option_help, sentence, tables

ROOT = Path(__file__).resolve().parent.parent
FENCE = "```"
TOOL = "couponctl"
CTL_README = f"{COMMANDS}/README.md"
# Sections of the documents on the pages that are not of one command.
CTL_SECTIONS = ["Rules for all commands", "Amounts", "One request as JSON", "Repeating a command"]
SERVICES = {
    "coupon-gateway": [
        ("docs/guides/observe.md", "Health and readiness"),
        ("docs/guides/upgrade.md", "Stopping and upgrading"),
    ],
    "coupon-worker": [
        ("docs/guides/deploy.md", "Processes"),
        ("docs/guides/upgrade.md", "Stopping and upgrading"),
    ],
    "coupon-admin": [("docs/reference/admin.md", "Authentication and authorization")],
}
OVERVIEW = [
    ("docs/about/how-it-works.md", "Data flow"),
    ("docs/guides/deploy.md", "Processes"),
    ("docs/reference/config.md", "Configuration"),
    ("docs/reference/config.md", "Files of settings"),
]


# ---- documents


def document(name):
    return (ROOT / name).read_text(encoding="utf-8")


def sections(text):
    """[(level, title, text up to the next heading)], in order."""
    found, fenced = [], False
    for line in text.splitlines():
        fenced ^= line.startswith(FENCE)
        heading = None if fenced else re.match(r"(#+) (.*)", line)
        if heading:
            found.append((len(heading[1]), heading[2], []))
        elif found:
            found[-1][2].append(line)
    return [(level, title, "\n".join(lines)) for level, title, lines in found]


def section(name, title):
    """The text of the section with its subsections, but of the title of a document only what is
    before the first of them."""
    found = sections(document(name))
    at = [i for i, (_, heading, _) in enumerate(found) if heading == title]
    if not at:
        sys.exit(f"man: {name} has no section {title}")
    level, _, text = found[at[0]]
    for deeper, heading, more in found[at[0] + 1 :]:
        if deeper <= level or level == 1:
            break
        text += f"\n### {heading}\n{more}"
    return text


def blocks(text):
    """The paragraphs, bullets, tables and fenced blocks of a text: lists of lines."""
    found, fenced = [[]], False
    for line in text.splitlines():
        begins = line.startswith((FENCE, "#")) and not fenced or re.match(r"- |\d+\. ", line)
        if not fenced and (begins or not line.strip() and found[-1]):
            if not (line.startswith("#") and not found[-1]):
                found.append([])
        elif found[-1] and not fenced and found[-1][0].startswith("#"):
            found.append([])
        if line.startswith(FENCE):
            fenced = not fenced
        if line.strip() or fenced:
            found[-1].append(line)
        if line.startswith(FENCE) and not fenced:
            found.append([])
    return [block for block in found if block]


def page_told(name, without=()):
    """The page below its first block, without the sections that have these titles."""
    text, is_in = "", True
    for level, title, more in sections(document(name)):
        is_in = is_in if level > 2 else title not in without
        if is_in:
            text += more if level == 1 else f"\n### {title}\n{more}"
    return text[BLOCK.search(text).end() :]


def told_of(command, names):
    """What the page of the command's first word has of it."""
    page = f"{COMMANDS}/{command.split()[0]}.md"
    return section(page, command) if " " in command else page_told(page, names)


# ---- pages


def escaped(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def inline(text):
    """Spans of a document with the fonts of a page."""
    text = re.sub(r"\s+", " ", text.strip())
    spans = re.split(r"(`[^`]+`)", text)
    for i, span in enumerate(spans):
        if i % 2:
            spans[i] = f"\\fB{escaped(span[1:-1])}\\fR"
            continue
        span = span.replace("\\", "\\e")
        span = re.sub(r"\*\*([^*]+)\*\*", r"\\fB\1\\fR", span)
        spans[i] = re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*", r"\\fI\1\\fR", span)
    text = "".join(spans)
    # A link is its text, which may have spans; where it leads to is no page.
    return re.sub(r"\[([^]]+)\]\((?:[^()]|\([^()]*\))*\)", r"\1", text)


class Page:
    def __init__(self, name, number, summary):
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        date = time.strftime("%Y-%m-%d", time.gmtime(int(epoch) if epoch else None))
        self.name, self.number, self.fresh = name, number, True
        self.lines = [
            f'.TH {name.upper()} {number} "{date}" "couponmq {VERSION}" "couponmq"',
            ".SH NAME",
        ]
        self.text(f"{escaped(name)} \\- {summary}")

    def macro(self, line, is_break=False):
        if not (is_break and self.fresh):
            self.lines.append(line)
        self.fresh = line.startswith((".SH", ".SS"))

    def text(self, text):
        wrapped = textwrap.wrap(text, 70, break_long_words=False, break_on_hyphens=False)
        self.lines += [f"\\&{line}" if line[0] in ".'" else line for line in wrapped]
        self.fresh = False

    def paragraph(self, text):
        self.macro(".PP", is_break=True)
        self.text(text)

    def entry(self, head, text):
        self.macro(".TP")
        self.lines.append(head)
        self.text(text)

    def heading(self, title, macro=".SH"):
        self.macro(f"{macro} {title.upper() if macro == '.SH' else title}".replace("`", ""))

    def literal(self, lines):
        self.macro(".PP", is_break=True)
        self.macro(".RS 2")
        self.macro(".nf")
        for line in lines:
            line = escaped(line)
            self.lines.append(f"\\&{line}" if line[:1] in (".", "'") else line)
        self.macro(".fi")
        self.macro(".RE")

    def markdown(self, text):
        for block in blocks(BLOCK.sub("", text)):
            first = block[0]
            item = re.match(r"(- |\d+\. )", first)
            if first.startswith(("![", "<picture>")):
                continue  # a picture
            if first.startswith(FENCE):
                if first != f"{FENCE}mermaid":
                    self.literal(block[1:-1])
            elif first.startswith("#"):
                self.heading(inline(first.lstrip("# ")), ".SS")
            elif first.startswith("|"):
                for row in block[2:]:
                    cells = [inline(cell) for cell in row.strip("|").split("|")]
                    self.entry(f"\\fB{cells[0]}\\fR", ". ".join(c for c in cells[1:] if c))
            elif item:
                # What is deeper is a text of its own.
                deeper = [i for i, line in enumerate(block) if i and line.startswith("  - ")]
                end = deeper[0] if deeper else len(block)
                mark = "\\(bu" if item[1] == "- " else item[1].strip()
                self.macro(f".IP {mark} {len(item[1])}")
                self.text(inline(" ".join([first[len(item[1]) :], *block[1:end]])))
                if deeper:
                    self.macro(".RS 2")
                    self.markdown("\n".join(line[2:] for line in block[end:]))
                    self.macro(".RE")
            else:
                self.paragraph(inline(" ".join(block)))

    def options(self, options):
        for option in options:
            head = f"\\fB{escaped(option['name'])}\\fR"
            if not option["name"].startswith("-"):
                head = f"\\fB\\-\\-{escaped(option['name'])}\\fR"
            if option.get("value"):
                head += f" \\fI{escaped(option['value'])}\\fR"
            self.entry(head, inline(ended(option_help(option))))

    def setting(self, setting, note=""):
        default = f"Default: {setting['default']}" if setting["default"] != "" else ""
        if "least" in setting:
            default += f", from {setting['least']} to {setting['most']}"
        told = [ended(setting["help"]), f"{default}." if default else "", note]
        self.entry(
            f"\\fB\\-\\-{escaped(setting['flag'])}\\fR, \\fB{setting['name']}\\fR",
            inline(" ".join(part for part in told if part)),
        )

    def see_also(self, names):
        self.heading("see also")
        self.text(", ".join(f"\\fB{escaped(name)}\\fR({n})" for name, n in names))

    def write(self, folder):
        path = folder / f"{self.name}.{self.number}"
        path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")


def synopsis(page, command):
    """couponctl show ID --curve [OPTIONS]"""
    name, _, mode = command["name"].partition(" --")
    words = [f"\\fBcouponctl {escaped(name)}\\fR"]
    if command["argument"]:
        words.append(f"\\fI{escaped(command['argument'])}\\fR")
    if mode:
        words.append(f"\\fB\\-\\-{mode}\\fR")
    words.append("[\\fIOPTIONS\\fR]" if command["runs"] else "\\fICOMMAND\\fR")
    page.macro(".PP", is_break=True)
    page.text(" ".join(words) + (" \\-\\- \\fICOMMAND\\fR" if command["takes_words"] else ""))
    for mode in command["modes"]:
        synopsis(page, mode)


def command_page(command, names):
    page = Page(f"couponctl-{command['name'].replace(' ', '-')}", 1, command["summary"])
    page.heading("synopsis")
    synopsis(page, command)
    page.heading("description")
    page.paragraph(inline(command["detail"] or sentence(command["summary"])))
    page.markdown(told_of(command["name"], names))
    if command["commands"]:
        page.heading("commands")
        for sub in command["commands"]:
            told = f"{sentence(sub['summary'])} See couponctl-{sub['name'].replace(' ', '-')}(1)."
            head = f"\\fB{escaped(sub['name'])}\\fR"
            page.entry(f"{head} \\fI{escaped(sub['argument'] or '')}\\fR", told)
    if command["options"]:
        page.heading("options")
        page.options(command["options"])
    for mode in command["modes"]:
        page.heading(
            f"Options with --{mode['name'].split(' --')[1]}".replace("--", "\\-\\-"), ".SS"
        )
        page.paragraph(inline(f"{sentence(mode['summary'])} {mode['detail'] or ''}"))
        page.options(mode["options"])
    parts = command["name"].split()
    beside = [(f"couponctl-{parts[0]}", 1)] if len(parts) > 1 else []
    page.see_also([("couponctl", 1), *beside, ("couponmq", 7)])
    return page


def ctl_page(ctl, names):
    page = Page("couponctl", 1, "the operator's tool of couponmq")
    page.heading("synopsis")
    page.text("\\fBcouponctl\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]")
    page.paragraph("\\fBcouponctl\\fR \\fB\\-\\-help\\fR [\\fICOMMAND\\fR|settings|exit|json]")
    page.paragraph("\\fBcouponctl\\fR \\fB\\-\\-api\\fR")
    page.heading("description")
    page.markdown(section(CTL_README, "couponctl"))
    page.heading("commands")
    for group in ctl["groups"]:
        page.heading(group["subject"], ".SS")
        for command in group["commands"]:
            page.entry(
                f"\\fB{escaped(command['name'])}\\fR \\fI{command['argument'] or ''}\\fR",
                f"{sentence(command['summary'])} See couponctl\\-{command['name']}(1).",
            )
    for title in CTL_SECTIONS:
        page.heading(title)
        page.markdown(section(CTL_README, title))
    page.heading("settings")
    for setting in ctl["settings"]:
        page.setting(setting)
    page.heading("files")
    page.markdown(section("docs/reference/config.md", "Files of settings"))
    page.heading("exit status")
    for exit_ in ctl["exits"]:
        page.entry(f"\\fB{exit_['status']}\\fR", inline(sentence(exit_["meaning"])))
    pages = [(f"couponctl-{name.replace(' ', '-')}", 1) for name in names]
    page.see_also([*pages, ("coupon-rush", 1), ("couponmq", 7)])
    return page


def notes():
    """What docs/reference/config.md says below its lists: {NAME: text}."""
    found = {}
    for block in blocks(document("docs/reference/config.md")):
        head = re.match(r"- ((?:`[A-Z_]+`(?:, )?)+): (.*)", " ".join(map(str.strip, block)))
        if head:
            found[re.search(r"`([A-Z_]+)`", head[1])[1]] = sentence(head[2])
    return found


def service_page(name, service):
    summary = re.split(r"[.:]", re.sub(r"\s+", " ", service["summary"]))[0]
    page = Page(name, 8, summary[0].lower() + summary[1:])
    page.heading("synopsis")
    page.text(
        f"\\fB{escaped(name)}\\fR [\\fB\\-n\\fR] [\\fB\\-\\-\\fISETTING\\fR \\fIVALUE\\fR]..."
    )
    page.heading("description")
    page.paragraph(inline(service["summary"]))
    page.heading("options")
    page.options(service["options"])
    page.heading("settings")
    told = notes()
    for setting in service["settings"]:
        page.setting(setting, told.get(setting["name"], ""))
    for document_, title in SERVICES[name]:
        page.heading(title)
        page.markdown(section(document_, title))
    others = [(other, 8) for other in SERVICES if other != name]
    page.see_also([*others, ("couponctl", 1), ("couponmq", 7)])
    return page


def rush_page(rush):
    page = Page("coupon-rush", 1, "put load on coupons, and check the outcomes")
    page.heading("synopsis")
    page.text("\\fBcoupon\\-rush\\fR [\\fIOPTIONS\\fR]")
    page.heading("description")
    page.paragraph(inline(rush["summary"]))
    page.markdown(page_told(RUSH))
    page.heading("options")
    page.options(rush["options"])
    page.heading("settings")
    for setting in rush["settings"]:
        page.setting(setting)
    page.see_also([("couponctl", 1), ("couponmq", 7)])
    return page


def overview_page():
    page = Page("couponmq", 7, "issue coupons under a rush")
    page.heading("description")
    page.markdown(section("README.md", "couponmq"))
    for document_, title in OVERVIEW:
        page.heading(title)
        page.markdown(section(document_, title))
    services = [(name, 8) for name in SERVICES]
    page.see_also([("couponctl", 1), ("coupon-rush", 1), *services])
    return page


def man(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    ctl = tables(sys.argv[1], "couponctl")
    commands = commands_of(ctl)
    names = [command["name"] for command in commands]
    for command in commands:
        command_page(command, names).write(folder)
    ctl_page(ctl, names).write(folder)
    for name in SERVICES:
        service_page(name, tables(sys.argv[1], name)).write(folder)
    rush_page(tables(sys.argv[1], "coupon-rush")).write(folder)
    overview_page().write(folder)
    print(f"man: {len(list(folder.iterdir()))} pages in {folder}")


# ---- completion


def flag(option):
    return f"--{option['name']}" + ("=" if option["value"] else "")


def completion():
    """couponctl's tables as those of scripts/completion.bash."""
    ctl = tables(sys.argv[1], "couponctl")
    commands = commands_of(ctl)
    lists = {TOOL: " ".join(c["name"] for group in ctl["groups"] for c in group["commands"])}
    options, values = {}, {}
    for command in commands:
        name = f"{TOOL} {command['name']}"
        if command["commands"]:
            lists[name] = " ".join(sub["name"].split()[1] for sub in command["commands"])
        found = {}
        for one in [command, *command["modes"]]:
            for option in one["options"]:
                found[flag(option)] = option
        options[name] = " ".join([*found, "--help"])
        for option in found.values():
            kind = "@list " if option["value"] == "LIST" else ""
            if option["words"]:
                values[f"{name} --{option['name']}"] = kind + " ".join(option["words"])
            elif option["value"] == "FILE":
                values[f"{name} --{option['name']}"] = "@file"
        if "FILE" in (command["argument"] or ""):
            values[name] = "@file"
    options[TOOL] = " ".join(f"--{setting['flag']}=" for setting in ctl["settings"])
    options[TOOL] += " --help --version --api"
    lists[f"{TOOL} --help"] = f"settings exit json {lists[TOOL]}"
    body = (ROOT / "scripts/completion.bash").read_text(encoding="utf-8")
    for name, table in ("commands", lists), ("options", options), ("values", values):
        rows = "".join(f"\t['{key}']='{value}'\n" for key, value in table.items())
        body = body.replace(f"# {name.upper()}\n", f"declare -gA _couponctl_{name}=(\n{rows})\n")
    print(body, end="")


if __name__ == "__main__":
    VERSION = tables(sys.argv[1], "couponctl")["version"]
    if sys.argv[2] == "man":
        man(Path(sys.argv[3]))
    else:
        completion()
