// The live overview: troubles first, then figures and campaigns. What the engine does is on the
// page of operators (operations.js).
import { live } from "./api.js";
import { chart } from "./chart.js";
import { badge, card, count, h, level, milliseconds, plural } from "./dom.js";
import { rate, Rows, say, time } from "./dom.js";
import { manual_link } from "./manual.js";

const WINDOW_MS = 120000; // of the chart
const LATENCY_MS = 10000; // of the percentiles

const DEAD = "coupon.receive.dead";
// Answers that are failures of the service. All others but ok are refusals by the terms.
const FAILED = ["busy", "unavailable", "unknown", "rejected", "rate_limited"];

const sum = (list) => list.reduce((all, one) => all + one, 0);

// ---- what a sample means

export const of_kind = (sample, kind) =>
    sample.processes.filter((one) => one.metrics && one.kind === kind).map((one) => one.metrics);

export function figures(sample) {
    const gateways = of_kind(sample, "gateway");
    const keeper = of_kind(sample, "worker").find((one) => one.keeper_elected);
    const queues = Object.values(keeper?.keeper_queue_messages ?? {});
    const total = (name) => (gateways.length ? sum(gateways.map((one) => one[name] ?? 0)) : null);
    const merged = (name) => {
        const all = {};
        for (const one of gateways)
            for (const [label, value] of Object.entries(one[name] ?? {}))
                all[label] = (all[label] ?? 0) + value;
        return all;
    };
    return {
        ms: Date.parse(sample.at),
        answers: merged("answers_total"),
        buckets: merged("issue_seconds_bucket"),
        in_flight: total("requests_inflight"),
        unsettled: keeper?.keeper_receives_in_flight ?? null,
        queue: keeper ? sum(queues) - dead(keeper) : null,
        dead: keeper ? dead(keeper) : null,
        rows: { issued: sum(of_kind(sample, "worker").map((one) => one.worker_issued_total)) },
        outbox: keeper?.keeper_outbox_messages ?? null,
    };
}

const dead = (keeper) => keeper.keeper_queue_messages?.[DEAD] ?? 0;

// By how much each label rose in a second. A gateway that started again begins at 0.
function rates(before, after, name) {
    const seconds = (after.ms - before.ms) / 1000;
    const all = {};
    for (const [label, value] of Object.entries(after[name]))
        all[label] = Math.max(0, value - (before[name][label] ?? 0)) / seconds;
    return all;
}

// The time within which a share of the answers was given, interpolated within its bucket.
function percentile(buckets, share) {
    const bounds = Object.keys(buckets).sort((a, b) => parseFloat(a) - parseFloat(b));
    const inf = bounds.find((bound) => bound === "+Inf");
    const finite = bounds.filter((bound) => bound !== "+Inf");
    const all = buckets[inf] ?? 0;
    if (!(all > 0)) return null;
    let lower = 0;
    let below = 0;
    for (const bound of finite) {
        const upto = buckets[bound];
        if (upto >= share * all)
            return lower + (bound - lower) * ((share * all - below) / (upto - below || 1));
        lower = Number(bound);
        below = upto;
    }
    return lower;
}

// ---- troubles

const GRAVE = "bad";
const HELD = "warn";

function of_stores(sample, add) {
    const names = { postgresql: "PostgreSQL", redis: "Redis" };
    for (const [name, store] of Object.entries(sample.stores))
        if (store.error) {
            const what = `${names[name]} does not answer`;
            add(GRAVE, what, store.error, `${names[name]}Unreachable`);
        }
}

function of_process(one, add) {
    const what = `The ${one.kind ?? "process"} at ${one.address}`;
    const kind = one.kind === "worker" ? "Worker" : "Gateway";
    if (one.error) add(GRAVE, `${what} does not answer`, one.error, `${kind}Down`);
    if (one.readyz && (!one.readyz.ready || one.readyz.degraded?.length)) {
        const reasons = Object.entries(one.readyz)
            .filter(([, value]) => typeof value === "string" && value !== "ok")
            .map(([part, reason]) => `${part}: ${reason}`);
        const [kind, word] = one.readyz.ready
            ? [HELD, "issues, but is degraded"]
            : [GRAVE, "is not ready"];
        add(kind, `${what} ${word}`, reasons.join("; "), "GatewayNotReady");
    }
    if (one.metrics?.amqp_blocked)
        add(GRAVE, "RabbitMQ takes no messages", "an alarm is set", "RabbitMQBlocked");
}

function of_keeper(sample, add) {
    const workers = of_kind(sample, "worker");
    const keeper = workers.find((one) => one.keeper_elected);
    const any = (name) => workers.some((one) => one[name] > 0);
    const idle = "workers do nothing";
    const recover = "run couponctl recover";
    const back = `nothing is issued; ${recover}`;
    if (any("keeper_postgresql_behind"))
        add(GRAVE, "PostgreSQL is behind Redis", back, "PostgreSQLPutBack");
    if (any("keeper_installation_differs"))
        add(GRAVE, "Redis belongs to another installation", idle, "InstallationDiffers");
    if (any("worker_postgresql_old"))
        add(GRAVE, "PostgreSQL is an old primary", idle, "PostgreSQLOld");
    if (any("keeper_keys_ahead"))
        add(GRAVE, "PostgreSQL lacks changes of API keys", recover, "PostgreSQLPutBack");
    const rests = "nothing is loaded, verified, rebuilt or closed";
    if (workers.length > 0 && !keeper) add(GRAVE, "There is no keeper", rests, "NoKeeper");
    if (!keeper) return;
    const lost = keeper.keeper_stock_lost;
    if (lost)
        add(GRAVE, `Stock was lost: ${plural(lost, "coupon")}`, "run an audit", "ReceivesLost");
    if (keeper.keeper_coupons_unequal)
        add(
            GRAVE,
            `The numbers of ${plural(keeper.keeper_coupons_unequal, "campaign")} do not add up`,
            "audit them: Redis and PostgreSQL differ",
            "NumbersDiffer",
        );
    const held = keeper.keeper_coupons?.unavailable ?? 0;
    if (held)
        add(
            HELD,
            `${plural(held, "campaign is", "campaigns are")} not available`,
            "not loaded yet, not verified, or outdated in Redis",
            "CouponUnavailable",
        );
    const off = sum(workers.map((one) => one.worker_put_off_coupons ?? 0));
    const slow = `Workers have put off ${plural(off, "campaign")}`;
    if (off) add(HELD, slow, "locked, or too slow", "ReceivesOverdue");
    const letters = dead(keeper);
    if (letters) add(HELD, plural(letters, "dead letter"), null, "DeadLetters", "/dead");
}

function of_campaign(campaign, add) {
    const rebuild = campaign.rebuild;
    if (!rebuild) return;
    const how = rebuild.rows
        ? `${count(rebuild.filled)} of ${count(rebuild.rows)}, about ${rebuild.seconds_left} s left`
        : "starting";
    const { coupon } = campaign;
    const what = `Campaign ${coupon} is being rebuilt`;
    add(HELD, what, how, "CouponUnavailable", `/campaigns/${coupon}`);
}

export function troubles(sample) {
    const list = [];
    const add = (kind, what, why, alert, place) => list.push({ kind, what, why, alert, place });
    of_stores(sample, add);
    for (const one of sample.processes) of_process(one, add);
    of_keeper(sample, add);
    for (const campaign of sample.campaigns ?? []) of_campaign(campaign, add);
    for (const one of sample.processes)
        for (const warning of one.readyz?.warnings ?? [])
            add(HELD, `Warning from ${one.address}`, warning, "WeakSettings");
    return list.sort((a, b) => (a.kind === b.kind ? 0 : a.kind === GRAVE ? -1 : 1));
}

// The troubles of one campaign, as items of a list.
export function troubles_of(campaign) {
    const list = [];
    of_campaign(campaign, (kind, what, why, alert) =>
        list.push(trouble_item({ kind, what, why, alert })),
    );
    return list;
}

// `alert` names the part of the runbook that says what to do.
function trouble_item({ kind, what, why, alert, place }) {
    const name = h("strong", {}, what);
    return h(
        "li",
        { class: kind },
        place ? h("a", { href: `#${place}` }, name) : name,
        why ? `: ${why}. ` : ". ",
        manual_link("guides/runbook", `Couponmq${alert}`, "What to do"),
    );
}

export class Troubles {
    constructor() {
        this.list = h("ul", { class: "troubles" });
        this.element = h(
            "section",
            { "aria-label": "Troubles", "aria-live": "polite" },
            this.list,
        );
    }

    show(sample) {
        const found = troubles(sample);
        const text = JSON.stringify(found);
        if (text === this.text) return;
        this.text = text;
        this.list.replaceChildren(
            ...(found.length
                ? found.map(trouble_item)
                : [h("li", { class: "fine" }, "All monitored parts are healthy.")]),
        );
    }
}

// ---- figures

export class Tiles {
    constructor(names) {
        this.tiles = {};
        this.element = h(
            "dl",
            { class: "card tiles" },
            Object.entries(names).map(([key, name]) => {
                const value = h("dd", { id: `figure-${key}` }, "–");
                this.tiles[key] = h("div", {}, h("dt", {}, name), value);
                return this.tiles[key];
            }),
        );
    }

    show(key, text, kind = "") {
        say(this.tiles[key].lastChild, text);
        this.tiles[key].className = kind;
    }
}

// The samples of the last two minutes, and the chart of their answers.
class Answers {
    constructor() {
        this.past = [];
        this.figure = h("figure");
        this.legend = ["accepted", "refused by the terms", "failed"].map((name, i) => [
            h("span", { class: `key ${["", "fourth", "third"][i]}` }, `${name} `, h("b", {}, "–")),
        ]);
        this.kinds = new Rows(
            "Requests by answer",
            [
                ["Answer", ""],
                ["per second", "number"],
                ["total", "number"],
            ],
            (kind) => this.kind_row(kind),
        );
        this.element = card(
            "Requests per second",
            this.figure,
            h("figcaption", {}, this.legend),
            this.kinds.element,
        );
        this.element.classList.add("stack");
    }

    kind_row(kind) {
        const now = h("td", { class: "number", "data-name": "per second" });
        const all = h("td", { class: "number", "data-name": "total" });
        const name = kind === "ok" ? "accepted" : kind.replaceAll("_", " ");
        return {
            element: h("tr", {}, h("th", { scope: "row" }, name), now, all),
            update: ([each, total]) => {
                say(now, rate(each));
                say(all, count(total));
            },
        };
    }

    take(figures) {
        const last = this.past.at(-1);
        if (last && figures.ms <= last.ms) return;
        figures.rows_rate = last ? rates(last, figures, "rows").issued : null;
        figures.rates = last ? rates(last, figures, "answers") : {};
        this.past.push(figures);
        while (this.past[0].ms < figures.ms - WINDOW_MS) this.past.shift();
    }

    // In the last seconds.
    latency() {
        const last = this.past.at(-1);
        const from = this.past.find((one) => one.ms >= last.ms - LATENCY_MS);
        if (!from || from === last) return {};
        const buckets = rates(from, last, "buckets");
        return { p50: percentile(buckets, 0.5), p99: percentile(buckets, 0.99) };
    }

    sums() {
        const last = this.past.at(-1).rates;
        const failed = sum(FAILED.map((kind) => last[kind] ?? 0));
        return [last.ok ?? 0, sum(Object.values(last)) - (last.ok ?? 0) - failed, failed];
    }

    show() {
        const last = this.past.at(-1);
        const line = (value) => this.past.slice(1).map((one) => [one.ms, value(one.rates)]);
        const failed = (one) => sum(FAILED.map((kind) => one[kind] ?? 0));
        const ok = (one) => one.ok ?? 0;
        const now = this.sums();
        chart(
            this.figure,
            [
                {
                    points: line((one) => sum(Object.values(one)) - ok(one) - failed(one)),
                    kind: "fourth",
                    name: "refused",
                    text: rate,
                },
                { points: line(ok), filled: true, name: "accepted", text: rate },
                { points: line(failed), kind: "third", name: "failed", text: rate },
            ],
            last.ms - WINDOW_MS,
            last.ms,
            `Requests per second in the last two minutes: ${rate(now[0])} accepted, ` +
                `${rate(now[1])} refused, ${rate(now[2])} failed now`,
        );
        this.legend.forEach(([key], i) => say(key.lastChild, rate(now[i])));
        this.kinds.show(
            Object.entries(last.answers)
                .filter(([kind, total]) => total > 0 || kind === "ok")
                .map(([kind, total]) => [kind, [last.rates[kind] ?? null, total]]),
        );
    }
}

// ---- campaigns

const ORDER = ["rebuilt", "issuing", "scheduled", "paused", "sold_out", "draft", "ended"];

export const stock_of = (campaign) => campaign.redis?.stock ?? null;

export function state_of(campaign) {
    if (campaign.rebuild) return "rebuilt";
    return campaign.state === "issuing" && stock_of(campaign) === 0 ? "sold_out" : campaign.state;
}

function campaign_row(coupon) {
    const name = h("a", { href: `#/campaigns/${coupon}` });
    const state = h("td");
    const stock = h("span");
    const bar = level(`Stock of campaign ${coupon}`);
    const issued = h("td", { class: "number", "data-name": "issued" });
    const flight = h("td", { class: "number", "data-name": "being issued" });
    const begin = h("td", { class: "nowrap", "data-name": "begin" });
    const end = h("td", { class: "nowrap", "data-name": "end" });
    const cell = h("td", { class: "number broad", "data-name": "stock" }, stock, bar);
    const element = h(
        "tr",
        {},
        h("th", { scope: "row" }, name, h("div", { class: "hint mono" }, coupon)),
        state,
        cell,
        issued,
        flight,
        begin,
        end,
    );
    let shown = "";
    return {
        element,
        update(campaign) {
            const left = stock_of(campaign);
            say(name, campaign.name);
            say(stock, `${count(left)} of ${count(campaign.total)}`);
            bar.value = left == null ? 0 : left / Math.max(1, campaign.total);
            say(issued, count(campaign.issued));
            say(flight, count(campaign.in_flight));
            const now = [state_of(campaign), campaign.begin, campaign.end].join();
            if (shown === now) return;
            shown = now;
            state.replaceChildren(badge(state_of(campaign)));
            begin.replaceChildren(time(campaign.begin, "at once"));
            end.replaceChildren(time(campaign.end, "no end"));
        },
    };
}

export function campaign_table(caption) {
    return new Rows(
        caption,
        [
            ["Campaign", ""],
            ["State", ""],
            ["Stock left", "number"],
            ["Issued", "number"],
            ["Being issued", "number"],
            ["Begin", ""],
            ["End", ""],
        ],
        campaign_row,
    );
}

function in_order(campaigns) {
    const place = (one) => ORDER.indexOf(state_of(one));
    return [...campaigns].sort(
        (a, b) =>
            place(a) - place(b) ||
            b.coupon.length - a.coupon.length ||
            (a.coupon < b.coupon ? 1 : -1),
    );
}

// ---- the page

const TILES = {
    campaigns: "Active campaigns",
    answers: "Requests per second",
    rows: "Coupons issued per second",
    p50: "Half answered within",
    p99: "99 % answered within",
};

function tiles_show(tiles, figures, answers, states) {
    const { p50, p99 } = answers.latency();
    tiles.show("campaigns", count(states?.issuing ?? (states ? 0 : null)));
    tiles.show("answers", answers.past.length > 1 ? rate(sum(answers.sums())) : "–");
    tiles.show("rows", rate(figures.rows_rate));
    tiles.show("p50", milliseconds(p50));
    tiles.show("p99", milliseconds(p99));
}

export function now_page(main) {
    const trouble = new Troubles();
    const tiles = new Tiles(TILES);
    const answers = new Answers();
    const campaigns = campaign_table("Active campaigns");
    const as_of = h("p", { class: "muted", id: "as-of" });
    main.append(
        h("div", { class: "bar" }, h("h1", {}, "Now"), as_of),
        trouble.element,
        tiles.element,
        h("section", { class: "card" }, campaigns.element),
        answers.element,
    );
    return live.take((sample) => {
        const now = figures(sample);
        as_of.replaceChildren("as of ", time(sample.at));
        trouble.show(sample);
        answers.take(now);
        tiles_show(tiles, now, answers, sample.states);
        if (answers.past.length > 1) answers.show();
        if (sample.campaigns)
            campaigns.show(in_order(sample.campaigns).map((one) => [one.coupon, one]));
    });
}
