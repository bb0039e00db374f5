// The commands by which operators change something: found by who, what, when and result, in pages.
import { get, Problem } from "./api.js";
import { h, say, show, table, time } from "./dom.js";
import { filter_form, page_links, span_of } from "./filter.js";

const PAGE = 100;
const PATH = "#/history";

const FIELDS = [
    { name: "who", label: "By", kind: "search" },
    { name: "what", label: "What", kind: "search" },
    { name: "from", label: "From", kind: "date" },
    { name: "to", label: "To", kind: "date" },
    {
        name: "result",
        label: "Result",
        kind: "select",
        options: [
            ["", "any"],
            ["done", "done"],
            ["failed", "failed"],
        ],
    },
];

const HEADS = [
    ["When", "nowrap"],
    ["By", ""],
    ["What", "broad"],
    ["Result", "broad"],
];

// What an exit status says, where the history has no sentence: EXIT() in ctl/args.h.
const STATUSES = {
    1: "It failed, or a check did.",
    2: "The request was wrong. Nothing was changed.",
    4: "Its key was used before, for another request. Nothing was changed.",
    5: "Nothing failed, but coupons are being issued without progress.",
    6: "It was refused. Nothing was changed.",
    7: "It was stopped before its end.",
    8: "The campaign had been changed meanwhile. Nothing was done.",
    9: "What it names does not exist.",
    10: "A part of the service was away. Nothing was changed.",
    11: "An operator has to recover first. Nothing was changed.",
    12: "Whether it was done is not known.",
};

function result({ status, why }) {
    if (status === 0) return h("span", { class: "badge good" }, "done");
    if (status == null) return h("span", { class: "badge warn" }, "not finished");
    if (status === 3)
        return [
            h("span", { class: "badge good" }, "done"),
            h("div", { class: "hint" }, why ?? "Redis gets the change later."),
        ];
    return [
        h("span", { class: "badge bad" }, "failed"),
        h("div", { class: "hint" }, why ?? STATUSES[status] ?? `Its exit status is ${status}.`),
    ];
}

const row = (one) => [
    time(one.at),
    h("span", { class: "mono nowrap" }, one.by),
    h("span", { class: "mono" }, `${one.command}${one.words}`),
    result(one),
];

export function history_page(main, { query, still }) {
    // The last entry of each page before this one.
    const before = query.get("after")?.split(",") ?? [];
    const error = h("p", { class: "error", role: "alert" });
    const list = h("section", { class: "card" });
    const pages = h("div");
    main.append(
        h("h1", {}, "History"),
        h(
            "p",
            { class: "muted" },
            "Each command that was meant to change something, with the id of the operator's key. " +
                "What orders do with a coupon is on the page of the coupon.",
        ),
        filter_form(PATH, query, FIELDS),
        error,
        list,
        pages,
    );
    (async () => {
        const wanted = new URLSearchParams({ count: PAGE + 1, ...span_of(query) });
        for (const name of ["who", "what", "result"])
            if (query.get(name)) wanted.set(name, query.get(name));
        if (before.length) wanted.set("after", before.at(-1));
        const { history } = await get(`/history?${wanted}`);
        if (!still()) return;
        const shown = history.slice(0, PAGE);
        const caption = "Commands of operators, latest first";
        show(list, table(caption, HEADS, shown.map(row), "No command matches."));
        const next = history.length > PAGE ? [...before, shown.at(-1).id].join() : null;
        const previous = before.length ? before.slice(0, -1).join() : null;
        show(pages, page_links("Pages of the history", PATH, query, "after", previous, next));
    })().catch((problem) => {
        if (!(problem instanceof Problem)) throw problem;
        say(error, problem.message);
    });
    return () => {};
}
