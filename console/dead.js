// Dead letters: messages that workers could not read or store, and what to do with them.
import { change, get, may_operate, Problem } from "./api.js";
import { asking, busy, operator_action } from "./dialog.js";
import { card, count, h, note_make, plural, say, show, table, tall, terms } from "./dom.js";
import { manual_link } from "./manual.js";

const MOST = 100; // that are shown

const UNREADABLE = "It cannot be read: it may contain accepted receives without an outcome.";

// Its number changes when another one leaves; its body does not.
const path_of = (letter) => `/dead/${letter.digest}`;

function requeue_ask(what, path, body, ask) {
    return ask({
        title: `Send ${what} again?`,
        word: "Send again",
        changes: () => [
            `Workers get ${what} once more.`,
            "A message that still fails becomes a dead letter again: repair the cause first.",
        ],
        act: async () => {
            const answer = await change("POST", path, body);
            if (answer.warnings) throw new Problem(409, answer.warnings.join(" "));
            return `${plural(answer.requeued, "message")} sent to the workers.`;
        },
    });
}

// Asks first what would be lost.
async function remove_ask(letter, ask) {
    const path = `${path_of(letter)}/remove`;
    const { messages } = await change("POST", path, {});
    const owed = messages.flatMap((one) => one.owed);
    const unreadable = messages.filter((one) => !one.readable);
    return ask({
        title: "Remove this dead letter?",
        word: "Remove",
        grave: true,
        changes: () => [
            `Deleted, in RabbitMQ and in the outbox: ${plural(messages.length, "message")}. ` +
                "It cannot be undone.",
            ...owed.map((receive) => `Accepted, and will never have an outcome: ${receive}`),
            ...unreadable.map(() => UNREADABLE),
            ...(owed.length || unreadable.length ? [] : ["Every receive in it has an outcome."]),
        ],
        act: async () => {
            const answer = await change("POST", path, { yes: true });
            return `${plural(answer.messages.length, "message")} removed.`;
        },
    });
}

function letter_card(letter) {
    const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
    const pairs = (object) => Object.entries(object ?? {}).map(([name, one]) => [name, text(one)]);
    return card(
        `Dead letter ${letter.number}`,
        terms([
            ["Reason", letter.reason ?? "not stated"],
            ["Workers", letter.unreadable ? `cannot read it: ${letter.unreadable}` : "can read it"],
            ...pairs(letter.properties),
            ...pairs(letter.headers),
        ]),
        h("h3", {}, letter.body == null ? "Body, in base 64" : "Body"),
        tall("Body", h("pre", { class: "mono" }, letter.body ?? letter.body_base64)),
    );
}

export function dead_page(main, { still }) {
    const error = h("p", { class: "error", role: "alert" });
    const note = note_make();
    const list = h("section", { class: "card" });
    const box = h("div", { class: "stack", "aria-live": "polite" });
    const all = h("span");

    const tried = async (work) => {
        say(error, "");
        try {
            await work();
        } catch (problem) {
            if (!(problem instanceof Problem)) throw problem;
            if (still()) say(error, problem.message);
        }
    };
    const load = () =>
        tried(async () => {
            const { count: n, messages } = await get(`/dead?count=${MOST}`);
            if (!still()) return;
            show(box);
            list_show(n, messages);
        });
    const ask = asking(note, load);
    const row = (letter) => {
        const of = `dead letter ${letter.number}`;
        const open = h("button", { type: "button", "aria-label": `Show ${of}` }, "Show");
        const whole = async () => show(box, letter_card(await get(path_of(letter))));
        open.addEventListener("click", () => busy(open, () => tried(whole)));
        const path = `${path_of(letter)}/requeue`;
        const requeue = () => requeue_ask("this dead letter", path, {}, ask);
        return [
            count(letter.number),
            letter.coupon
                ? h("a", { href: `#/campaigns/${letter.coupon}` }, letter.coupon)
                : letter.batches > 1 && plural(letter.batches, "batch", "batches"),
            count(letter.receives),
            count(letter.bytes),
            letter.reason,
            h(
                "div",
                { class: "bar" },
                open,
                operator_action("Send again…", requeue, "", of),
                operator_action("Remove…", () => tried(() => remove_ask(letter, ask)), "", of),
            ),
        ].map((cell) => cell || null);
    };
    const list_show = (n, messages) => {
        const caption =
            messages.length < n
                ? `The oldest ${messages.length} of ${plural(n, "dead letter")}`
                : `${plural(n, "dead letter")}, oldest first`;
        const heads = [
            ["Number", ""],
            ["Campaign", ""],
            ["Receives", "number"],
            ["Bytes", "number"],
            ["Reason", "broad"],
            [may_operate() ? "Change" : "Details", "broad"],
        ];
        show(list, table(caption, heads, messages.map(row), "There are no dead letters."));
        const what = plural(n, "dead letter");
        const requeue = () => requeue_ask(what, "/dead/requeue", { all: true }, ask);
        show(all, (n > 0 && operator_action("Send all again…", requeue)) || "");
    };
    const again = h("button", { type: "button" }, "Refresh");
    again.addEventListener("click", () => busy(again, load));
    main.append(
        h("div", { class: "bar" }, h("h1", {}, "Dead letters"), again, all),
        h(
            "p",
            { class: "muted" },
            "Messages that workers could not read or store. Their receives have no outcome yet. ",
            manual_link("guides/runbook", "CouponmqDeadLetters", "What to do"),
        ),
        error,
        note,
        list,
        box,
    );
    load();
    return () => {};
}
