// The campaigns: found by name, state and time, in an order, in pages; and a new one.
import { change, get, live, Problem } from "./api.js";
import { action, ask, warned } from "./dialog.js";
import { timeline_figure } from "./chart.js";
import { h, plural, say, show } from "./dom.js";
import { filter_form, page_links, span_of } from "./filter.js";
import { campaign_table } from "./now.js";
import { Terms } from "./terms.js";

const PAGE = 50;
const PATH = "#/campaigns";

// What is chosen, its words, and the parameters of the API.
const ORDERS = [
    ["newest", "newest first", { sort: "id", descending: true }],
    ["oldest", "oldest first", { sort: "id" }],
    ["name", "name", { sort: "name" }],
    ["begin", "begin, earliest first", { sort: "begin" }],
    ["begin_last", "begin, latest first", { sort: "begin", descending: true }],
    ["end", "end, earliest first", { sort: "end" }],
    ["issued", "most issued", { sort: "issued", descending: true }],
    ["total", "largest", { sort: "total", descending: true }],
];
const STATES = [
    ["", "any"],
    ["draft", "draft"],
    ["scheduled", "scheduled"],
    ["issuing", "active"],
    ["sold_out", "sold out"],
    ["paused", "paused"],
    ["ended", "ended"],
];
const FIELDS = [
    { name: "name", label: "Name or id", kind: "search" },
    { name: "tag", label: "Tag" },
    { name: "state", label: "State", kind: "select", options: STATES },
    { name: "from", label: "Open on or after", kind: "date" },
    { name: "to", label: "Open on or before", kind: "date" },
    { name: "order", label: "Order", kind: "select", options: ORDERS },
];

// Asks for the terms of a new campaign, which may be those of another one, and opens its page.
export async function campaign_new(of = null) {
    const terms = new Terms(of, true);
    let coupon;
    const said = await ask({
        title: of ? `Copy of ${of.name}` : "New campaign",
        word: "Create draft",
        fields: terms.elements,
        changes: () => [
            ...terms.changes(),
            ...(of ? ["It has neither coupons, codes nor webhooks of the other one."] : []),
        ],
        act: async () => {
            const made = await change("POST", "/campaigns", terms.body());
            coupon = made.coupon;
            return warned("Draft created.", made);
        },
    });
    if (said) location.hash = `#/campaigns/${coupon}`;
}

// The campaigns of the page that have a begin or an end, as a time line.
function schedule_part(campaigns) {
    const timed = campaigns.filter(({ begin, end }) => begin || end);
    if (timed.length === 0) return null;
    const ms = (text) => (text ? Date.parse(text) : null);
    const rows = timed.map(({ name, begin, end, state }) => ({
        name,
        from: ms(begin),
        to: ms(end),
        kind: state === "ended" || state === "draft" ? "fourth" : "",
    }));
    const about =
        `The schedule of ${plural(rows.length, "campaign")}: ` +
        "the table has the begin and the end of each.";
    return h(
        "details",
        { class: "card" },
        h("summary", {}, h("h2", {}, "Schedule")),
        timeline_figure(rows, about),
        h("figcaption", {}, h("span", { class: "key now" }, "now")),
    );
}

// The path of the API for what the address asks for: one row more than a page has, if there is one.
function path_of(query, page) {
    const wanted = new URLSearchParams({ count: PAGE + 1, skip: page * PAGE, ...span_of(query) });
    for (const name of ["name", "tag", "state"])
        if (query.get(name)) wanted.set(name, query.get(name));
    const order = ORDERS.find(([name]) => name === query.get("order")) ?? ORDERS[0];
    for (const [name, value] of Object.entries(order[2])) wanted.set(name, value);
    return `/campaigns?${wanted}`;
}

export function campaigns_page(main, { query, still }) {
    const page = Math.max(1, Number.parseInt(query.get("page"), 10) || 1) - 1;
    const error = h("p", { class: "error", role: "alert" });
    const rows = campaign_table(page ? `Campaigns, page ${page + 1}` : "Campaigns");
    const list = h("section", { class: "card" }, rows.element);
    const pages = h("div");
    const schedule = h("div");
    let stop = () => {};
    main.append(
        h(
            "div",
            { class: "bar" },
            h("h1", {}, "Campaigns"),
            action("New campaign…", () => campaign_new(), "first"),
        ),
        filter_form(PATH, query, FIELDS),
        error,
        list,
        pages,
        schedule,
    );
    (async () => {
        const { campaigns } = await get(path_of(query, page));
        if (!still()) return;
        const shown = new Map(campaigns.slice(0, PAGE).map((one) => [one.coupon, one]));
        if (shown.size === 0) show(list, h("p", { class: "muted" }, "No campaign matches."));
        rows.show([...shown]);
        show(schedule, schedule_part([...shown.values()]));
        const before = page === 0 ? null : page === 1 ? "" : String(page);
        const next = campaigns.length > PAGE ? String(page + 2) : null;
        show(pages, page_links("Pages of campaigns", PATH, query, "page", before, next));
        stop = live.take((sample) => {
            for (const one of sample.campaigns ?? [])
                if (shown.has(one.coupon)) shown.set(one.coupon, one);
            rows.show([...shown]);
        }, shown.keys());
    })().catch((problem) => {
        if (!(problem instanceof Problem)) throw problem;
        say(error, problem.message);
    });
    return () => stop();
}
