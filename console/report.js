// What became of campaigns, by day: of one campaign or of all, in a span of days.
import { get, Problem } from "./api.js";
import { csv_line, csv_save } from "./csv.js";
import { count, h, id_problem, money, say, show, table } from "./dom.js";
import { filter_form } from "./filter.js";
import { manual_link } from "./manual.js";

const PATH = "#/report";

const FIELDS = [
    { name: "coupon", label: "Campaign id", kind: "search" },
    { name: "from", label: "From", kind: "date" },
    { name: "to", label: "To", kind: "date" },
];

const HEADS = [
    ["Day", "nowrap"],
    ["Campaign", "broad"],
    ["Issued", "number"],
    ["By code", "number"],
    ["Refused", "broad"],
    ["Rejected", "number"],
    ["Voided", "number"],
    ["Held", "number"],
    ["Used", "number"],
    ["Rolled back", "number"],
    ["Discount", "number"],
    ["Given back", "number"],
];

const COLUMNS = [
    ...["coupon", "name", "day", "issued", "claimed", "refused", "rejected", "voided", "held"],
    ...["used", "rolled_back", "discount", "discount_back", "currency"],
];

const words = (status) => status.replaceAll("_", " ");

const refusals = (day) =>
    day.refused === 0
        ? "0"
        : [
              count(day.refused),
              h(
                  "div",
                  { class: "hint" },
                  Object.entries(day.refused_by)
                      .map(([status, n]) => `${words(status)}: ${count(n)}`)
                      .join(", "),
              ),
          ];

const row = (day) => [
    day.day,
    h("a", { href: `#/campaigns/${day.coupon}` }, day.name),
    count(day.issued),
    count(day.claimed),
    refusals(day),
    ...[day.rejected, day.voided, day.held, day.used, day.rolled_back].map(count),
    day.currency ? money(day.discount, day.currency) : null,
    day.currency ? money(day.discount_back, day.currency) : null,
];

function save(days) {
    const lines = days.map((day) => csv_line(COLUMNS.map((name) => day[name])));
    csv_save("report.csv", [csv_line(COLUMNS), ...lines]);
}

export function report_page(main, { query, still }) {
    const error = h("p", { class: "error", role: "alert" });
    const list = h("section", { class: "card stack" });
    const coupon = query.get("coupon") ?? "";
    main.append(
        h("h1", {}, "Report"),
        h(
            "p",
            { class: "muted" },
            "By day, in the time zone of each campaign. Discounts count on the day on which an " +
                "order used a coupon, and what was given back on the day of that.",
        ),
        filter_form(PATH, query, FIELDS),
        error,
        list,
        h("p", { class: "hint" }, manual_link("guides/console", "report")),
    );
    (async () => {
        if (id_problem(coupon)) throw new Problem(400, id_problem(coupon));
        const wanted = new URLSearchParams();
        for (const name of ["from", "to"])
            if (query.get(name)) wanted.set(name, query.get(name));
        const place = coupon ? `/campaigns/${coupon}/report` : "/report";
        const { days } = await get(wanted.size ? `${place}?${wanted}` : place);
        if (!still()) return;
        const button = h("button", { type: "button", onclick: () => save(days) }, "Save as CSV");
        show(
            list,
            table("What became of campaigns, by day", HEADS, days.map(row), "Nothing happened."),
            days.length > 0 && h("div", { class: "bar" }, button),
        );
    })().catch((problem) => {
        if (!(problem instanceof Problem)) throw problem;
        say(error, problem.message);
    });
    return () => {};
}
