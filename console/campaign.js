// One campaign: what it is, how its sale goes, what happened to it, and what can be done.
import { change, get, live, may_change, Problem } from "./api.js";
import { chart, timeline_figure } from "./chart.js";
import { campaign_new } from "./campaigns.js";
import { codes_cards } from "./codes.js";
import { csv_line, csv_save } from "./csv.js";
import { action, ask, busy, focus_keep, operator_action, warned } from "./dialog.js";
import { distribute_ask } from "./distribute.js";
import { badge, card, count, duration_text, h, instant, level, money, note_make } from "./dom.js";
import { number_read, plural, say, show, table, tall, terms, time, utc, zoned } from "./dom.js";
import { state_of, stock_of, Tiles, troubles_of } from "./now.js";
import { Terms } from "./terms.js";
import { hook_cards, webhooks_cards } from "./webhooks.js";

const PARTS = ["schedule", "terms", "refused", "checks", "jobs", "recent", "history"];
const OTHERS = ["codes", "webhooks", "deliveries"];
const RECENT = 100;
const SAVED_MOST = 10000; // coupons in a file: an answer of the API has at most 4 MiB
const SAVED = [
    ...["user", "receive", "slot", "received_at", "valid_from", "valid_to"],
    ...["key", "code", "use", "use_order", "use_at", "use_until", "amount_off", "currency"],
];
const JOB_MS = 500;
const RELOAD_MS = 60000; // for what the stream does not send
const SPREAD_MS = 1000;

// ---- what can be done

// The buttons by the status in PostgreSQL; `does` says what a button does.
const STEPS = {
    publish: {
        word: "Publish",
        from: ["draft"],
        to: "published",
        first: true,
        does: "Users can receive coupons from the begin on, or at once if there is no begin.",
        done: "Published.",
    },
    pause: {
        word: "Pause",
        from: ["published"],
        to: "paused",
        does: "Requests are refused as paused. What was accepted is still issued.",
        done: "Paused.",
    },
    resume: {
        word: "Resume",
        from: ["paused"],
        to: "published",
        first: true,
        does: "Users can receive coupons again.",
        done: "Resumed.",
    },
    close: {
        word: "Close",
        from: ["published", "paused", "draft"],
        to: "closed",
        grave: true,
        does: "The campaign ends for good. What was accepted is still issued.",
        done: "Closed.",
    },
};

// While its budget pauses it.
const BY_BUDGET = {
    pause: {
        ...STEPS.pause,
        does: "It stays paused, even when its budget has room again.",
    },
    resume: {
        ...STEPS.resume,
        does: "Its budget pauses it again while the budget has no room.",
    },
};

// What the history calls the terms.
const TERMS = {
    name: "Name",
    total_num: "Total coupons",
    user_limit: "Limit per user",
    begin_at: "Begin",
    end_at: "End",
    valid_days: "Valid for (days)",
    valid_from: "Valid from",
    valid_to: "Valid to",
    amount_off: "Amount off",
    percent_off: "Percent off",
    cap: "Maximum discount",
    threshold: "Minimum purchase",
    currency: "Currency",
    budget: "Budget",
    metadata: "Data for the shop",
    void_returns: "Return voided coupons to stock",
    events_on: "Send events",
    zone: "Time zone",
    tags: "Tags",
    tell_before: "Send events before the end",
    hidden: "Leave it out of offers",
};

const ALL_CAMPAIGNS = () => h("a", { href: "#/campaigns" }, "All campaigns");
const receive_place = (receive) => `#/find?receive=${encodeURIComponent(receive)}`;

class Campaign {
    constructor(main, coupon, still) {
        this.main = main;
        this.coupon = coupon;
        this.path = `/campaigns/${encodeURIComponent(coupon)}`;
        this.still = still;
        this.points = []; // of the curve
        this.stops = [];
        this.build();
    }

    build() {
        this.title = h("h1", {}, `Campaign ${this.coupon}`);
        this.state = h("span");
        this.buttons = h("div", { class: "bar", role: "group", "aria-label": "Actions" });
        this.said = note_make();
        this.error = h("p", { class: "error", role: "alert" });
        this.trouble = h("ul", { class: "troubles", "aria-live": "polite" });
        this.tiles = new Tiles({
            stock: "Stock left",
            issued: "Issued",
            in_flight: "Being issued",
            rejected: "Rejected",
        });
        this.stock = level("Stock left");
        this.left = h("div", { class: "hint" });
        this.figure = h("figure", {}, h("p", { class: "muted" }, "Loading…"));
        this.caption = h("figcaption");
        this.parts = {};
        for (const name of [...PARTS, ...OTHERS]) this.parts[name] = h("div", { class: "stack" });
        this.engine = h("div");
        this.engine_buttons = h("div", { class: "bar", role: "group", "aria-label": "Operators" });
        const engine = h(
            "details",
            { class: "card" },
            h("summary", {}, h("h2", {}, "For operators")),
            h("div", { class: "stack" }, this.engine, this.engine_buttons, this.parts.jobs),
        );
        const column = (...children) => h("div", { class: "stack" }, ...children);
        this.main.append(
            h("div", { class: "bar" }, this.title, this.state),
            this.buttons,
            this.said,
            this.error,
            this.trouble,
            this.tiles.element,
            h("div", {}, this.stock, this.left),
            h(
                "div",
                { class: "columns wide" },
                column(
                    card("The sale", this.figure, this.caption),
                    this.parts.history,
                    ...OTHERS.map((name) => this.parts[name]),
                ),
                column(
                    this.parts.checks,
                    this.parts.schedule,
                    this.parts.terms,
                    this.parts.refused,
                    this.parts.recent,
                    engine,
                ),
            ),
        );
    }

    async begin() {
        await this.load();
        if (!this.still()) return;
        this.stops.push(live.take((sample) => this.take(sample), [this.coupon]));
        const timer = setInterval(() => !document.hidden && this.reload(), RELOAD_MS);
        this.stops.push(
            () => clearInterval(timer),
            () => clearTimeout(this.soon),
        );
    }

    // Loads all that the stream does not send once a second.
    async load() {
        this.shown = await get(this.path);
        if (!this.still()) return;
        this.show();
        await Promise.all([
            this.part("history", () => this.history_load()),
            this.part("codes", () => codes_cards(this.path, this.ask_of_part)),
            this.part("webhooks", () => this.webhooks_load()),
            this.part("recent", () => this.recent_load()),
            this.curve_load(),
        ]);
    }

    // Leaves an unchanged part untouched: it may have the focus.
    async part(name, work) {
        try {
            const elements = await work();
            const shown = [...this.parts[name].children];
            const same =
                shown.length === elements.length &&
                shown.every((one, i) => one.isEqualNode(elements[i]));
            if (this.still() && !same) this.parts[name].replaceChildren(...elements);
        } catch (problem) {
            if (!(problem instanceof Problem)) throw problem;
            this.parts[name].replaceChildren(h("p", { class: "error" }, problem.message));
        }
    }

    show() {
        const { shown } = this;
        document.title = `${shown.name} – couponmq`;
        say(this.title, shown.name);
        this.shown_state ??= shown.state;
        this.state_show(this.shown_state, shown.postgresql.version);
        this.buttons_show();
        this.tiles.show("rejected", count(shown.postgresql.rejected));
        this.engine.replaceChildren(this.engine_terms());
        const { total, issued } = shown.postgresql;
        this.figures_show(shown.redis.stock, total, issued, shown.in_flight);
        this.parts.schedule.replaceChildren(...this.schedule_card());
        this.parts.terms.replaceChildren(this.terms_card());
        this.parts.refused.replaceChildren(...this.refused_card());
    }

    state_show(state, version) {
        this.state.replaceChildren(
            badge(state),
            state === "paused" && this.shown.pause_reason ? " by its budget, " : "",
            h("span", { class: "muted" }, ` id ${this.coupon}, version ${version}`),
        );
    }

    figures_show(stock, total, issued, in_flight) {
        this.tiles.show("stock", stock == null ? "–" : count(stock));
        this.tiles.show("issued", count(issued));
        this.tiles.show("in_flight", count(in_flight));
        this.stock.value = stock == null ? 0 : stock / Math.max(1, total);
        say(this.left, `${stock == null ? "–" : count(stock)} of ${count(total)} left`);
    }

    // When users can ask for coupons, and when these are valid, if that is fixed. Without any time
    // there is no schedule.
    schedule_card() {
        const { begin, end, valid_from, valid_to } = this.shown;
        const ms = (text) => (text ? Date.parse(text) : null);
        const said = (from, to, none) =>
            `${from ? `from ${utc(from)}` : none}${to ? ` to ${utc(to)}` : ", without an end"}`;
        const rows = [];
        if (begin || end) rows.push(["Coupons can be received", begin, end, ""]);
        if (valid_from || valid_to)
            rows.push(["Coupons are valid", valid_from, valid_to, "second"]);
        if (rows.length === 0) return [];
        const about = rows.map(([name, from, to]) => `${name} ${said(from, to, "from now on")}`);
        const spans = rows.map(([name, from, to, kind]) => ({
            name,
            from: ms(from),
            to: ms(to),
            kind,
        }));
        return [
            card(
                "Schedule",
                timeline_figure(spans, `${about.join(". ")}.`),
                h("figcaption", {}, h("span", { class: "key now" }, "now")),
            ),
        ];
    }

    // ---- the terms

    // In the zone of the campaign; the tooltip shows UTC.
    time(text) {
        return h("time", { datetime: text, title: utc(text) }, zoned(text, this.shown.zone));
    }

    window_text(text, none) {
        return text ? [this.time(text), h("div", { class: "hint" }, utc(text))] : none;
    }

    discount_text({ amount_off, percent_off, cap, threshold, currency }) {
        if (amount_off == null && percent_off == null) return null;
        const parts = [percent_off == null ? money(amount_off, currency) : `${percent_off} %`];
        if (cap != null) parts.push(`at most ${money(cap, currency)}`);
        if (threshold != null) parts.push(`for purchases from ${money(threshold, currency)} on`);
        return parts.join(", ");
    }

    budget_text() {
        const { budget, discount } = this.shown;
        if (budget.name == null) return null;
        const [left, amount] = [budget.left, budget.amount].map((one) =>
            money(one, discount.currency),
        );
        return [h("a", { href: "#/budgets" }, budget.name), `: ${left} of ${amount} left`];
    }

    validity_text() {
        const { valid_days, valid_from, valid_to } = this.shown;
        if (valid_days != null) return `${plural(valid_days, "day")} from the receive`;
        if (valid_from) return [this.time(valid_from), " to ", this.time(valid_to)];
        return "from the receive, without an end";
    }

    redis_text() {
        const { error, loaded, verified } = this.shown.redis;
        if (error) return error;
        if (!loaded) return "not loaded";
        return verified ? "verified" : "not verified";
    }

    terms_card() {
        const { shown } = this;
        const metadata = JSON.stringify(shown.metadata);
        return card(
            "Terms",
            terms([
                ["Total coupons", count(shown.postgresql.total)],
                ["Limit per user", count(shown.limit)],
                ["Begin", this.window_text(shown.begin, "at once")],
                ["End", this.window_text(shown.end, "no end")],
                ["Time zone", this.shown.zone],
                ["Valid", this.validity_text()],
                ["Discount", this.discount_text(shown.discount ?? {})],
                ["Budget", this.budget_text()],
                ["Metadata", shown.metadata && h("span", { class: "mono" }, metadata)],
                ["Voided coupons", shown.void_returns ? "return to stock" : "stay taken"],
                ["Events", this.events_text()],
                ["Tags", shown.tags.join(", ") || null],
                ["Offers", shown.hidden ? "leave it out" : "have it"],
                ["Report", h("a", { href: `#/report?coupon=${this.coupon}` }, "by day")],
            ]),
        );
    }

    events_text() {
        const { events, tell_before } = this.shown;
        if (!events) return "are not sent";
        const before = tell_before ? `, also ${duration_text(tell_before)} before the end` : "";
        return `are sent${before}`;
    }

    // What only those need who run the installation.
    engine_terms() {
        const { redis, postgresql } = this.shown;
        return terms([
            ["In Redis", this.redis_text()],
            ["Generation", count(redis.generation ?? postgresql.generation)],
            ["Outbox", plural(redis.outbox ?? 0, "message")],
            ["Dead letters", count(redis.dead)],
        ]);
    }

    refused_card() {
        const found = Object.entries(this.shown.refused ?? {}).filter(([, n]) => n > 0);
        if (!this.shown.refused) return [];
        return [
            card(
                "Refusals",
                table(
                    "Requests that were refused, by reason",
                    [["Reason", ""], ["Requests", "number"]],
                    found.map(([reason, n]) => [reason.replaceAll("_", " "), count(n)]),
                    "None so far.",
                ),
            ),
        ];
    }

    // ---- the sale

    async curve_load() {
        const { curve } = await get(`${this.path}/curve`);
        this.points = curve.map((row) => [Date.parse(row.at), row.stock, row.issued]);
        // There is a row a second: before the first one nothing was issued.
        if (curve[0]?.num === 1)
            this.points.unshift([this.points[0][0] - 1000, curve[0].total, 0]);
        if (this.still()) this.curve_show();
    }

    curve_show() {
        if (this.points.length < 2) {
            this.figure.replaceChildren(h("p", { class: "muted" }, "Nothing has been issued yet."));
            this.caption.replaceChildren();
            return;
        }
        const first = this.points[0];
        const last = this.points.at(-1);
        const at = (ms) => utc(new Date(ms).toISOString());
        const about =
            `From ${at(first[0])} to ${at(last[0])} ` +
            `the stock went from ${count(first[1])} to ${count(last[1])}, ` +
            `the issued coupons from ${count(first[2])} to ${count(last[2])}`;
        const line = (place) => this.points.map((point) => [point[0], point[place]]);
        chart(
            this.figure,
            [
                { points: line(1), filled: true, holds: true, name: "stock left" },
                { points: line(2), kind: "second", holds: true, name: "issued" },
            ],
            first[0],
            last[0],
            about,
        );
        this.caption.replaceChildren(
            h("span", { class: "key" }, `stock left ${count(last[1])}`),
            h("span", { class: "key second" }, `issued ${count(last[2])}`),
        );
    }

    take(sample) {
        const one = sample.campaigns?.find(({ coupon }) => coupon === this.coupon);
        if (!one) return;
        const stock = stock_of(one);
        const last = this.points.at(-1);
        this.figures_show(stock, one.total, one.issued, one.in_flight);
        this.trouble_show(troubles_of(one));
        if (this.shown_state !== state_of(one)) {
            this.shown_state = state_of(one);
            this.state_show(state_of(one), one.version);
            this.reload_soon();
        }
        if (JSON.stringify(one.refused) !== JSON.stringify(this.shown.refused)) {
            this.shown.refused = one.refused;
            this.parts.refused.replaceChildren(...this.refused_card());
        }
        if (stock != null && (!last || stock !== last[1] || one.issued !== last[2])) {
            this.points.push([Date.parse(sample.at), stock, one.issued]);
            this.curve_show();
        }
        // Somebody else has changed it.
        if (one.version !== this.shown.postgresql.version || one.state !== this.shown.state)
            this.reload_soon();
    }

    // Spreads the requests of the consoles that show it: all get the sample at the same moment.
    reload_soon() {
        this.soon ??= setTimeout(() => {
            this.soon = null;
            this.reload();
        }, Math.random() * SPREAD_MS);
    }

    trouble_show(items) {
        const text = items.map((item) => item.textContent).join();
        if (text === this.trouble_text) return;
        this.trouble_text = text;
        this.trouble.replaceChildren(...items);
    }

    // One at a time; what changes meanwhile is loaded once more.
    reload() {
        this.changed = true;
        this.loading ??= this.load_again().finally(() => (this.loading = null));
        return this.loading;
    }

    async load_again() {
        while (this.changed && this.still()) {
            this.changed = false;
            try {
                await this.load();
            } catch (problem) {
                if (!(problem instanceof Problem)) throw problem;
                say(this.error, problem.message);
            }
        }
    }

    // ---- the other parts

    async history_load() {
        const { history } = await get(`${this.path}/history`);
        const value = (name, one, currency) => {
            if (one != null && currency && ["amount_off", "cap", "threshold"].includes(name))
                return money(one, currency);
            if (name === "tell_before" && one != null) return duration_text(one);
            return typeof one === "object" && one ? JSON.stringify(one) : String(one ?? "none");
        };
        // Before the change, and after it.
        const currencies = ({ currency, changes }) => changes?.currency ?? [currency, currency];
        return [
            card(
                "History",
                table(
                    "Changes, latest first",
                    [
                        ["When", "nowrap"],
                        ["By", ""],
                        ["What", ""],
                        ["State", ""],
                        ["Version", "number"],
                    ],
                    history.reverse().map((entry) => [
                        time(entry.at),
                        h("span", { class: "mono" }, entry.by),
                        [
                            entry.action,
                            ...Object.entries(entry.changes ?? {}).map(([name, [was, is]]) =>
                                h(
                                    "div",
                                    { class: "hint" },
                                    `${TERMS[name] ?? name}: ` +
                                        `${value(name, was, currencies(entry)[0])} → ` +
                                        value(name, is, currencies(entry)[1]),
                                ),
                            ),
                        ],
                        badge(entry.to),
                        entry.version,
                    ]),
                ),
            ),
        ];
    }

    save_button() {
        const button = h("button", { type: "button" }, "Save coupons as CSV…");
        button.addEventListener("click", () => busy(button, () => this.save_ask()));
        return h("div", { class: "bar" }, button);
    }

    // All coupons that users have, as a file; no more than an answer of the API can have.
    save_ask() {
        const { issued } = this.shown.postgresql;
        return this.ask({
            title: `Save the coupons of ${this.shown.name}?`,
            word: "Save",
            version: null,
            changes: () => {
                if (issued > SAVED_MOST)
                    throw new Problem(
                        400,
                        `The campaign has issued ${count(issued)} coupons, more than ` +
                            `${count(SAVED_MOST)}: use couponctl export ${this.coupon}.`,
                    );
                return ["A file with each coupon, its user, its validity, and its order."];
            },
            act: async () => {
                const { coupons } = await get(`${this.path}/coupons`);
                const lines = coupons.map((one) => csv_line(SAVED.map((name) => one[name])));
                csv_save(`coupons-${this.coupon}.csv`, [csv_line(SAVED), ...lines]);
                return `${plural(coupons.length, "coupon")} saved.`;
            },
        });
    }

    async recent_load() {
        const { recent } = await get(`${this.path}/recent?count=${RECENT}`);
        if (recent.length === 0) return [];
        return [
            card(
                "Latest requests",
                tall(
                    "List of the latest requests",
                    table(
                        `The latest ${plural(recent.length, "request")} with an outcome`,
                        [
                            ["When", "nowrap"],
                            ["User", "mono"],
                            ["Outcome", ""],
                        ],
                        recent.map((one) => [
                            instant(one.received_at),
                            h("a", { href: receive_place(one.receive) }, one.user),
                            [badge(one.state), one.reason ? ` ${one.reason}` : ""],
                        ]),
                    ),
                ),
                this.save_button(),
            ),
        ];
    }

    webhooks_load() {
        const details = (hook) =>
            this.part("deliveries", () => hook_cards(hook, this.ask_of_part));
        return webhooks_cards(this.shown, this.ask_of_part, details);
    }

    // ---- actions

    buttons_show() {
        const status = this.shown.postgresql.status;
        const by_budget = this.shown.pause_reason != null;
        if (this.shown_buttons === status + by_budget) return; // one of them may have the focus
        this.shown_buttons = status + by_budget;
        const steps = Object.entries({ ...STEPS, ...(by_budget ? BY_BUDGET : {}) })
            .filter(([name, { from }]) => from.includes(status) || (by_budget && name === "pause"))
            .map(([name, step]) =>
                action(`${step.word}…`, () => this.step(name, step), step.first ? "first" : ""),
            );
        const is_over = status === "closed";
        const open = h("button", { type: "button" }, "Check");
        open.addEventListener("click", () => busy(open, () => this.check()));
        const audit = h("button", { type: "button" }, "Audit");
        audit.addEventListener("click", () => busy(audit, () => this.job("audit")));
        this.buttons.replaceChildren(
            ...[
                ...steps,
                is_over ? null : action("Edit…", () => this.edit()),
                is_over ? null : action("Change total…", () => this.stock_set()),
                is_over ? null : open,
                is_over || status === "draft"
                    ? null
                    : action("Distribute…", () =>
                          distribute_ask(this.shown, this.path, this.ask_of_part),
                      ),
                action("Copy…", () => campaign_new(this.shown)),
                may_change() ? null : h("span", { class: "muted" }, "Your key is read-only."),
            ].filter(Boolean),
        );
        show(
            this.engine_buttons,
            audit,
            status === "draft" ? null : operator_action("Rebuild…", () => this.rebuild()),
        );
    }

    async ask(question) {
        say(this.said, "");
        const version = this.shown.postgresql.version;
        const said = await ask({ version, ...question });
        if (said) show(this.said, said);
        this.reload().then(() => focus_keep(this.said));
    }

    // Codes and webhooks have no versions.
    ask_of_part = (question) => this.ask({ version: null, ...question });

    step(name, { word, to, grave, does, done }) {
        const { status, version } = this.shown.postgresql;
        const was = this.shown.pause_reason ? `${status} by its budget` : status;
        return this.ask({
            title: `${word} ${this.shown.name}?`,
            word,
            grave,
            changes: () => [`Status: ${was} → ${to}`, does],
            act: async () => {
                const answer = await change("POST", `${this.path}/${name}`, {}, version);
                return warned(done, answer);
            },
        });
    }

    edit() {
        const { version } = this.shown.postgresql;
        const form = new Terms(this.shown);
        return this.ask({
            title: `Edit ${this.shown.name}`,
            word: "Save",
            fields: form.elements,
            changes: () => form.changes(),
            act: async () => {
                const answer = await change("PATCH", this.path, form.body(), version);
                return warned("Saved.", answer);
            },
        });
    }

    stock_set() {
        const { version, total } = this.shown.postgresql;
        const input = h("input", { name: "total", inputmode: "numeric", autocomplete: "off" });
        input.value = total;
        input.required = true;
        const wanted = () => Number(number_read("Total coupons", input.value));
        return this.ask({
            title: `Total coupons of ${this.shown.name}`,
            word: "Set total",
            fields: [h("label", {}, h("span", {}, "Total coupons"), input)],
            changes: () => {
                if (wanted() === total) return [];
                const stock = this.shown.redis.stock;
                if (stock != null && stock + wanted() - total < 0)
                    throw new Problem(
                        400,
                        `Total coupons: at least ${count(total - stock)}, ` +
                            "because so many are taken.",
                    );
                const list = [`Total coupons: ${count(total)} → ${count(wanted())}`];
                if (stock != null)
                    list.push(`Stock left: ${count(stock)} → ${count(stock + wanted() - total)}`);
                return list;
            },
            act: async () => {
                const body = { total: wanted() };
                const answer = await change("PUT", `${this.path}/stock`, body, version);
                return warned("The total is set.", answer);
            },
        });
    }

    rebuild() {
        return this.ask({
            title: `Rebuild ${this.shown.name}?`,
            word: "Rebuild",
            version: null,
            changes: () => [
                "The keeper compares Redis with PostgreSQL, slot by slot, and corrects what " +
                    "differs.",
                "If more than the stock differs, requests are answered unavailable meanwhile: " +
                    "some seconds for a million coupons. What was accepted stays accepted.",
            ],
            act: async () => {
                await this.job("rebuild");
                return "The rebuild has started.";
            },
        });
    }

    async check() {
        const title = "Ready to open?";
        this.parts.checks.replaceChildren(card(title, h("p", { class: "muted" }, "Checking…")));
        await this.part("checks", async () => {
            const { ready, checks } = await get(`${this.path}/check`);
            const mark = ({ passed, reason }) => {
                if (passed && reason) return h("span", { class: "badge warn" }, "warning");
                return passed
                    ? h("span", { class: "badge good" }, "passed")
                    : h("span", { class: "badge bad" }, "no");
            };
            const verdict = ready ? "Yes, it is ready." : "No, it is not ready.";
            return [
                card(
                    title,
                    h("p", { role: "status" }, h("strong", {}, verdict)),
                    table(
                        "Checks",
                        [["Check", ""], ["Result", ""], ["Reason", "broad"]],
                        checks.map((one) => [one.check, mark(one), one.reason ?? ""]),
                    ),
                ),
            ];
        });
    }

    // Runs an audit or a rebuild, which may take long.
    async job(command) {
        show(this.parts.jobs);
        await this.part("jobs", async () => {
            const job = await change("POST", `${this.path}/${command}`, {});
            const word = h("p", { role: "status" });
            const end = operator_action("Stop", async () => change("DELETE", `/jobs/${job.job}`));
            const box = h("div", { class: "stack" });
            this.follow(job.job, word, end, box);
            const name = command === "audit" ? "Audit" : "Rebuild";
            return [h("h3", {}, name), word, box, ...(end ? [end] : [])];
        });
    }

    async follow(id, word, end, box) {
        let job;
        do {
            await new Promise((done) => setTimeout(done, JOB_MS));
            if (!this.still()) return;
            try {
                job = await get(`/jobs/${id}`);
            } catch (problem) {
                if (!(problem instanceof Problem)) throw problem;
                say(word, problem.message);
                if (problem.status === 404 || problem.status === 401) return;
                continue;
            }
            const progress = job.progress ? `: ${job.progress}` : "";
            say(word, { waiting: "Waiting", running: "Running" }[job.state] + progress);
        } while (!job || job.state === "waiting" || job.state === "running");
        end?.remove();
        job_show(job, word, box);
        this.reload();
    }

    end() {
        for (const stop of this.stops) stop();
    }
}

function job_show(job, word, box) {
    if (job.problem) {
        say(word, "Failed.");
        box.replaceChildren(h("p", { class: "error" }, job.problem.detail));
    } else if (job.state === "ended") {
        say(word, "Stopped.");
    } else if (job.command === "audit") {
        const { verdict, wrong } = job.result;
        say(word, `Verdict: ${verdict}.`);
        box.replaceChildren(
            table(
                "What is wrong",
                [["Promise", ""], ["Violation", ""]],
                wrong.map((one) => [one.promise, one.text]),
                "Nothing is wrong.",
            ),
        );
    } else {
        const said = job.result.rebuild.map((one) => one.result).filter(Boolean);
        say(word, `Done: ${said.join("; ")}.`);
    }
}

export function campaign_page(main, { part, still }) {
    const campaign = new Campaign(main, part, still);
    campaign.begin().catch((problem) => {
        if (!(problem instanceof Problem)) throw problem;
        const error = h("p", { class: "error", role: "alert" }, problem.message);
        if (problem.status === 404 || problem.status === 400)
            show(main, h("h1", {}, `Campaign ${part}`), error, h("p", {}, ALL_CAMPAIGNS()));
        else say(campaign.error, problem.message);
    });
    return () => campaign.end();
}
