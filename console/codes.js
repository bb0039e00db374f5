// Exchange codes: the sets of a campaign, and one code.
import { change, get, may_change, Problem } from "./api.js";
import { action, warned } from "./dialog.js";
import { badge, card, count, h, plural, table, terms, time } from "./dom.js";

const FOREVER = "What was redeemed stays. It cannot be undone.";

function word_ask(path, ask) {
    const word = h("input", { name: "word", autocomplete: "off", spellcheck: "false" });
    return ask({
        title: "New word",
        word: "Make the word",
        fields: [h("label", {}, h("span", {}, "Word"), word)],
        changes: () => {
            if (word.value.trim() === "") throw new Problem(400, "The word is empty.");
            return [`${word.value.trim()} becomes a code of this campaign, for all users.`];
        },
        act: async () => {
            const answer = await change("POST", `${path}/words`, { word: word.value.trim() });
            return warned("The word is made.", answer);
        },
    });
}

function set_revoke_ask(set, ask) {
    return ask({
        title: `Revoke set ${set.set}?`,
        word: "Revoke",
        grave: true,
        changes: () => [`Codes that can be used: ${count(set.unused)} → 0`, FOREVER],
        act: async () => {
            const answer = await change("POST", `/sets/${set.set}/revoke`, {});
            return warned("The set is revoked.", answer);
        },
    });
}

function set_row(set, ask) {
    const used = set.kind === "word" ? set.redeemed : set.used;
    const about = `set ${set.set}, ${set.kind}${set.complete ? "" : ", not complete"}`;
    return [
        [h("span", { class: "mono" }, set.form ?? set.file), h("div", { class: "hint" }, about)],
        count(set.unused),
        count(used),
        count(set.revoked),
        set.revoked_at
            ? badge("revoked")
            : action("Revoke…", () => set_revoke_ask(set, ask), "", `set ${set.set}`),
    ];
}

// Of a campaign, whose path this is.
export async function codes_cards(path, ask) {
    const stats = await get(`${path}/codes`);
    if (stats.sets.length === 0 && !may_change()) return [];
    const element = card(
        "Exchange codes",
        stats.sets.length > 0 &&
            h(
                "p",
                {},
                `${plural(stats.codes, "code")}: ${count(stats.unused)} unused, ` +
                    `${count(stats.used)} used, ${count(stats.revoked)} revoked.`,
            ),
        table(
            "Sets of codes",
            [
                ["Form", ""],
                ["Unused", "number"],
                ["Used", "number"],
                ["Revoked", "number"],
                ["Change", ""],
            ],
            stats.sets.map((set) => set_row(set, ask)),
        ),
        h("div", {}, action("New word…", () => word_ask(path, ask))),
    );
    element.classList.add("stack");
    return [element];
}

// ---- one code

function code_revoke_ask(code, ask) {
    return ask({
        title: "Revoke this code?",
        word: "Revoke",
        grave: true,
        changes: () => [`Code ${code.code}: ${code.state} → revoked`, FOREVER],
        act: async () => {
            const answer = await change("POST", "/codes/revoke", { codes: [code.code] });
            if (answer.refused) throw new Problem(409, answer.warnings[0]);
            return "The code is revoked.";
        },
    });
}

export function code_card(code, ask) {
    const place = `#/find?receive=${encodeURIComponent(code.receive)}`;
    return h(
        "section",
        { class: "card stack", "aria-label": `Code ${code.code}` },
        h(
            "div",
            { class: "bar" },
            h("h2", { class: "mono" }, code.code),
            badge(code.state),
            h("a", { href: `#/campaigns/${code.coupon}` }, `Campaign ${code.coupon}`),
            code.state === "unused" && code.kind !== "word"
                ? action("Revoke…", () => code_revoke_ask(code, ask))
                : null,
        ),
        terms([
            ["Set", `${code.set} (${code.kind})`],
            ["User", code.user],
            ["Receive", code.receive && h("a", { href: place }, code.receive)],
            ["Used", code.used_at && time(code.used_at)],
            ["Revoked", code.revoked_at && [time(code.revoked_at), ` by ${code.revoked_by}`]],
        ]),
    );
}
