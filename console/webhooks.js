// Webhooks: all of them, those that get the events of a campaign, and what each of them got.
import { change, get, may_change, may_operate, Problem } from "./api.js";
import { action, asking, busy, operator_action, warned } from "./dialog.js";
import { badge, card, count, h, id_problem, note_make, plural, say, secret } from "./dom.js";
import { show, table, terms, time } from "./dom.js";
import { manual_link } from "./manual.js";

const DELIVERIES = 100; // that are shown

const STEPS = [
    {
        word: "Pause",
        from: "enabled",
        state: "disabled",
        to: "paused",
        does: "Nothing is sent any more. Waiting requests stay; events meanwhile are lost.",
    },
    {
        word: "Resume",
        from: "disabled",
        state: "enabled",
        to: "active",
        does: "Waiting requests are sent, and new events from now on.",
    },
    {
        word: "Remove",
        to: "removed",
        grave: true,
        does: "It is removed with its secrets and waiting requests. This cannot be undone.",
    },
];

let types = null; // of events, once they are known

async function types_find() {
    const { paths } = await get("/openapi.json");
    const { content } = paths["/admin/v1/webhooks"].post.requestBody;
    return content["application/json"].schema.properties.types.items.enum;
}

const path_of = (hook) => `/webhooks/${hook.webhook}`;

function step_ask(hook, { word, grave, state, to, does }, ask) {
    const why = h("input", { name: "why", maxlength: "500", autocomplete: "off" });
    const was = hook.state === "enabled" ? "active" : "paused";
    return ask({
        title: `${word} webhook ${hook.webhook}?`,
        word,
        grave,
        fields: state === "disabled" ? [h("label", {}, h("span", {}, "Why"), why)] : [],
        changes: () => [`${hook.url}: ${was} → ${to}`, does],
        act: async () => {
            const body = { state, ...(why.value.trim() ? { why: why.value.trim() } : {}) };
            const answer = grave
                ? await change("DELETE", path_of(hook))
                : await change("PATCH", path_of(hook), body);
            return warned(`The webhook is ${to}.`, answer);
        },
    });
}

function test_ask(hook, ask) {
    return ask({
        title: `Test webhook ${hook.webhook}?`,
        word: "Send",
        changes: () => [`One event of the type webhook.test is sent to ${hook.url} now.`],
        act: async () => {
            const answer = await change("POST", `${path_of(hook)}/test`, {});
            const { delivered, status, duration_ms, error } = answer;
            const said = status ? `It answered ${status}` : "It gave no answer";
            const text = `${said} after ${count(duration_ms)} ms${error ? `: ${error}` : ""}.`;
            if (!delivered) throw new Problem(409, text);
            return text;
        },
    });
}

function rotate_ask(hook, ask) {
    const overlap = h("input", { name: "overlap", autocomplete: "off", value: "24h" });
    return ask({
        title: `New secret of webhook ${hook.webhook}`,
        word: "Create secret",
        fields: [h("label", {}, h("span", {}, "The previous one stays valid for"), overlap)],
        changes: () => [
            `Requests also have a signature with the previous secret for ${overlap.value}.`,
        ],
        act: async () => {
            const body = { overlap: overlap.value.trim() };
            const answer = await change("POST", `${path_of(hook)}/rotate`, body);
            return warned(["Its secret, shown only now: ", secret(answer.secret)], answer);
        },
    });
}

function resend_ask(hook, ask) {
    return ask({
        title: `Send again to webhook ${hook.webhook}?`,
        word: "Send again",
        changes: () => [`Sent again: ${plural(hook.given_up, "request")} that had been given up.`],
        act: async () => {
            const answer = await change("POST", `${path_of(hook)}/resend`, {});
            return warned(`${plural(answer.resent, "request")} will be sent again.`, answer);
        },
    });
}

// `shown` is the campaign on whose page this is; null: the page is of all webhooks.
function add_ask(shown, ask) {
    const url = h("input", { name: "url", type: "url", autocomplete: "off" });
    const alone = h("input", {
        name: "alone",
        type: "checkbox",
        checked: true,
        disabled: !may_operate(),
    });
    const coupon = h("input", { name: "coupon", inputmode: "numeric", autocomplete: "off" });
    const boxes = types.map((name) => h("input", { type: "checkbox", name, checked: true }));
    // All types: also those that later versions add.
    const chosen = () => boxes.filter((box) => box.checked).map((box) => box.name);
    const are_all = () => chosen().length === types.length;
    const campaign = () => (shown ? alone.checked && shown.coupon : coupon.value.trim());
    const of_one = shown
        ? h("label", { class: "check" }, alone, "Only events of this campaign")
        : h(
              "label",
              {},
              h("span", {}, "Campaign id"),
              coupon,
              h("span", { class: "hint" }, "empty: the events of every campaign"),
          );
    return ask({
        title: "New webhook",
        word: "Create webhook",
        fields: [
            h(
                "label",
                {},
                h("span", {}, "URL"),
                url,
                h("span", { class: "hint" }, "gets POST requests: https://shop.example/events"),
            ),
            of_one,
            h(
                "fieldset",
                {},
                h("legend", {}, "Events"),
                boxes.map((box) => h("label", { class: "check" }, box, box.name)),
            ),
        ],
        changes: () => {
            if (url.value.trim() === "") throw new Problem(400, "The URL is empty.");
            const problem = shown ? "" : id_problem(coupon.value.trim());
            if (problem) throw new Problem(400, `Campaign id: ${problem}`);
            if (chosen().length === 0) throw new Problem(400, "No type of event is chosen.");
            const what = are_all() ? "events" : chosen().join(", ");
            const of = campaign() ? (shown?.name ?? `campaign ${campaign()}`) : "every campaign";
            const list = [`From now on ${url.value.trim()} gets ${what} of ${of}.`];
            if (shown && !shown.events)
                list.push("This campaign publishes no events: its terms can switch them on.");
            return list;
        },
        act: async () => {
            const body = { url: url.value.trim() };
            if (campaign()) body.coupon = campaign();
            if (!are_all()) body.types = chosen();
            const answer = await change("POST", "/webhooks", body);
            return warned(["Created. Its secret, shown only now: ", secret(answer.secret)], answer);
        },
    });
}

// ---- one webhook

function resend_one_ask(hook, delivery, ask) {
    return ask({
        title: `Send request ${delivery.delivery} again?`,
        word: "Send again",
        changes: () => [
            `${plural(delivery.events, "event")} to ${hook.url}, with all attempts anew.`,
        ],
        act: async () => {
            const body = { delivery: delivery.delivery };
            const answer = await change("POST", `${path_of(hook)}/resend`, body);
            return warned(`${plural(answer.resent, "request")} will be sent again.`, answer);
        },
    });
}

const DELIVERY_STATES = { waiting: "waits", failed: "given up" };

function delivery_row(hook, one, ask) {
    const last = one.last_error ?? (one.last_status && `It answered ${one.last_status}.`);
    return [
        time(one.created_at),
        [DELIVERY_STATES[one.state] ?? one.state, h("div", { class: "hint" }, one.type)],
        count(one.events),
        count(one.attempts),
        [last ?? "–", one.last_at && h("div", { class: "hint" }, time(one.last_at))],
        one.state === "failed"
            ? action(
                  "Send again…",
                  () => resend_one_ask(hook, one, ask),
                  "",
                  `request ${one.delivery}`,
              )
            : null,
    ];
}

// All about one webhook: what it got, its secrets, and what it has not got yet.
export async function hook_cards({ webhook }, ask) {
    const [hook, { deliveries }] = await Promise.all([
        get(`/webhooks/${webhook}`),
        get(`/webhooks/${webhook}/deliveries?count=${DELIVERIES}`),
    ]);
    const last = time(hook.delivered_at, "never");
    const about = card(
        `Webhook ${webhook}`,
        terms([
            ["URL", h("span", { class: "mono" }, hook.url)],
            ["Created", [time(hook.created_at), ` by ${hook.created_by}`]],
            ["State", [badge(hook.state), hook.why ? ` ${hook.why}` : ""]],
            ["Delivered", [plural(hook.delivered_events, "event"), ", last: ", last]],
            [
                "Lost",
                hook.dropped_events > 0
                    ? `${plural(hook.dropped_events, "event")}, because too many waited`
                    : null,
            ],
            ["Fails since", hook.failing_since && time(hook.failing_since)],
            ["Next attempt", hook.paused_until && time(hook.paused_until)],
        ]),
        table(
            "Secrets, newest first",
            [
                ["Secret", ""],
                ["Created", "nowrap"],
                ["By", ""],
                ["Valid until", "nowrap"],
            ],
            hook.secrets.map((one) => [
                h("span", { class: "mono" }, one.fingerprint),
                time(one.created_at),
                h("span", { class: "mono" }, one.created_by),
                time(one.expires_at, "it is replaced"),
            ]),
        ),
    );
    about.classList.add("stack");
    return [
        about,
        card(
            `Deliveries of webhook ${webhook}`,
            table(
                "Requests that were not delivered, oldest first",
                [
                    ["Made", "nowrap"],
                    ["State", ""],
                    ["Events", "number"],
                    ["Attempts", "number"],
                    ["Last answer", "broad"],
                    ["Change", ""],
                ],
                deliveries.map((one) => delivery_row(hook, one, ask)),
                "All requests were delivered.",
            ),
        ),
    ];
}

function hook_row(hook, ask, details) {
    const of = `webhook ${hook.webhook}`;
    const own = hook.coupon ? action : operator_action;
    const make = (word, work) => own(`${word}…`, () => work(hook, ask), "", of);
    const late = h("button", { type: "button", "aria-label": `Details of ${of}` }, "Details");
    late.addEventListener("click", () => busy(late, () => details(hook)));
    const steps = STEPS.filter((step) => !step.from || step.from === hook.state).map((step) =>
        make(step.word, () => step_ask(hook, step, ask)),
    );
    return [
        [
            h("span", { class: "mono" }, hook.url),
            h(
                "div",
                { class: "hint" },
                `${of}, of `,
                hook.coupon
                    ? h("a", { href: `#/campaigns/${hook.coupon}` }, `campaign ${hook.coupon}`)
                    : "every campaign",
                `: ${hook.types?.join(", ") || "all types"}`,
            ),
        ],
        [badge(hook.state), h("div", { class: "hint" }, hook.why)],
        [count(hook.waiting), h("div", { class: "hint" }, `${count(hook.given_up)} given up`)],
        h(
            "div",
            { class: "bar" },
            late,
            make("Test", test_ask),
            make("New secret", rotate_ask),
            hook.given_up ? make("Send again", resend_ask) : null,
            steps,
        ),
    ];
}

const HEADS = [
    ["URL", "broad"],
    ["State", ""],
    ["Waiting", "number"],
    ["Change", "broad"],
];

// ---- those of a campaign

// `shown` is what the API tells of the campaign; `details(hook)` shows more of one.
export async function webhooks_cards(shown, ask, details) {
    const { webhooks } = await get("/webhooks");
    const mine = webhooks.filter(({ coupon }) => coupon == null || coupon === shown.coupon);
    if (mine.length === 0 && !may_change()) return [];
    if (may_change()) types ??= await types_find();
    const element = card(
        "Webhooks",
        table("Webhooks of this campaign", HEADS, mine.map((hook) => hook_row(hook, ask, details))),
        h(
            "div",
            { class: "bar" },
            action("New webhook…", () => add_ask(shown, ask)),
            h("a", { href: "#/webhooks" }, "All webhooks"),
            manual_link("guides/webhooks", null, "Manual: webhooks"),
        ),
    );
    element.classList.add("stack");
    return [element];
}

// ---- the page

export function webhooks_page(main, { still }) {
    const error = h("p", { class: "error", role: "alert" });
    const note = note_make();
    const list = h("section", { class: "card" });
    const box = h("div", { class: "stack", "aria-live": "polite" });
    let chosen = null; // whose details are shown

    const tried = async (work) => {
        say(error, "");
        try {
            await work();
        } catch (problem) {
            if (!(problem instanceof Problem)) throw problem;
            if (still()) say(error, problem.message);
        }
    };
    const details = (hook) =>
        tried(async () => {
            const cards = await hook_cards(hook, ask);
            chosen = hook;
            if (still()) show(box, cards);
        });
    const load = () =>
        tried(async () => {
            const { webhooks } = await get("/webhooks");
            if (may_change()) types ??= await types_find();
            if (!still()) return;
            const rows = webhooks.map((hook) => hook_row(hook, ask, details));
            const caption = plural(rows.length, "webhook");
            show(list, table(caption, HEADS, rows, "There are no webhooks."));
            const is_there = webhooks.some(({ webhook }) => webhook === chosen?.webhook);
            if (is_there) await details(chosen);
            else show(box);
        });
    const ask = asking(note, load);
    main.append(
        h(
            "div",
            { class: "bar" },
            h("h1", {}, "Webhooks"),
            action("New webhook…", () => add_ask(null, ask), "first"),
            h("span", { class: "end" }, manual_link("guides/webhooks")),
        ),
        h(
            "p",
            { class: "muted" },
            "Addresses of other systems, which get the events of campaigns: a coupon was issued, " +
                "used or voided, a campaign was changed.",
        ),
        error,
        note,
        list,
        box,
    );
    load();
    return () => {};
}
