// All campaigns, in pages, and a new one.
import { change, get, live, Problem } from "./api.js";
import { action, ask, warned } from "./dialog.js";
import { h, id_problem, pager, say } from "./dom.js";
import { campaign_table } from "./now.js";
import { Terms } from "./terms.js";

const PAGE = 50;

async function campaign_new() {
    const terms = new Terms(null);
    let coupon;
    const said = await ask({
        title: "New campaign",
        word: "Create draft",
        fields: terms.elements,
        changes: () => terms.changes(),
        act: async () => {
            const made = await change("POST", "/campaigns", terms.body());
            coupon = made.coupon;
            return warned("Draft created.", made);
        },
    });
    if (said) location.hash = `#/campaigns/${coupon}`;
}

function go_form() {
    const id = h("input", { id: "go", inputmode: "numeric", autocomplete: "off", size: "12" });
    const go = (event) => {
        event.preventDefault();
        id.setCustomValidity(id_problem(id.value.trim()));
        if (!id.reportValidity()) return;
        if (id.value.trim()) location.hash = `#/campaigns/${encodeURIComponent(id.value.trim())}`;
    };
    return h(
        "form",
        {
            class: "bar end",
            novalidate: true,
            onsubmit: go,
            oninput: () => id.setCustomValidity(""),
        },
        h("label", { for: "go" }, "Campaign id"),
        h("div", {}, id),
        h("button", {}, "Open"),
    );
}

export function campaigns_page(main, { query, still }) {
    const after = query.get("after");
    const error = h("p", { class: "error", role: "alert" });
    const rows = campaign_table(after ? `Campaigns after ${after}` : "Campaigns by id");
    const pages = h("div");
    let stop = () => {};
    main.append(
        h(
            "div",
            { class: "bar" },
            h("h1", {}, "Campaigns"),
            action("New campaign…", campaign_new, "first"),
            go_form(),
        ),
        error,
        h("section", { class: "card" }, rows.element),
        pages,
    );
    (async () => {
        const { campaigns } = await get(
            `/campaigns?count=${PAGE}${after ? `&after=${encodeURIComponent(after)}` : ""}`,
        );
        if (!still()) return;
        const shown = new Map(campaigns.map((one) => [one.coupon, one]));
        rows.show([...shown]);
        const next = campaigns.length === PAGE ? campaigns.at(-1).coupon : null;
        const words = ["First page", "Next page"];
        pages.replaceChildren(pager("Pages of campaigns", "#/campaigns", words, after, next));
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
