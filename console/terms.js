// The terms of a campaign as a form, and the changes in it.
import { get, Problem } from "./api.js";
import { amount_read, amount_text, count, h, number_read } from "./dom.js";
import { duration_text, zone, zone_is_known, zoned } from "./dom.js";

// Each field has the member of the API, its label, the kind of its input, and a hint. The fields of
// a group are replaced together.
const FIELDS = [
    { member: "name", label: "Name", kind: "text", wide: true, required: true },
    {
        member: "total",
        label: "Total coupons",
        kind: "number",
        create: true,
        required: true,
        hint: "never more are issued",
    },
    { member: "limit", label: "Limit per user", kind: "number", hint: "coupons a user may have" },
    { member: "begin", label: "Begin", kind: "datetime-local", hint: "empty: at once" },
    { member: "end", label: "End", kind: "datetime-local", hint: "empty: no end" },
    {
        member: "zone",
        label: "Time zone",
        kind: "zone",
        required: true,
        hint: "of the times here; another zone alone moves no time",
    },
    {
        member: "tags",
        label: "Tags",
        kind: "tags",
        hint: "by which it is found, as noon,winter",
    },
    {
        member: "valid_days",
        label: "Valid for (days)",
        kind: "number",
        group: "validity",
        hint: "from the moment a user gets it; or the two times",
    },
    { member: "valid_from", label: "Valid from", kind: "datetime-local", group: "validity" },
    { member: "valid_to", label: "Valid to", kind: "datetime-local", group: "validity" },
    { member: "amount_off", label: "Amount off", kind: "money", group: "discount", hint: "5.00" },
    {
        member: "percent_off",
        label: "Percent off",
        kind: "decimal",
        group: "discount",
        hint: "12.5; instead of an amount",
    },
    {
        member: "cap",
        label: "Maximum discount",
        kind: "money",
        group: "discount",
        hint: "for a percentage; empty: none",
    },
    {
        member: "threshold",
        label: "Minimum purchase",
        kind: "money",
        group: "discount",
        hint: "of an order that may use it; empty: any",
    },
    { member: "currency", label: "Currency", kind: "text", group: "discount", hint: "EUR" },
    { member: "budget", label: "Budget", kind: "budget", hint: "from the list; empty: none" },
    {
        member: "metadata",
        label: "Data for the shop (JSON)",
        kind: "json",
        wide: true,
        hint: "an object that the shop gets with the campaign, as {\"color\":\"red\"}",
    },
    { member: "void_returns", label: "Return voided coupons to stock", kind: "switch" },
    { member: "events", label: "Send events of this campaign", kind: "switch" },
    {
        member: "tell_before",
        label: "Send events before the end",
        kind: "duration",
        hint: "how long before a coupon ends, as 3d or 12h; empty: not at all",
    },
    { member: "hidden", label: "Leave it out of offers", kind: "switch" },
];
const REMOVES = { validity: "valid_days", discount: "amount_off" };

// Formats a time for an input: as clocks of the zone show it, to the second.
const local_text = (text, name) => (text ? zoned(text, name).slice(0, 19).replace(" ", "T") : "");

function text_of(field, shown, is_copy) {
    const found =
        field.member === "budget"
            ? shown?.budget.name
            : (shown?.[field.member] ??
              shown?.discount?.[field.member] ??
              (field.member === "total" ? shown?.postgresql.total : null));
    // A copy has its own name, and no window that would have passed.
    const is_time = ["begin", "end"].includes(field.member);
    const value = is_copy && is_time && new Date(found) < Date.now() ? null : found;
    if (is_copy && shown && field.member === "name") return `Copy of ${value}`;
    if (field.kind === "switch") return value ?? (field.member === "void_returns" ? true : false);
    if (field.kind === "datetime-local") return local_text(value, shown?.zone);
    if (field.kind === "zone") return value ?? zone;
    if (field.kind === "tags") return (value ?? []).join(",");
    if (field.kind === "json") return value == null ? "" : JSON.stringify(value);
    if (field.kind === "money") return amount_text(value, shown?.discount.currency);
    if (field.kind === "duration") return value == null ? "" : duration_text(value);
    return value == null ? "" : String(value);
}

// Suggests the time zones that the browser knows.
function zones_list(input) {
    const names = Intl.supportedValuesOf?.("timeZone") ?? [];
    const list = h("datalist", { id: "zones" });
    list.append(...["UTC", ...names].map((value) => h("option", { value })));
    input.setAttribute("list", "zones");
    return list;
}

// Suggests the budgets that exist. A key of some campaigns may not list them: its user types a
// name.
function budgets_list(input) {
    const list = h("datalist", { id: "budgets" });
    input.setAttribute("list", "budgets");
    get("/budgets").then(
        ({ budgets }) => {
            for (const { name, currency } of budgets)
                list.append(h("option", { value: name }, currency));
        },
        (problem) => {
            if (!(problem instanceof Problem)) throw problem;
        },
    );
    return list;
}

function input_make(field, value) {
    if (field.kind === "switch") {
        const input = h("input", { type: "checkbox", name: field.member, checked: value });
        return { input, element: h("label", { class: "check" }, input, field.label) };
    }
    const number = { number: "numeric", decimal: "decimal", money: "decimal" }[field.kind];
    const input =
        field.kind === "json"
            ? h("textarea", { name: field.member, rows: "2", spellcheck: "false" })
            : h("input", {
                  type: field.kind === "datetime-local" ? field.kind : "text",
                  required: field.required,
                  inputmode: number,
                  name: field.member,
                  step: field.kind === "datetime-local" ? "1" : null,
                  autocomplete: "off",
              });
    input.value = value;
    const hint = field.hint ? h("span", { class: "hint" }, field.hint) : null;
    const list = { budget: budgets_list, zone: zones_list }[field.kind]?.(input);
    return { input, element: h("label", {}, h("span", {}, field.label), input, list, hint) };
}

// Converts a text to the value for the API. An amount is of `currency`; `offset` follows times.
function value_of(field, text, currency, offset) {
    if (field.kind === "switch") return text;
    const trimmed = text.trim();
    if (trimmed === "") return null;
    if (field.kind === "datetime-local") return trimmed + offset;
    if (field.kind === "tags") return trimmed.split(",").map((tag) => tag.trim());
    if (field.kind === "money") {
        if (currency === "") throw new Problem(400, `${field.label} needs a currency.`);
        return amount_read(field.label, trimmed, currency, 1);
    }
    if (field.kind === "number" || field.kind === "decimal")
        return number_read(field.label, trimmed, field.kind === "decimal");
    if (field.kind !== "json") return trimmed;
    try {
        return JSON.parse(trimmed);
    } catch {
        throw new Problem(400, `${field.label} is not a JSON object.`);
    }
}

export class Terms {
    // `shown` is the campaign as the API returns it; null: there is none. `is_new`: a new campaign,
    // with the terms of `shown`.
    constructor(shown, is_new = false) {
        this.is_new = is_new;
        this.fields = FIELDS.filter((field) => this.is_new || !field.create).map((field) => {
            const text = !shown && field.member === "limit" ? "1" : text_of(field, shown, is_new);
            const { input, element } = input_make(field, text);
            // An input may write a time in another way.
            const was = field.kind === "switch" ? text : input.value;
            return { ...field, was, input, element };
        });
        const is_short = (field) => !field.wide && field.kind !== "switch";
        const part = (group, title) => [
            h("h3", {}, title),
            h("div", { class: "fields" }, this.of(group, (field) => !field.wide)),
        ];
        this.elements = [
            ...this.of(undefined, (field) => field.wide && field.kind === "text"),
            h("div", { class: "fields" }, this.of(undefined, is_short)),
            h(
                "details",
                {},
                h("summary", {}, "Validity, discount, metadata"),
                h(
                    "div",
                    { class: "stack" },
                    ...part("validity", "Validity"),
                    ...part("discount", "Discount"),
                    ...this.of(undefined, (field) => field.kind === "json"),
                ),
            ),
            ...this.of(undefined, (field) => field.kind === "switch"),
        ];
    }

    of(group, which) {
        return this.fields
            .filter((field) => field.group === group && which(field))
            .map((field) => field.element);
    }

    now(field) {
        return field.kind === "switch" ? field.input.checked : field.input.value;
    }

    changed() {
        return this.fields.filter((field) => this.now(field) !== field.was);
    }

    text(field, value) {
        if (value === "" || value == null) return "none";
        if (field.kind === "switch") return value ? "yes" : "no";
        if (field.kind === "number" && /^\d{1,15}$/.test(value)) return count(Number(value));
        return field.kind === "datetime-local" ? value.replace("T", " ") : value;
    }

    changes() {
        const name = this.now(this.fields[0]) || "unnamed";
        for (const field of this.fields)
            if (field.required && this.now(field).trim() === "")
                throw new Problem(400, `${field.label} is empty.`);
        this.body(); // throws what is wrong
        if (this.is_new) return [`Creates a draft: ${name}.`];
        return this.changed().map((field) => {
            const [was, is] = [field.was, this.now(field)].map((value) => this.text(field, value));
            return `${field.label}: ${was} → ${is}`;
        });
    }

    // The body of the request.
    body() {
        const changed = this.changed();
        const groups = new Set(changed.map((field) => field.group).filter(Boolean));
        const body = {};
        const of = (member) => this.fields.find((field) => field.member === member);
        const currency = this.now(of("currency")).trim();
        // The times of a zone that the browser does not know are shown in UTC.
        const is_utc = !zone_is_known(of("zone").was) && !changed.includes(of("zone"));
        for (const field of this.fields) {
            const value = value_of(field, this.now(field), currency, is_utc ? "Z" : "");
            if (this.is_new || groups.has(field.group)) {
                if (value != null) body[field.member] = value;
            } else if (changed.includes(field)) {
                body[field.member] = value;
            }
        }
        for (const group of this.is_new ? [] : groups) {
            const members = this.fields.filter((field) => field.group === group);
            if (members.every((field) => !(field.member in body))) body[REMOVES[group]] = null;
        }
        return body;
    }
}
