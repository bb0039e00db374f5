// Gives a coupon of a campaign to listed users, in pieces, each of which goes on where it was.
import { change, Problem } from "./api.js";
import { csv_line, csv_save } from "./csv.js";
import { count, h, plural } from "./dom.js";
import { list_fields, pieces_of } from "./list.js";

const USERS_MOST = 20000; // each piece looks who has a coupon already
const PIECE_USERS = 500;
const PATIENCE_S = 20; // well below what a request of the API may take
const NAME = /^[A-Za-z0-9._-]{1,40}$/;
const SHOWN = 3;

const listed = (users) =>
    users.slice(0, SHOWN).join(", ") + (users.length > SHOWN ? ", …" : "");

function refused_button(coupon, refused) {
    const button = h("button", { type: "button" }, "Save the users without a coupon…");
    const row = (one) => csv_line([one.user, one.status, one.message]);
    button.addEventListener("click", () =>
        csv_save(`refused-${coupon}.csv`, ["user,status,message\n", ...refused.map(row)]),
    );
    return button;
}

export function distribute_ask(campaign, path, ask) {
    const { elements, texts } = list_fields("Users", ["user", "user_id"]);
    const name = h("input", { name: "name", value: "1", autocomplete: "off", spellcheck: "false" });
    const about = "under one name a user gets a coupon once, however often the list is sent";
    const label = h("span", {}, "Name of this distribution");
    const hint = h("span", { class: "hint" }, about);
    const users_of = () => [...new Set(texts())];
    return ask({
        title: `Distribute ${campaign.name}`,
        word: "Distribute",
        fields: [elements, h("label", {}, label, name, hint)],
        changes: () => {
            const users = users_of();
            const twice = texts().length - users.length;
            if (users.length === 0) throw new Problem(400, "There are no users.");
            if (users.length > USERS_MOST)
                throw new Problem(
                    400,
                    `There are ${count(users.length)} users, more than ${count(USERS_MOST)}: ` +
                        "use couponctl distribute.",
                );
            if (!NAME.test(name.value.trim()))
                throw new Problem(
                    400,
                    "Name of this distribution: allowed are 1 to 40 letters, digits and . _ -",
                );
            return [
                `One coupon for each of ${plural(users.length, "user")}: ${listed(users)}`,
                twice && `Listed more than once, and given one coupon: ${count(twice)}`,
                "Users who have the coupon of this distribution get no other one.",
            ].filter(Boolean);
        },
        act: async (tell, is_open) => {
            const users = users_of();
            const refused = [];
            let [issued, before, done] = [0, 0, 0];
            for (const piece of pieces_of(users, PIECE_USERS)) {
                if (!is_open()) return null;
                if (users.length > piece.length)
                    tell(`${count(done)} of ${count(users.length)} users done.`);
                const answer = await change("POST", `${path}/distribute`, {
                    users: piece,
                    name: name.value.trim(),
                    patience_s: PATIENCE_S,
                });
                issued += answer.issued;
                before += answer.issued_before;
                refused.push(...answer.refused_users);
                done += answer.settled;
                if (!answer.finished)
                    throw new Problem(
                        503,
                        `${count(done)} of ${count(users.length)} users are done, then it ` +
                            `stopped: ${(answer.warnings ?? []).at(-1) ?? "no answer"}. ` +
                            "Distribute again to go on.",
                    );
            }
            const said = [
                `${plural(issued, "user")} of ${count(users.length)} ` +
                    `${issued === 1 ? "has" : "have"} the coupon`,
                before ? `, ${count(before)} of them from before.` : ".",
            ];
            if (refused.length === 0) return said;
            const reasons = new Map();
            for (const { message } of refused)
                reasons.set(message, (reasons.get(message) ?? 0) + 1);
            const why = [...reasons].map(([text, n]) => `${count(n)}: ${text}`);
            return [
                ...said,
                h("span", { class: "refused" }, ` Without a coupon: ${why.join("; ")}. `),
                refused_button(campaign.coupon, refused),
            ];
        },
    });
}
