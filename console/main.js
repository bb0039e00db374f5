// The frame: the session, the page that is shown, and the age of its data.
import { live, on_session, session_begin, session_end, session_find } from "./api.js";
import { session_get, session_is_over } from "./api.js";
import { approvals_page } from "./approvals.js";
import { budgets_page } from "./budgets.js";
import { campaign_page } from "./campaign.js";
import { campaigns_page } from "./campaigns.js";
import { history_page } from "./history.js";
import { dead_page } from "./dead.js";
import { h, say } from "./dom.js";
import { keys_page } from "./keys.js";
import { manual_page } from "./manual.js";
import { now_page } from "./now.js";
import { operations_page } from "./operations.js";
import { find_page } from "./receive.js";
import { report_page } from "./report.js";
import { webhooks_page } from "./webhooks.js";

const main = document.getElementById("main");
const nav = document.querySelector("nav");
const who = document.querySelector(".who");
const stale = document.getElementById("stale");
const leave_button = document.getElementById("leave");

let leave = null; // ends the page that is shown
let turn = 0; // of a page: a late answer of an earlier one is dropped

// What the address has after #: the path, and its parameters.
const ROUTES = [
    [/^\/$/, "Now", now_page],
    [/^\/campaigns$/, "Campaigns", campaigns_page],
    [/^\/campaigns\/([^/]+)$/, "Campaign", campaign_page],
    [/^\/find$/, "Find coupons", find_page],
    [/^\/report$/, "Report", report_page],
    [/^\/budgets$/, "Budgets", budgets_page],
    [/^\/dead$/, "Dead letters", dead_page],
    [/^\/webhooks$/, "Webhooks", webhooks_page],
    [/^\/approvals$/, "Approvals", approvals_page],
    [/^\/keys$/, "Keys", keys_page],
    [/^\/history$/, "History", history_page],
    [/^\/manual\/([^/]+)$/, "Manual", manual_page],
    [/^\/operations$/, "Operations", operations_page],
];

function address() {
    const [path, query] = (location.hash.slice(1) || "/").split("?");
    return { path, query: new URLSearchParams(query) };
}

function sign_in(main) {
    const key = h("input", {
        type: "password",
        id: "key",
        autocomplete: "current-password",
        required: true,
        spellcheck: "false",
        "aria-describedby": "key-error",
    });
    const error = h("p", { class: "error", id: "key-error", role: "alert" });
    const button = h("button", { class: "first" }, "Sign in");
    const submit = async (event) => {
        event.preventDefault();
        say(error, "");
        button.setAttribute("aria-disabled", "true");
        try {
            await session_begin(key.value.trim());
        } catch (problem) {
            const wrong = "This key is not valid: it is wrong, expired or revoked.";
            say(error, problem.status === 401 ? wrong : problem.message);
            key.select();
            key.focus();
        }
        button.removeAttribute("aria-disabled");
    };
    main.append(
        h(
            "form",
            { class: "card sign-in", onsubmit: submit },
            // For what keeps passwords.
            h("input", { type: "text", autocomplete: "username", value: "couponmq", hidden: true }),
            h("h1", {}, "Sign in"),
            session_is_over() &&
                h(
                    "p",
                    { role: "status" },
                    "Your session has ended: it expired, its key was revoked or expired, or " +
                        "coupon-admin was restarted. Sign in to return to this page.",
                ),
            h("label", {}, h("span", {}, "API key"), key),
            h(
                "p",
                { class: "hint" },
                "With the role admin, campaign, or monitor for read-only access.",
            ),
            error,
            h("div", { class: "bar" }, button),
        ),
    );
    key.focus();
    return () => {};
}

function not_found(main) {
    main.append(h("h1", {}, "Page not found"), h("p", {}, h("a", { href: "#/" }, "Now")));
    return () => {};
}

function nav_show(path) {
    const session = session_get();
    nav.hidden = who.hidden = !session;
    if (session) {
        say(document.getElementById("who"), `${session.role} ${session.user ?? session.key}`);
        leave_button.hidden = session.user != null; // whom a proxy names it also signs out
    }
    for (const link of nav.querySelectorAll("a")) {
        const target = link.getAttribute("href").slice(1);
        const named = path === "/dead" ? "/operations" : path; // that page leads there
        const here = target.split("/")[1] === named.split("/")[1];
        if (here) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
}

// Decodes a name in the path; null: it cannot be decoded.
function part_of(text) {
    try {
        return decodeURIComponent(text);
    } catch {
        return null;
    }
}

async function show() {
    const { path, query } = address();
    const mine = ++turn;
    leave?.();
    leave = null;
    main.replaceChildren();
    for (const dialog of document.querySelectorAll("dialog")) dialog.close();
    nav_show(path);
    let [page, title, found] = [sign_in, "Sign in", null];
    let part;
    if (session_get()) {
        const route = ROUTES.find(([form]) => (found = path.match(form)));
        [, title, page] = route ?? [null, "Not found", not_found];
        part = found?.[1] && part_of(found[1]);
        if (part === null) [title, page] = ["Not found", not_found];
    }
    document.title = `${title} – couponmq`;
    const still = () => mine === turn;
    leave = page(main, { part, query, still });
}

function stale_show(age) {
    const seconds = Math.round(age / 1000);
    say(stale, age == null ? "" : `This data is ${seconds} s old. Reconnecting…`);
}

leave_button.addEventListener("click", session_end);
window.addEventListener("hashchange", () => {
    show();
    main.focus();
});
on_session(show);
live.told = stale_show;
try {
    await session_find();
} catch (problem) {
    main.replaceChildren(h("p", { class: "error", role: "alert" }, problem.message));
}
if (!session_get()) show();
