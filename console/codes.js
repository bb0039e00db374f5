// Exchange codes: the sets of a campaign, and one code.
import { change, get, may_change, Problem } from "./api.js";
import { csv_line, csv_save } from "./csv.js";
import { action, warned } from "./dialog.js";
import { badge, card, count, h, number_read, plural, table, terms, time } from "./dom.js";
import { list_fields, pieces_of } from "./list.js";
import { manual_link } from "./manual.js";

const END_HINT =
    "as 2026-12-24 or 2026-12-24T18:00, in the campaign's time zone; empty: as the campaign";
const FOREVER = "Coupons that were claimed stay. This cannot be undone.";

function field(name, label, hint, input = h("input", { name, autocomplete: "off" })) {
    return [input, h("label", {}, h("span", {}, label), input, h("span", { class: "hint" }, hint))];
}

// The fields that say for whom codes are, and until when; and the members of a request.
function code_terms() {
    const [user, user_label] = field("user", "User", "who alone may claim; empty: anybody");
    const [end, end_label] = field("valid_to", "Until", END_HINT);
    return {
        labels: [user_label, end_label],
        members: () => ({
            ...(user.value.trim() && { user: user.value.trim() }),
            ...(end.value.trim() && { valid_to: end.value.trim() }),
        }),
        who: () => (user.value.trim() ? `user ${user.value.trim()}` : null),
    };
}

function word_ask(path, ask) {
    const word = h("input", { name: "word", autocomplete: "off", spellcheck: "false" });
    const own = code_terms();
    return ask({
        title: "New word",
        word: "Create word",
        fields: [h("label", {}, h("span", {}, "Word"), word), ...own.labels],
        changes: () => {
            if (word.value.trim() === "") throw new Problem(400, "The word is empty.");
            const who = own.who() ?? "all users";
            return [`${word.value.trim()} becomes a code of this campaign, for ${who}.`];
        },
        act: async () => {
            const body = { word: word.value.trim(), ...own.members() };
            const answer = await change("POST", `${path}/words`, body);
            return warned("The word is created.", answer);
        },
    });
}

function generate_ask(path, ask) {
    const few = "for more than 20,000 use couponctl";
    const [number, number_label] = field("count", "Number of codes", few);
    const [prefix, prefix_label] = field("prefix", "Prefix", "letters and digits; empty: none");
    const own = code_terms();
    number.inputMode = "numeric";
    number.required = true;
    return ask({
        title: "New set of codes",
        word: "Generate codes",
        fields: [h("div", { class: "fields" }, number_label, prefix_label, ...own.labels)],
        changes: () => {
            if (number.value.trim() === "") throw new Problem(400, "Number of codes is empty.");
            const n = number_read("Number of codes", number.value);
            return [
                `New codes of this campaign: ${count(Number(n))}.`,
                `${own.who() ? `Only ${own.who()}` : "Anyone who has a code"} can use it once. ` +
                    "Save the set to get the codes.",
            ];
        },
        act: async () => {
            const body = {
                count: number_read("Number of codes", number.value),
                ...own.members(),
            };
            if (prefix.value.trim()) body.prefix = prefix.value.trim();
            const answer = await change("POST", `${path}/sets`, body);
            const codes = plural(answer.count, "code");
            return warned(`Created: set ${answer.set} with ${codes}.`, answer);
        },
    });
}

const IMPORT_SHOWN = 5; // of what was refused
const IMPORT_CODES = 2000; // in a request

function import_ask(path, ask) {
    const { elements, texts } = list_fields("Codes", ["code"]);
    return ask({
        title: "Codes of another system",
        word: "Import codes",
        fields: elements,
        changes: () => {
            const codes = texts();
            if (codes.length === 0) throw new Problem(400, "There are no codes.");
            const sets = pieces_of(codes, IMPORT_CODES).length;
            return [
                `Stored as codes of this campaign: ${plural(codes.length, "code")}` +
                    `${sets > 1 ? `, in ${sets} sets` : ""}.`,
            ];
        },
        act: async (tell, is_open) => {
            const all = texts();
            const sum = { stored: 0, present: 0, present_revoked: 0, refused: 0 };
            const why = [];
            let done = 0;
            for (const piece of pieces_of(all, IMPORT_CODES)) {
                if (!is_open()) return null;
                if (all.length > piece.length) tell(`${count(done)} of ${count(all.length)} sent.`);
                const answer = await change("POST", `${path}/codes`, { codes: piece });
                for (const name of Object.keys(sum)) sum[name] += answer[name] ?? 0;
                for (const one of answer.warnings ?? [])
                    why.push(
                        one.replace(/^line (\d+)/, (_, line) => `Code ${Number(line) + done}`),
                    );
                done += piece.length;
            }
            const { stored, present, present_revoked, refused } = sum;
            const said = [
                `${count(stored)} stored, ${count(present)} existed already` +
                    `${present_revoked ? ` (${count(present_revoked)} revoked)` : ""}, ` +
                    `${count(refused)} refused.`,
                why.slice(0, IMPORT_SHOWN).map((one) => ` ${one}.`),
            ];
            return refused ? [h("span", { class: "refused" }, said)] : said;
        },
    });
}

function set_save_ask(set, ask) {
    return ask({
        title: `Save the codes of set ${set.set}?`,
        word: "Save",
        changes: () => [
            `${plural(set.codes, "code")} in a file, each with its state.`,
            "Anyone who has the file can use the unused codes.",
        ],
        act: async () => {
            const { codes } = await get(`/sets/${set.set}/codes?all=true`);
            const lines = codes.map((one) => csv_line([one.code, one.state]));
            csv_save(`codes-${set.set}.csv`, ["code,state\n", ...lines]);
            return `The codes of set ${set.set} are saved.`;
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

function set_end_ask(set, ask) {
    const [end, end_label] = field("valid_to", "Until", END_HINT);
    end.value = set.valid_to ?? "";
    return ask({
        title: `Change the end of set ${set.set}?`,
        word: "Change",
        fields: [end_label],
        changes: () => [
            `Its codes can be claimed until: ${set.valid_to ?? "the end of the campaign"} → ` +
                (end.value.trim() || "the end of the campaign"),
        ],
        act: async () => {
            const body = { valid_to: end.value.trim() || null };
            return warned("The end is changed.", await change("PATCH", `/sets/${set.set}`, body));
        },
    });
}

function set_row(set, ask) {
    const form = set.form ?? set.file ?? "–";
    const used = set.kind === "word" ? set.claimed : set.used;
    const about = [
        `set ${set.set}, ${set.kind}${set.complete ? "" : ", not complete"}`,
        set.for_user && `, for ${set.for_user}`,
        set.valid_to && [", until ", time(set.valid_to)],
    ];
    return [
        [h("span", { class: "mono" }, form), h("div", { class: "hint" }, about)],
        count(set.unused),
        count(used),
        count(set.revoked),
        h(
            "div",
            { class: "bar" },
            set.kind === "word"
                ? null
                : action("Save…", () => set_save_ask(set, ask), "", `set ${set.set}`),
            set.revoked_at
                ? null
                : action("Change end…", () => set_end_ask(set, ask), "", `set ${set.set}`),
            set.revoked_at
                ? badge("revoked")
                : action("Revoke…", () => set_revoke_ask(set, ask), "", `set ${set.set}`),
        ),
    ];
}

// The cards about the exchange codes of the campaign with this path.
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
        h("p", { class: "hint" }, manual_link("guides/codes", null, "Manual: exchange codes")),
        h(
            "div",
            { class: "bar" },
            action("New codes…", () => generate_ask(path, ask)),
            action("Import…", () => import_ask(path, ask)),
            action("New word…", () => word_ask(path, ask)),
        ),
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
            ["For", code.for_user],
            ["Until", code.valid_to && time(code.valid_to)],
            ["Claimed", code.claimed !== null && plural(code.claimed, "time")],
            ["User", code.user],
            ["Receive", code.receive && h("a", { href: place }, code.receive)],
            ["Used", code.used_at && time(code.used_at)],
            ["Revoked", code.revoked_at && [time(code.revoked_at), ` by ${code.revoked_by}`]],
        ]),
    );
}
