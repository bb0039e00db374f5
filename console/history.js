// The commands by which operators change something, in pages.
import { get, Problem } from "./api.js";
import { h, pager, say, show, table, time } from "./dom.js";

const PAGE = 100;

const HEADS = [
    ["When", "nowrap"],
    ["By", ""],
    ["What", "broad"],
    ["Result", ""],
];

function result(status) {
    if (status === 0) return h("span", { class: "badge good" }, "done");
    if (status == null) return h("span", { class: "badge warn" }, "not finished");
    return h("span", { class: "badge bad" }, `exit status ${status}`);
}

const row = (one) => [
    time(one.at),
    h("span", { class: "mono nowrap" }, one.by),
    h("span", { class: "mono" }, `${one.command}${one.words}`),
    result(one.status),
];

export function history_page(main, { query, still }) {
    const after = query.get("after");
    const error = h("p", { class: "error", role: "alert" });
    const list = h("section", { class: "card" });
    const pages = h("div");
    main.append(
        h("h1", {}, "History"),
        h(
            "p",
            { class: "muted" },
            "Each command that was meant to change something, with the id of the operator's key. " +
                "What orders do with a receive is on the page of the receive.",
        ),
        error,
        list,
        pages,
    );
    (async () => {
        const page = after ? `&after=${encodeURIComponent(after)}` : "";
        const { history } = await get(`/history?count=${PAGE}${page}`);
        if (!still()) return;
        const caption = "Commands of operators, latest first";
        show(list, table(caption, HEADS, history.map(row), "There are no commands."));
        const next = history.length === PAGE ? history.at(-1).id : null;
        show(pages, pager("Pages of the history", "#/history", ["Latest", "Earlier"], after, next));
    })().catch((problem) => {
        if (!(problem instanceof Problem)) throw problem;
        say(error, problem.message);
    });
    return () => {};
}
