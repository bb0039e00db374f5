// The page of those who run the installation: what is in flight, and the health of each part.
import { live } from "./api.js";
import { card, count, h, milliseconds, plural, Rows, say, time } from "./dom.js";
import { figures, of_kind, Tiles, Troubles } from "./now.js";

function part_row() {
    const name = h("span");
    const address = h("div", { class: "hint mono" });
    const state = h("td");
    const about = h("td", { class: "muted broad" });
    let shown = "";
    return {
        element: h("tr", {}, h("th", { scope: "row" }, name, address), state, about),
        update({ title, place, kind, word, text }) {
            say(name, title);
            say(address, place ?? "");
            say(about, text);
            if (shown === word) return;
            shown = word;
            state.replaceChildren(h("span", { class: `badge ${kind}` }, word));
        },
    };
}

function store_part(title, store) {
    return store.error
        ? { title, kind: "bad", word: "away", text: store.error }
        : { title, kind: "good", word: "up", text: `answers in ${milliseconds(store.us / 1e6)}` };
}

// RabbitMQ as gateways and workers see it: coupon-admin has no connection to it.
function broker_part(sample) {
    const states = [
        ...of_kind(sample, "gateway").map((one) => one.amqp_up >= one.processes),
        ...of_kind(sample, "worker").map((one) => one.worker_consumer_up > 0),
    ];
    const up = states.filter(Boolean).length;
    const text = `${up} of ${plural(states.length, "process", "processes")} connected`;
    if (states.length === 0) return { title: "RabbitMQ", kind: "", word: "not known", text: "" };
    if (up === states.length) return { title: "RabbitMQ", kind: "good", word: "up", text };
    return { title: "RabbitMQ", kind: up ? "warn" : "bad", word: up ? "in part" : "away", text };
}

function process_part(one) {
    const title = { gateway: "Gateway", worker: "Worker" }[one.kind] ?? "Process";
    const place = one.address;
    if (one.error) return { title, place, kind: "bad", word: "away", text: one.error };
    const ready = one.readyz?.ready !== false;
    const metrics = one.metrics;
    const text =
        one.kind === "gateway"
            ? `${plural(metrics.connections + metrics.http_connections, "connection")}, ` +
              `${plural(metrics.processes_ready, "process", "processes")} ready`
            : `${plural(metrics.worker_held, "message")} held` +
              (metrics.keeper_elected ? "; is the keeper" : "");
    const [kind, word] = ready ? ["good", "ready"] : ["bad", "not ready"];
    return { title, place, kind, word, text };
}

function parts(sample) {
    const keeper = sample.processes.find((one) => one.metrics?.keeper_elected);
    const list = [
        ["postgresql", store_part("PostgreSQL", sample.stores.postgresql)],
        ["redis", store_part("Redis", sample.stores.redis)],
        ["rabbitmq", broker_part(sample)],
        [
            "keeper",
            keeper
                ? { title: "Keeper", kind: "good", word: "elected", text: keeper.address }
                : { title: "Keeper", kind: "bad", word: "none", text: "" },
        ],
    ];
    for (const one of sample.processes) list.push([one.address, process_part(one)]);
    return list;
}

// ---- the page

const TILES = {
    in_flight: "Requests in flight",
    unsettled: "Receives in flight",
    queue: "Queue",
    outbox: "Outbox",
    dead: "Dead letters",
};

export function operations_page(main) {
    const trouble = new Troubles();
    const tiles = new Tiles(TILES);
    const health = new Rows(
        "Health",
        [
            ["Part", ""],
            ["State", ""],
            ["Details", ""],
        ],
        part_row,
    );
    const as_of = h("p", { class: "muted", id: "as-of" });
    main.append(
        h(
            "div",
            { class: "bar" },
            h("h1", {}, "Operations"),
            as_of,
            h("a", { class: "button end", href: "#/dead" }, "Dead letters"),
        ),
        trouble.element,
        tiles.element,
        card("Health", health.element),
    );
    return live.take((sample) => {
        const now = figures(sample);
        as_of.replaceChildren("as of ", time(sample.at));
        trouble.show(sample);
        for (const key of Object.keys(TILES)) tiles.show(key, count(now[key]));
        tiles.show("dead", count(now.dead), now.dead ? "warn" : "");
        health.show(parts(sample));
    });
}
