// One user, one receive, or one code: the coupons of the user, or a history in order.
import { change, get, Problem } from "./api.js";
import { code_card } from "./codes.js";
import { action, asking, warned } from "./dialog.js";
import { badge, h, id_problem, instant, money, note_make, plural, say, show, time } from "./dom.js";

// ---- what happened

function in_stores(trace) {
    const { outbox, queue, dead_letter, dead_letter_unknown, dead_marked } = trace;
    const { redis, postgresql } = trace;
    const list = [];
    if (outbox) list.push(["", outbox.accepted_at, "Its message waits in the outbox."]);
    if (dead_letter)
        list.push(["bad", null, `It is a dead letter: ${dead_letter.reason ?? "no reason"}.`]);
    else if (dead_letter_unknown)
        list.push(["warn", null, `It may be a dead letter: ${dead_letter_unknown}.`]);
    else if (dead_marked) list.push(["bad", null, "Its message is marked as a dead letter."]);
    if (!postgresql.state && queue)
        list.push([
            "warn",
            null,
            queue.error ??
                `PostgreSQL has no outcome. ${plural(queue.ready, "message")} wait in the ` +
                    `queue, of any receives; ${plural(queue.consumers, "consumer")}.`,
        ]);
    const slot = redis.error
        ? redis.error
        : redis.slot
          ? `slot ${redis.slot} has it${redis.key ? `, with the key ${redis.key}` : ""}`
          : redis.loaded
            ? "no slot has it"
            : "the campaign is not loaded";
    list.push(["", null, `In Redis ${slot} now.`]);
    return list;
}

function told(trace) {
    const list = trace.events.waiting.map((one) => [
        "warn",
        one.made_at,
        `The event ${one.type} waits to be published.`,
    ]);
    for (const hook of trace.webhooks) {
        const what = hook.delivery
            ? `delivery ${hook.delivery} is ${hook.delivery_state} after ` +
              plural(hook.attempts, "attempt") +
              (hook.last_error ? `: ${hook.last_error}` : "")
            : "nothing waits to be delivered";
        list.push([hook.last_error ? "warn" : "", hook.last_at, `Webhook ${hook.url}: ${what}.`]);
    }
    return list;
}

const DONE = {
    hold: "held it",
    use: "used it",
    release: "released it",
    rollback: "rolled its use back",
    expire: "held it until the hold expired",
};

const DONE_ALREADY = ["used", "released", "rolled_back"];

function did({ action, from, to, result, amount, currency }) {
    if (from === "used" && to === "used")
        return action === "use"
            ? "used it with another amount"
            : `gave ${money(amount, currency)} of the discount back`;
    if (to) return DONE[action];
    if (DONE_ALREADY.includes(result)) return `asked to ${action} it, which had been done already`;
    if (result === "kept") return `did not ${action} it, because another receive was refused`;
    return `failed to ${action} it: ${result.replaceAll("_", " ")}`;
}

// The operations of orders, also those that were refused.
function used(trace) {
    return trace.uses.map((one) => {
        const { action, order, to, until, amount_off, currency, budget, reason, by } = one;
        const is_refused = !to && !DONE_ALREADY.includes(one.result);
        const off =
            amount_off == null || currency == null || is_refused
                ? ""
                : `, ${money(amount_off, currency)} off`;
        const text = [
            `Order ${order} ${did(one)}${off}`,
            budget && !is_refused ? `, from the budget ${budget}` : "",
            until && to ? [", until ", time(until)] : "",
            `${reason ? `: ${reason}` : ""}.${by ? ` By ${by}.` : ""}`,
        ];
        return [to === "used" ? "good" : is_refused ? "warn" : "", one.at, text];
    });
}

// Each [kind, time or null, text].
function happened(trace) {
    const { gateway, postgresql, void: back } = trace;
    const traced = gateway.trace ? ` Its trace is ${gateway.trace}.` : "";
    const list = [["", gateway.made_at, `A gateway put the request into a batch.${traced}`]];
    if (postgresql.received_at)
        list.push(["", postgresql.received_at, `Redis accepted it: slot ${postgresql.slot}.`]);
    if (postgresql.state === "issued" || back.at) {
        const from = postgresql.valid_from;
        const valid = from
            ? [" Valid from ", time(from), " to ", time(postgresql.valid_to, "no end"), "."]
            : [];
        list.push(["good", null, ["PostgreSQL has the user coupon: issued.", valid]]);
    }
    const later = used(trace);
    if (back.at) {
        const why = back.why ? `: ${back.why}` : "";
        const slot = back.returned ? "is free again" : "stays taken";
        later.push(["bad", back.at, `Voided by ${back.by}${why}. Its slot ${slot}.`]);
    }
    list.push(...later.sort(([, one], [, other]) => Date.parse(one) - Date.parse(other)));
    if (!back.at && postgresql.rejected_at)
        list.push(["bad", postgresql.rejected_at, `Rejected: ${postgresql.reason}.`]);
    if (postgresql.freed_at)
        list.push(["", postgresql.freed_at, "Redis has freed its slot."]);
    return [...list, ...in_stores(trace), ...told(trace)];
}

function void_ask(trace, ask) {
    const why = h("input", { name: "why", maxlength: "500", autocomplete: "off" });
    return ask({
        title: "Void this coupon?",
        word: "Void",
        grave: true,
        fields: [h("label", {}, h("span", {}, "Why"), why)],
        changes: () => [
            `Receive ${trace.receive}: issued → rejected (voided)`,
            "The terms of the campaign say whether the coupon returns to stock.",
            "This cannot be undone.",
        ],
        act: async () => {
            const body = why.value.trim() ? { why: why.value.trim() } : {};
            const path = `/receives/${encodeURIComponent(trace.receive)}/void`;
            const answer = await change("POST", path, body);
            if (answer.approval) return warned("", answer);
            if (!answer.voided) throw new Problem(409, `It was not voided: ${answer.result}.`);
            return "Voided.";
        },
    });
}

// How an operator ends a hold or a use, by the state of the receive.
const RETURNS = {
    held: { action: "release", word: "Release", done: "The receive is free." },
    used: { action: "rollback", word: "Roll back use", done: "The use is rolled back." },
};

function return_ask(trace, ask) {
    const { state, order } = trace.use;
    const { action: name, word, done } = RETURNS[state];
    const reason = h("input", { name: "reason", maxlength: "200", autocomplete: "off" });
    return ask({
        title: `${word}?`,
        word,
        grave: true,
        fields: name === "rollback" ? [h("label", {}, h("span", {}, "Why"), reason)] : [],
        changes: () => [
            `Receive ${trace.receive}: ${state} by order ${order} → free`,
            "Another order can have it then. What it took from a budget is returned.",
        ],
        act: async () => {
            const body = { order };
            if (reason.value.trim()) body.reason = reason.value.trim();
            const path = `/receives/${encodeURIComponent(trace.receive)}/${name}`;
            const answer = await change("POST", path, body);
            if (answer.code === 0) return done;
            throw new Problem(409, answer.message ?? answer.status);
        },
    });
}

function use_line({ state, order, until }) {
    return h(
        "p",
        {},
        badge(state),
        ` by order ${order}`,
        until ? [", until ", time(until)] : "",
        ".",
    );
}

function receive_card(trace, ask) {
    const coupon = trace.receive.split(".")[0];
    return h(
        "section",
        { class: "card stack", "aria-label": `Receive ${trace.receive}` },
        h(
            "div",
            { class: "bar" },
            h("h2", { class: "mono" }, trace.receive),
            badge(trace.state),
            h("a", { href: `#/campaigns/${coupon}` }, `Campaign ${coupon}`),
            trace.state === "issued" ? action("Void…", () => void_ask(trace, ask)) : null,
            RETURNS[trace.use.state]
                ? action(`${RETURNS[trace.use.state].word}…`, () => return_ask(trace, ask))
                : null,
        ),
        trace.use.state && use_line(trace.use),
        h(
            "ol",
            { class: "story" },
            happened(trace).map(([kind, at, text]) =>
                h(
                    "li",
                    { class: kind },
                    at ? instant(at) : h("span", { class: "when" }, "–"),
                    h("div", {}, text),
                ),
            ),
        ),
    );
}

// The coupons of a user, of all campaigns.
function coupons_card(user, receives) {
    const row = (one) =>
        h(
            "li",
            {},
            instant(one.received_at),
            h(
                "div",
                {},
                h(
                    "a",
                    { href: `#/find?receive=${encodeURIComponent(one.receive)}` },
                    one.name ?? `Campaign ${one.coupon}`,
                ),
                `: ${one.state}`,
                one.use && `, ${one.use.state} by order ${one.use.order}`,
            ),
        );
    return h(
        "section",
        { class: "card stack", "aria-label": `Coupons of ${user}` },
        h("h2", {}, `Coupons of ${user}`),
        receives.length ? h("ol", { class: "story" }, receives.map(row)) : "No coupons.",
    );
}

// ---- the page

function field(name, label, value) {
    const input = h("input", { name, autocomplete: "off", spellcheck: "false" });
    input.value = value ?? "";
    return [input, h("label", {}, h("span", {}, label), input)];
}

export function find_page(main, { query, still }) {
    const [coupon, coupon_label] = field("coupon", "Campaign id (empty: all)", query.get("coupon"));
    const [user, user_label] = field("user", "User", query.get("user"));
    const [receive, receive_label] = field("receive", "Receive id", query.get("receive"));
    const [code, code_label] = field("code", "Exchange code", query.get("code"));
    const error = h("p", { class: "error", role: "alert" });
    const note = note_make();
    const found = h("div", { class: "stack" });

    const submit = (event) => {
        event.preventDefault();
        show(note);
        const id = event.target.querySelector('input[name="coupon"]');
        say(error, id ? id_problem(id.value.trim()) : "");
        if (error.textContent) return;
        const wanted = new URLSearchParams();
        for (const input of event.target.querySelectorAll("input"))
            if (input.value.trim()) wanted.set(input.name, input.value.trim());
        const hash = `#/find?${wanted}`;
        if (location.hash === hash) load();
        else location.hash = hash;
    };
    const part = (name) => encodeURIComponent(query.get(name));
    const path = () => {
        if (query.get("code")) return `/codes/${part("code")}`;
        if (query.get("receive")) return `/receives/${part("receive")}/trace`;
        if (!query.get("user")) return null;
        if (!query.get("coupon")) return `/users/${part("user")}/receives`;
        return `/campaigns/${part("coupon")}/users/${part("user")}/trace`;
    };
    const load = async () => {
        say(error, "");
        if (!path()) return;
        try {
            const answer = await get(path());
            if (!still()) return;
            const list = answer.receives ?? [answer];
            if (path().startsWith("/users/")) {
                show(found, coupons_card(query.get("user"), list));
                return;
            }
            const make = query.get("code") ? code_card : receive_card;
            show(
                found,
                list.map((one) => make(one, ask)),
            );
        } catch (problem) {
            if (!(problem instanceof Problem)) throw problem;
            show(found);
            say(error, problem.message);
        }
    };
    const ask = asking(note, load);
    main.append(
        h("h1", {}, "Find coupons"),
        h(
            "div",
            { class: "fields" },
            h(
                "form",
                { class: "card stack", onsubmit: submit, "aria-label": "By user" },
                h("div", { class: "fields" }, coupon_label, user_label),
                h("div", {}, h("button", { class: "first" }, "Find the user's coupons")),
            ),
            h(
                "form",
                { class: "card stack", onsubmit: submit, "aria-label": "By receive" },
                receive_label,
                h("div", {}, h("button", {}, "Find the coupon")),
            ),
            h(
                "form",
                { class: "card stack", onsubmit: submit, "aria-label": "By code" },
                code_label,
                h("div", {}, h("button", {}, "Find the code")),
            ),
        ),
        error,
        note,
        found,
    );
    load();
    return () => {};
}
