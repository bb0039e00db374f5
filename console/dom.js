// Elements, and how values are written. Data only ever becomes text: nothing here parses markup.
import { Problem } from "./api.js";

export function h(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
        if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
        else if (value === true) element.setAttribute(key, "");
        else if (value !== false && value != null) element.setAttribute(key, value);
    }
    element.append(...shown(children));
    return element;
}

const shown = (children) => children.flat(9).filter((child) => child != null && child !== false);

export const show = (element, ...children) => element.replaceChildren(...shown(children));

// Leaves an equal text untouched: a screen reader announces changes, and a selection stays.
export function say(element, text) {
    if (element.textContent !== String(text)) element.textContent = text;
}

const numbers = new Intl.NumberFormat("en-US");
const short = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });

export const count = (number) => (number == null ? "–" : numbers.format(number));
export const rate = (number) =>
    number == null ? "–" : number >= 100 ? count(Math.round(number)) : short.format(number);

// Digits after the point, where there are not two, by the column "Minor unit" of list one of
// ISO 4217; the table of ctl/money.c.
const DIGITS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
};

const digits_of = (currency) =>
    Number(Object.keys(DIGITS).find((n) => DIGITS[n].split(" ").includes(currency)) ?? 2);

// An amount of the API, which is in the smallest unit, as people write it in an input: 7.00.
export function amount_text(amount, currency) {
    if (amount == null) return "";
    const digits = digits_of(currency);
    const text = String(amount).padStart(digits + 1, "0");
    return digits ? `${text.slice(0, -digits)}.${text.slice(-digits)}` : text;
}

export function money(amount, currency) {
    if (amount == null) return "–";
    const [whole, part] = amount_text(amount, currency).split(".");
    return `${numbers.format(BigInt(whole))}${part ? `.${part}` : ""} ${currency}`;
}

// A number as people write it, 5,000 or 5 000, without what groups its digits.
const ungrouped = (text) =>
    /^[0-9]{1,3}([, ][0-9]{3})+([.][0-9]+)?$/.test(text) ? text.replaceAll(/[, ]/g, "") : text;

// Digits, for the API. Throws a Problem that begins with the name of the input.
export function number_read(name, text, is_decimal = false) {
    const plain = ungrouped(text.trim());
    if ((is_decimal ? /^[0-9]+([.][0-9]+)?$/ : /^[0-9]+$/).test(plain)) return plain;
    const example = is_decimal ? "a number, as 12.5" : "a whole number, as 5,000";
    throw new Problem(400, `${name} is "${text}": allowed is ${example}.`);
}

// Converts what people write to the unit of the API, at least `least`: with all digits of the
// currency after the point, or without a point. Throws a Problem that begins with the name of the
// input.
export function amount_read(name, text, currency, least = 0) {
    const digits = digits_of(currency);
    const plain = ungrouped(text);
    const form = digits ? `^([0-9]+)(?:[.]([0-9]{${digits}}))?$` : "^([0-9]+)()$";
    const [, whole, part] = new RegExp(form).exec(plain) ?? [];
    const units = whole && Number(whole + (part || "0".repeat(digits)));
    if (whole && units >= least && units <= Number.MAX_SAFE_INTEGER) return units;
    const [from, to] = [least, Number.MAX_SAFE_INTEGER].map((n) => amount_text(n, currency));
    const point = digits ? `with ${digits} digits after the point, or ` : "";
    throw new Problem(
        400,
        `${name} is "${text}": allowed is ${from} to ${to} ${currency}, ${point}without a point.`,
    );
}

export function milliseconds(seconds) {
    if (seconds == null) return "–";
    return seconds < 1 ? `${short.format(seconds * 1000)} ms` : `${short.format(seconds)} s`;
}

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const in_zone = (timeZone) =>
    new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", timeZone });
const local = in_zone(zone);

export function zone_is_known(name) {
    try {
        return Boolean(in_zone(name));
    } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        return false;
    }
}

// "2026-12-24 18:00:00", as clocks of a zone show it; in UTC, if the browser does not know it.
export const zoned = (text, name) =>
    zone_is_known(name) ? in_zone(name).format(new Date(text)) : utc(text);

// "3d", "12h", "90m", "45s": in the largest unit that divides it.
export function duration_text(seconds) {
    const [size, unit] = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]].find(
        ([each]) => seconds % each === 0,
    );
    return `${seconds / size}${unit}`;
}

// In the zone of the reader; the tooltip shows UTC.
export function time(text, none = "–") {
    if (!text) return none;
    return h("time", { datetime: text, title: utc(text) }, local.format(new Date(text)));
}

// To the millisecond.
export function instant(text) {
    const element = time(text);
    element.append(text.slice(19, 23));
    return element;
}

export const utc = (text) => `${text.slice(0, 19).replace("T", " ")} UTC`;
export const moment = (ms) => local.format(new Date(ms));
export const clock = (ms) => local.format(new Date(ms)).slice(11);

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

const STATES = {
    draft: ["draft", ""],
    scheduled: ["scheduled", "accent"],
    issuing: ["active", "good"],
    rebuilt: ["being repaired", "warn"],
    sold_out: ["sold out", "accent"],
    paused: ["paused", "warn"],
    ended: ["ended", ""],
    accepted: ["accepted", "accent"],
    issued: ["issued", "good"],
    rejected: ["rejected", "bad"],
    active: ["active", "good"],
    enabled: ["active", "good"],
    disabled: ["paused", "warn"],
    unused: ["unused", "accent"],
    used: ["used", "good"],
    held: ["held", "accent"],
    free: ["free", ""],
    revoked: ["revoked", "bad"],
};

export function badge(state) {
    const [text, kind] = STATES[state] ?? [state ?? "unknown", ""];
    return h("span", { class: `badge ${kind}` }, text);
}

// A table whose rows stay the same elements for as long as their key is there.
export class Rows {
    constructor(caption, heads, make) {
        this.body = h("tbody");
        this.rows = new Map();
        this.make = make;
        const cells = heads.map(([name, kind]) => h("th", { scope: "col", class: kind }, name));
        this.table = h(
            "table",
            { class: "rows" },
            h("caption", {}, caption),
            h("thead", {}, h("tr", {}, cells)),
            this.body,
        );
        this.element = h("div", { class: "scroll", tabindex: "-1" }, this.table);
    }

    // Entries are pairs: the key, and what `update` of the row gets.
    show(entries) {
        const keys = new Set(entries.map(([key]) => key));
        for (const [key, row] of this.rows) {
            if (keys.has(key)) continue;
            row.element.remove();
            this.rows.delete(key);
        }
        let place = this.body.firstChild;
        for (const [key, value] of entries) {
            if (!this.rows.has(key)) this.rows.set(key, this.make(key));
            const row = this.rows.get(key);
            row.update(value);
            if (row.element === place) place = place.nextSibling;
            else this.body.insertBefore(row.element, place);
        }
    }
}

// A table that is made once.
export function table(caption, heads, rows, none = "None.") {
    const head = heads.map(([name, kind]) => h("th", { scope: "col", class: kind }, name));
    if (rows.length === 0) return h("p", { class: "muted" }, none);
    const body = rows.map((cells) =>
        h(
            "tr",
            {},
            cells.map((cell, i) =>
                h("td", { class: heads[i][1], "data-name": heads[i][0] }, cell ?? "–"),
            ),
        ),
    );
    const element = h(
        "table",
        { class: "rows" },
        h("caption", {}, caption),
        h("thead", {}, h("tr", {}, head)),
        h("tbody", {}, body),
    );
    // What can have the focus scrolls it by the keyboard; else the part itself has it.
    const focus = element.querySelector("a, button, input")
        ? {}
        : { tabindex: "0", role: "region", "aria-label": caption };
    return h("div", { class: "scroll", ...focus }, element);
}

// The error in the id of a campaign as typed; "": it is correct.
export const id_problem = (text) =>
    text === "" || /^[1-9][0-9]{0,18}$/.test(text)
        ? ""
        : `"${text}" is not a campaign id: an id is a number, as in the list of campaigns.`;

export const level = (label) => h("progress", { class: "level", max: "1", "aria-label": label });

export function card(title, ...children) {
    const id = `part-${title.toLowerCase().replaceAll(/\W+/g, "-")}`;
    return h(
        "section",
        { class: "card", "aria-labelledby": id },
        h("h2", { id }, title),
        ...children,
    );
}

// A line that says what was done.
export const note_make = () => h("p", { class: "note", role: "status", tabindex: "-1" });

// A text that is shown only once; a click selects all of it.
export const secret = (text) => h("code", { class: "secret" }, text);

// A part that scrolls by itself, by the keyboard too.
export const tall = (label, child) =>
    h("div", { class: "tall", tabindex: "0", role: "region", "aria-label": label }, child);

export function terms(pairs) {
    return h(
        "dl",
        { class: "terms" },
        pairs
            .filter(([, value]) => value != null)
            .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    );
}
