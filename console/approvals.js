// What waits for a second person: approve or refuse it.
import { change, get, may_change, Problem, session_get } from "./api.js";
import { action, asking, warned } from "./dialog.js";
import { badge, h, note_make, plural, say, show, table, time } from "./dom.js";

const path_of = (one) => `/approvals/${one.approval}`;
const who_am_i = () => session_get()?.user ?? session_get()?.key;

// "close 1001", "void 1001.42.01JD….0": the request is that of couponctl.
function words(one) {
    const { command, arguments: list, coupon, user } = one.request;
    return [command, ...(list ?? []), coupon, user].filter(Boolean).join(" ");
}

function give_ask(one, ask) {
    return ask({
        title: `Approve: ${words(one)}?`,
        word: "Approve",
        grave: true,
        changes: () => [
            `It is done now, as ${one.asked_by} has asked.`,
            ...(one.request.why ? [`Why: ${one.request.why}`] : []),
            "This cannot be undone.",
        ],
        act: async () => warned("Done.", await change("POST", `${path_of(one)}/give`, {})),
    });
}

function refuse_ask(one, ask) {
    return ask({
        title: `Refuse: ${words(one)}?`,
        word: "Refuse",
        changes: () => [`It is not done, and ${one.asked_by} has to ask again.`],
        act: async () => warned("Refused.", await change("POST", `${path_of(one)}/refuse`, {})),
    });
}

function row(one, ask) {
    const of = words(one);
    const is_open = ["waiting", "given"].includes(one.state);
    return [
        [h("span", { class: "mono" }, of), h("div", { class: "hint" }, one.request.why)],
        [one.asked_by, h("div", { class: "hint" }, time(one.asked_at))],
        time(one.expires_at),
        [badge(one.state), h("div", { class: "hint" }, one.decided_by && `by ${one.decided_by}`)],
        ...(may_change()
            ? [
                  h(
                      "div",
                      { class: "bar" },
                      is_open && one.asked_by !== who_am_i()
                          ? action("Approve…", () => give_ask(one, ask), "", of)
                          : null,
                      one.state === "waiting"
                          ? action("Refuse…", () => refuse_ask(one, ask), "", of)
                          : null,
                  ),
              ]
            : []),
    ];
}

const HEADS = [
    ["What", "broad"],
    ["Asked by", ""],
    ["Expires", "nowrap"],
    ["State", ""],
    ["Change", "broad"],
];

export function approvals_page(main, { still }) {
    const error = h("p", { class: "error", role: "alert" });
    const note = note_make();
    const list = h("section", { class: "card" });
    const load = async () => {
        say(error, "");
        try {
            const { approvals } = await get("/approvals");
            if (!still()) return;
            const heads = may_change() ? HEADS : HEADS.slice(0, -1);
            const caption = `${plural(approvals.length, "request")}, newest first`;
            const rows = approvals.map((one) => row(one, ask));
            show(list, table(caption, heads, rows, "Nothing was asked for."));
        } catch (problem) {
            if (!(problem instanceof Problem)) throw problem;
            say(error, problem.message);
        }
    };
    const ask = asking(note, load);
    main.append(
        h("h1", {}, "Approvals"),
        h("p", { class: "muted" }, "What is done only when a second person agrees, within 24 h."),
        error,
        note,
        list,
    );
    load();
    return () => {};
}
