// API keys: list, create, rotate, revoke.
import { change, get, may_operate, Problem, session_get } from "./api.js";
import { asking, operator_action, warned } from "./dialog.js";
import { badge, count, h, note_make, plural, say, secret, show, table, time } from "./dom.js";
import { zone } from "./dom.js";

const MOST = 100; // that are shown at once
const ROLES = {
    issue: "issues and claims coupons",
    read: "reads the coupons of users",
    use: "holds and uses coupons for orders",
    monitor: "read-only",
    campaign: "runs campaigns, and makes no keys",
    admin: "may change everything",
};

function field(name, label, hint, attributes) {
    const input = h("input", { name, autocomplete: "off", spellcheck: "false", ...attributes });
    return [
        input,
        h("label", {}, h("span", {}, label), input, hint && h("span", { class: "hint" }, hint)),
    ];
}

const made = (said, answer) =>
    warned([`${said} It is shown only now: `, secret(answer.secret)], answer);

function create_ask(ask) {
    const [name, name_label] = field("name", "Name", "letters, digits, '.', '_' and '-'");
    const [coupons, coupons_label] = field("coupons", "Only campaigns", "ids; empty: every one");
    const [budgets, budgets_label] = field("budgets", "Their budgets", "names; empty: none");
    const [expires, expires_label] = field("expires", "Expires", `${zone}; empty: never`, {
        type: "datetime-local",
    });
    const [rate, rate_label] = field("rate", "Requests a second", "empty: any number", {
        inputmode: "numeric",
    });
    name.required = true;
    const boxes = Object.keys(ROLES).map((role) => h("input", { type: "checkbox", name: role }));
    const roles = () => boxes.filter((box) => box.checked).map((box) => box.name);
    const listed = (input) => input.value.split(/[\s,]+/).filter(Boolean);
    const ids = () => listed(coupons);
    return ask({
        title: "New key",
        word: "Create key",
        fields: [
            name_label,
            h(
                "fieldset",
                {},
                h("legend", {}, "Roles"),
                boxes.map((box) =>
                    h("label", { class: "check" }, box, `${box.name}: ${ROLES[box.name]}`),
                ),
            ),
            h("div", { class: "fields" }, coupons_label, budgets_label),
            h("div", { class: "fields" }, expires_label, rate_label),
        ],
        changes: () => {
            if (name.value.trim() === "") throw new Problem(400, "The name is empty.");
            if (roles().length === 0) throw new Problem(400, "No role is chosen.");
            if (listed(budgets).length && !ids().length)
                throw new Problem(400, "Budgets need campaigns: other keys have all budgets.");
            const which = ids().length ? `campaign ${ids().join(", ")}` : "every campaign";
            return [`Creates a key for ${name.value.trim()}: ${roles().join(", ")}, ${which}.`];
        },
        act: async () => {
            const body = { name: name.value.trim(), role: roles() };
            if (ids().length) body.coupons = ids();
            if (listed(budgets).length) body.budgets = listed(budgets);
            if (expires.value) body.expires = new Date(expires.value).toISOString();
            if (rate.value.trim()) body.rate = rate.value.trim();
            return made("The key is created.", await change("POST", "/keys", body));
        },
    });
}

function rotate_ask(key, ask) {
    const valid = "The previous secret stays valid for";
    const [overlap, label] = field("overlap", valid, "90s, 30m, 24h, 7d");
    overlap.value = "24h";
    return ask({
        title: `New secret of ${key.name}`,
        word: "Create secret",
        fields: [label],
        changes: () => [
            `Key ${key.key} gets a new secret; the previous one expires after ${overlap.value}.`,
        ],
        act: async () => {
            const body = { overlap: overlap.value.trim() };
            const answer = await change("POST", `/keys/${key.key}/rotate`, body);
            return made("The key has a new secret.", answer);
        },
    });
}

function revoke_ask(key, ask) {
    return ask({
        title: `Revoke the key of ${key.name}?`,
        word: "Revoke",
        grave: true,
        changes: () => [
            `Key ${key.key}: active → revoked`,
            "Requests with it are refused within a second. This cannot be undone.",
            ...(key.key === session_get()?.key ? ["You are signed in with this key."] : []),
        ],
        act: async () => {
            const answer = await change("POST", `/keys/${key.key}/revoke`, {});
            return warned("The key is revoked.", answer);
        },
    });
}

function key_row(key, ask) {
    const of = `${key.name} ${key.key}`;
    return [
        [key.name, h("div", { class: "hint mono" }, key.key)],
        [
            key.roles.join(", "),
            key.rate && h("div", { class: "hint" }, `${count(key.rate)} requests a second`),
        ],
        [
            key.coupons ? plural(key.coupons.length, "campaign") : "every campaign",
            key.budgets && h("div", { class: "hint" }, plural(key.budgets.length, "budget")),
        ],
        time(key.expires_at, "never"),
        badge(key.state),
        time(key.last_used_at, "not known"),
        [
            time(key.created_at),
            h("div", { class: "hint" }, "by ", h("span", { class: "mono" }, key.created_by)),
            key.by === key.created_by
                ? null
                : h("div", { class: "hint" }, "changed by ", h("span", { class: "mono" }, key.by)),
            h("a", { href: `#/history?who=${key.key}` }, "Its commands"),
        ],
        ...(may_operate()
            ? [
                  key.state === "active"
                      ? h(
                            "div",
                            { class: "bar" },
                            operator_action("New secret…", () => rotate_ask(key, ask), "", of),
                            operator_action("Revoke…", () => revoke_ask(key, ask), "", of),
                        )
                      : "",
              ]
            : []),
    ];
}

const HEADS = [
    ["Name", ""],
    ["Roles", ""],
    ["For", ""],
    ["Expires", "nowrap"],
    ["State", ""],
    ["Last used", "nowrap"],
    ["Created", ""],
    ["Change", "broad"],
];

export function keys_page(main, { still }) {
    const error = h("p", { class: "error", role: "alert" });
    const note = note_make();
    const [wanted, wanted_label] = field("wanted", "Name or id");
    const list = h("section", { class: "card" });
    let keys = [];

    const list_show = () => {
        const text = wanted.value.trim();
        const found = keys.filter(({ name, key }) => name.includes(text) || key.includes(text));
        const shown = found.slice(0, MOST);
        const caption =
            shown.length < found.length
                ? `The newest ${MOST} of ${count(found.length)} keys`
                : `${plural(shown.length, "key")}, newest first`;
        const heads = may_operate() ? HEADS : HEADS.slice(0, -1);
        show(list, table(caption, heads, shown.map((key) => key_row(key, ask)), "No such key."));
    };
    const load = async () => {
        say(error, "");
        try {
            ({ keys } = await get("/keys"));
            if (still()) list_show();
        } catch (problem) {
            if (!(problem instanceof Problem)) throw problem;
            say(error, problem.message);
        }
    };
    const ask = asking(note, load);
    wanted.addEventListener("input", list_show);
    main.append(
        h(
            "div",
            { class: "bar" },
            h("h1", {}, "Keys"),
            operator_action("New key…", () => create_ask(ask), "first"),
            h("div", { class: "end" }, wanted_label),
        ),
        error,
        note,
        list,
    );
    load();
    return () => {};
}
