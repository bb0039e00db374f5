// Pages of the manual, which coupon-admin has with it: the console reaches no other host. Its
// Markdown becomes elements and text; nothing of it is markup.
import { h, say } from "./dom.js";

// Where they are: these are embedded (MANUAL in the Makefile).
const PAGES = {
    "guides/console": "The console",
    "guides/codes": "Exchange codes",
    "guides/webhooks": "Webhooks",
    "guides/events": "Events",
    "guides/runbook": "Runbook",
    "reference/errors": "Answers and errors",
};
const ELSEWHERE = "/usr/share/doc/couponmq-server";

// The address of a page, or of a part of it.
export const manual_place = (page, part) =>
    `#/manual/${encodeURIComponent(page)}${part ? `?part=${part}` : ""}`;

export const manual_link = (page, part, text = "Manual") =>
    h("a", { href: manual_place(page, part) }, text);

// As GitHub names the anchor of a heading.
export const anchor_of = (text) =>
    text
        .trim()
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
        .replaceAll(/\s/g, "-");

// ---- within a line

// A link within the manual; as a text with the place of its target, where that is elsewhere.
function link(label, target, page) {
    if (/^[a-z]+:/.test(target)) return [inline(label, page), ` (${target})`];
    const [path, part] = target.split("#");
    const { pathname } = new URL(path, `http://manual/${page}`); // "" is the page itself
    const name = path === "" ? page : pathname.slice(1).replace(/\.md$/, "");
    return PAGES[name]
        ? h("a", { href: manual_place(name, part) }, inline(label, page))
        : h("span", { title: ELSEWHERE + pathname }, inline(label, page));
}

const INLINE = new RegExp(
    [
        "`([^`]+)`",
        "!\\[([^\\]]*)\\]\\([^)]*\\)",
        "\\[([^\\]]+)\\]\\(([^)\\s]+)\\)",
        "\\*\\*([^*]+)\\*\\*",
        "\\*([^*\\s][^*]*)\\*",
    ].join("|"),
    "g",
);

function inline(text, page) {
    const parts = [];
    let from = 0;
    for (const found of text.matchAll(INLINE)) {
        const [all, code, picture, label, target, strong, soft] = found;
        parts.push(text.slice(from, found.index));
        from = found.index + all.length;
        if (code) parts.push(h("code", { class: "mono" }, code));
        else if (strong) parts.push(h("strong", {}, inline(strong, page)));
        else if (soft) parts.push(h("em", {}, inline(soft, page)));
        else if (label) parts.push(link(label, target, page));
        else if (picture === undefined) parts.push(all);
    }
    return [...parts, text.slice(from)];
}

// ---- lines

const cells_of = (line) =>
    line
        .replace(/^\|/, "")
        .replace(/\|\s*$/, "")
        .split(/(?<!\\)\|/)
        .map((cell) => cell.trim().replaceAll("\\|", "|"));

const ITEM = /^(\s*)([-*]|\d+\.) (.*)$/;

// A list from its first line on: its items, each with what is indented below it.
function list_read(lines, page) {
    const [, indent, mark] = ITEM.exec(lines[0]);
    const items = [];
    while (lines.length) {
        const found = ITEM.exec(lines[0]);
        const is_below = lines[0].startsWith(`${indent}  `);
        const next = lines[1] ?? "";
        const goes_on = next.startsWith(`${indent}  `) || ITEM.exec(next)?.[1] === indent;
        if (found && found[1] === indent) {
            items.push([found[3]]);
            lines.shift();
        } else if (is_below || (lines[0] === "" && goes_on)) {
            items.at(-1).push(lines.shift());
        } else {
            break;
        }
    }
    const make = ([first, ...rest]) => {
        const margin = Math.min(...rest.filter(Boolean).map((one) => one.search(/\S/)), 9);
        return h("li", {}, blocks([first, ...rest.map((one) => one.slice(margin))], page, true));
    };
    return h(/\d/.test(mark) ? "ol" : "ul", {}, items.map(make));
}

function table_read(lines, page) {
    const rows = [];
    while (lines[0]?.startsWith("|")) rows.push(cells_of(lines.shift()));
    const [head, , ...body] = rows;
    const row_of = (cells, name) => {
        const of = name === "th" ? { scope: "col" } : {};
        return h("tr", {}, cells.map((one) => h(name, of, inline(one, page))));
    };
    const head_row = h("thead", {}, row_of(head, "th"));
    const rows_body = h("tbody", {}, body.map((cells) => row_of(cells, "td")));
    return h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": head.join(", ") },
        h("table", { "aria-label": head.join(", ") }, head_row, rows_body),
    );
}

// The elements for lines of Markdown. In an item of a list its first paragraph is bare.
function blocks(lines, page, is_item = false) {
    const found = [];
    let text = [];
    const paragraph_end = () => {
        const whole = text.join(" ").trim();
        text = [];
        if (!whole || /^!\[[^\]]*\]\([^)]*\)$/.test(whole)) return; // pictures are not here
        const parts = inline(whole, page);
        found.push(is_item && found.length === 0 ? parts : h("p", {}, parts));
    };
    while (lines.length) {
        const [line] = lines;
        const heading = /^(#{1,4}) (.*)$/.exec(line);
        if (heading) {
            paragraph_end();
            lines.shift();
            const attributes = { id: `part-${anchor_of(heading[2])}`, tabindex: "-1" };
            found.push(h(`h${heading[1].length}`, attributes, inline(heading[2], page)));
        } else if (/^\s*```/.test(line)) {
            paragraph_end();
            const margin = line.search(/\S/);
            lines.shift();
            const code = [];
            while (lines.length && !/^\s*```/.test(lines[0]))
                code.push(lines.shift().slice(margin));
            lines.shift();
            found.push(h("pre", { class: "mono code", tabindex: "0" }, code.join("\n")));
        } else if (ITEM.test(line)) {
            paragraph_end();
            found.push(list_read(lines, page));
        } else if (line.startsWith("|") && /^\|[\s:|-]+\|?$/.test(lines[1] ?? "")) {
            paragraph_end();
            found.push(table_read(lines, page));
        } else if (line.trim() === "" || /^<!--.*-->$/.test(line)) {
            paragraph_end();
            lines.shift();
        } else {
            text.push(lines.shift().trim());
        }
    }
    paragraph_end();
    return found;
}

// ---- the page

// The heading with this anchor; or, for the name of an alert, the one above its name.
function place_of(text, part) {
    const named = part && document.getElementById(`part-${part}`);
    if (named || !part) return named;
    const name = [...text.querySelectorAll("p > code:only-child")].find(
        (one) => one.textContent === part,
    );
    let place = name?.parentElement;
    while (place && !/^H[1-4]$/.test(place.tagName)) place = place.previousElementSibling;
    return place;
}

export function manual_page(main, { part, query, still }) {
    const error = h("p", { class: "error", role: "alert" });
    const list = h(
        "nav",
        { class: "bar", "aria-label": "Manual" },
        Object.entries(PAGES).map(([name, title]) =>
            h("a", { href: manual_place(name), "aria-current": name === part && "page" }, title),
        ),
    );
    const text = h("article", { class: "card manual" });
    main.append(list, error, text);
    const load = async () => {
        if (!PAGES[part]) throw new Error(`There is no page ${part}.`);
        const answer = await fetch(`/console/manual/${part}.md`);
        if (!answer.ok) throw new Error(`The page cannot be read (HTTP ${answer.status}).`);
        const lines = (await answer.text()).split("\n");
        if (!still()) return;
        text.append(...blocks(lines, part).flat(9));
        text.append(
            h(
                "p",
                { class: "hint" },
                `This is ${part}.md of the documents, for this version. All of them are in the ` +
                    `package, in ${ELSEWHERE}.`,
            ),
        );
        const place = place_of(text, query.get("part"));
        if (!place) return;
        place.scrollIntoView();
        place.focus({ preventScroll: true });
    };
    load().catch((problem) => say(error, problem.message));
    return () => {};
}
