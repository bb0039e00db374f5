// The webhooks that get the events of a campaign.
import { change, get, may_change, may_operate, Problem } from "./api.js";
import { action, busy, operator_action, warned } from "./dialog.js";
import { badge, card, count, h, plural, secret, table, time } from "./dom.js";

const STEPS = [
    {
        word: "Disable",
        from: "enabled",
        does: "Nothing is sent any more. Waiting requests stay; events meanwhile are lost.",
    },
    {
        word: "Enable",
        from: "disabled",
        does: "Waiting requests are sent, and new events from now on.",
    },
    {
        word: "Remove",
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

function step_ask(hook, { word, grave, does }, ask) {
    return ask({
        title: `${word} webhook ${hook.webhook}?`,
        word,
        grave,
        changes: () => [`${hook.url}: ${hook.state} → ${word.toLowerCase()}d`, does],
        act: async () => {
            const answer = grave
                ? await change("DELETE", path_of(hook))
                : await change("PATCH", path_of(hook), { state: `${word.toLowerCase()}d` });
            return warned(`The webhook is ${word.toLowerCase()}d.`, answer);
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

function add_ask({ coupon, name, events }, ask) {
    const url = h("input", { name: "url", type: "url", autocomplete: "off" });
    const alone = h("input", {
        name: "alone",
        type: "checkbox",
        checked: true,
        disabled: !may_operate(),
    });
    const boxes = types.map((name) => h("input", { type: "checkbox", name, checked: true }));
    // All types: also those that later versions add.
    const chosen = () => boxes.filter((box) => box.checked).map((box) => box.name);
    const are_all = () => chosen().length === types.length;
    return ask({
        title: "New webhook",
        word: "Create webhook",
        fields: [
            h("label", {}, h("span", {}, "URL"), url),
            h("label", { class: "check" }, alone, "Only events of this campaign"),
            h(
                "fieldset",
                {},
                h("legend", {}, "Events"),
                boxes.map((box) => h("label", { class: "check" }, box, box.name)),
            ),
        ],
        changes: () => {
            if (url.value.trim() === "") throw new Problem(400, "The URL is empty.");
            if (chosen().length === 0) throw new Problem(400, "No type of event is chosen.");
            const what = are_all() ? "events" : chosen().join(", ");
            const of = alone.checked ? name : "every campaign";
            const list = [`From now on ${url.value.trim()} gets ${what} of ${of}.`];
            if (!events)
                list.push("This campaign publishes no events: its terms can switch them on.");
            return list;
        },
        act: async () => {
            const body = { url: url.value.trim(), ...(alone.checked ? { coupon } : {}) };
            if (!are_all()) body.types = chosen();
            const answer = await change("POST", "/webhooks", body);
            return warned(["Created. Its secret, shown only now: ", secret(answer.secret)], answer);
        },
    });
}

export async function deliveries_card(hook) {
    const { deliveries } = await get(`${path_of(hook)}/deliveries`);
    return [
        card(
            `Deliveries of webhook ${hook.webhook}`,
            table(
                "Requests that were not delivered, oldest first",
                [
                    ["Made", "nowrap"],
                    ["State", ""],
                    ["Events", "number"],
                    ["Attempts", "number"],
                    ["Last answer", "broad"],
                ],
                deliveries.map((one) => [
                    time(one.created_at),
                    one.state,
                    count(one.events),
                    count(one.attempts),
                    one.last_error ?? one.last_status,
                ]),
                "All requests were delivered.",
            ),
        ),
    ];
}

function hook_row(hook, ask, deliveries) {
    const of = `webhook ${hook.webhook}`;
    const own = hook.coupon ? action : operator_action;
    const make = (word, work) => own(`${word}…`, () => work(hook, ask), "", of);
    const late = h("button", { type: "button", "aria-label": `Deliveries of ${of}` }, "Deliveries");
    late.addEventListener("click", () => busy(late, () => deliveries(hook)));
    const steps = STEPS.filter((step) => !step.from || step.from === hook.state).map((step) =>
        make(step.word, () => step_ask(hook, step, ask)),
    );
    return [
        [
            h("span", { class: "mono" }, hook.url),
            h(
                "div",
                { class: "hint" },
                `${of}, of ${hook.coupon ? "this campaign" : "every campaign"}: `,
                hook.types?.join(", ") ?? "all types",
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

// `shown` is what the API tells of the campaign; `deliveries(hook)` shows them.
export async function webhooks_cards(shown, ask, deliveries) {
    const { webhooks } = await get("/webhooks");
    const mine = webhooks.filter(({ coupon }) => coupon == null || coupon === shown.coupon);
    if (mine.length === 0 && !may_change()) return [];
    if (may_change()) types ??= await types_find();
    const element = card(
        "Webhooks",
        table(
            "Webhooks of this campaign",
            [
                ["URL", "broad"],
                ["State", ""],
                ["Waiting", "number"],
                ["Change", "broad"],
            ],
            mine.map((hook) => hook_row(hook, ask, deliveries)),
        ),
        h(
            "div",
            {},
            action("New webhook…", () => add_ask(shown, ask)),
        ),
    );
    element.classList.add("stack");
    return [element];
}
