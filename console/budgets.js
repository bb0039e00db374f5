// The budgets that campaigns share: list, create, set the amount, history.
import { change, get, may_change, Problem } from "./api.js";
import { action, asking, busy, warned } from "./dialog.js";
import { amount_read, card, h, level, money, note_make, plural, say } from "./dom.js";
import { show, table, time } from "./dom.js";

const path_of = (budget) => `/budgets/${encodeURIComponent(budget.name)}`;

function field(name, label, hint) {
    const input = h("input", { name, autocomplete: "off", spellcheck: "false" });
    return [input, h("label", {}, h("span", {}, label), input, h("span", { class: "hint" }, hint))];
}

function create_ask(ask) {
    const [name, name_label] = field("name", "Name", "letters, digits, '.', '_' and '-'");
    const [amount, amount_label] = field("amount", "Amount", "50000.00");
    const [currency, currency_label] = field("currency", "Currency", "EUR");
    for (const input of [name, amount, currency]) input.required = true;
    const inputs = { Name: name, Amount: amount, Currency: currency };
    return ask({
        title: "New budget",
        word: "Create budget",
        fields: [name_label, h("div", { class: "fields" }, amount_label, currency_label)],
        changes: () => {
            for (const [label, input] of Object.entries(inputs))
                if (input.value.trim() === "") throw new Problem(400, `${label} is empty.`);
            const [what, of] = [amount, currency].map((input) => input.value.trim());
            const units = amount_read("Amount", what, of);
            return [
                `Budget ${name.value.trim()} has ${money(units, of)}. ` +
                    "Its name and its currency cannot be changed.",
                "A campaign draws on it once its terms name it.",
            ];
        },
        act: async () => {
            const body = Object.fromEntries(
                Object.values(inputs).map((input) => [input.name, input.value.trim()]),
            );
            body.amount = amount_read("Amount", body.amount, body.currency);
            return warned("The budget is created.", await change("POST", "/budgets", body));
        },
    });
}

function set_ask(budget, ask) {
    const [amount, label] = field("amount", "Amount", "in total, including what is spent");
    const { currency } = budget;
    const taken = budget.spent + budget.held;
    return ask({
        title: `Amount of ${budget.name}`,
        word: "Set amount",
        fields: [label],
        changes: () => {
            if (amount.value.trim() === "") throw new Problem(400, "The amount is empty.");
            const units = amount_read("Amount", amount.value.trim(), currency, taken);
            const list = [
                `Amount: ${money(budget.amount, currency)} → ${money(units, currency)}`,
                `Spent or held: ${money(taken, currency)}. The amount cannot be less.`,
            ];
            if (budget.campaigns.length)
                list.push(
                    "Campaigns that it has paused resume when it has room for their discount.",
                );
            return list;
        },
        act: async () => {
            const body = { amount: amount_read("Amount", amount.value.trim(), currency) };
            return warned(
                "The amount is set.",
                await change("PATCH", path_of(budget), body),
            );
        },
    });
}

async function history_card(budget) {
    const { currency, history } = await get(path_of(budget));
    return card(
        `History of ${budget.name}`,
        table(
            "Amounts that operators have set, latest first",
            [
                ["When", "nowrap"],
                ["By", ""],
                ["Amount", "number"],
                ["Spent then", "number"],
                ["Held then", "number"],
            ],
            history
                .reverse()
                .map((entry) => [
                    time(entry.at),
                    h("span", { class: "mono" }, entry.by),
                    money(entry.amount, currency),
                    money(entry.spent, currency),
                    money(entry.held, currency),
                ]),
        ),
    );
}

function left_cell(budget) {
    const bar = level(`Left of ${budget.name}`);
    bar.value = budget.left / Math.max(1, budget.amount);
    return [money(budget.left, budget.currency), bar];
}

function budget_row(budget, ask, history) {
    const { currency } = budget;
    const open = h(
        "button",
        { type: "button", "aria-label": `History of ${budget.name}` },
        "History",
    );
    open.addEventListener("click", () => busy(open, () => history(budget)));
    return [
        h("span", { class: "mono" }, budget.name),
        money(budget.amount, currency),
        money(budget.spent, currency),
        money(budget.held, currency),
        left_cell(budget),
        budget.campaigns.length === 0
            ? null
            : budget.campaigns.map((coupon, i) => [
                  i ? ", " : "",
                  h("a", { href: `#/campaigns/${coupon}` }, coupon),
              ]),
        h(
            "div",
            { class: "bar" },
            open,
            action("Amount…", () => set_ask(budget, ask), "", `of ${budget.name}`),
        ),
    ];
}

export function budgets_page(main, { still }) {
    const error = h("p", { class: "error", role: "alert" });
    const note = note_make();
    const list = h("section", { class: "card" });
    const box = h("div", { class: "stack", "aria-live": "polite" });
    const heads = [
        ["Name", ""],
        ["Amount", "number"],
        ["Spent", "number"],
        ["Held", "number"],
        ["Left", "number"],
        ["Campaigns", "broad"],
        [may_change() ? "Change" : "Details", ""],
    ];

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
            const { budgets } = await get("/budgets");
            if (!still()) return;
            show(box);
            const rows = budgets.map((budget) => budget_row(budget, ask, history));
            const caption = `${plural(rows.length, "budget")}, by name`;
            show(list, table(caption, heads, rows, "There are no budgets."));
        });
    const history = (budget) => tried(async () => show(box, await history_card(budget)));
    const ask = asking(note, load);
    main.append(
        h(
            "div",
            { class: "bar" },
            h("h1", {}, "Budgets"),
            action("New budget…", () => create_ask(ask), "first"),
        ),
        h(
            "p",
            { class: "muted" },
            "The total discount that campaigns may give; several campaigns may share a budget. " +
                "Holds and uses draw on it. It pauses its campaigns when it has no room for " +
                "another discount.",
        ),
        error,
        note,
        list,
        box,
    );
    load();
    return () => {};
}
