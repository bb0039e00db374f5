// Lines over time, and schedules, as SVG; with the values under the pointer, and as a table.
import { clock, count, h, moment, tall } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 220;
const LEFT = 58;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 26;

function s(name, attributes = {}, ...children) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
}

// The least of 1, 2, 5, 10, … that is not below it.
function round_up(value) {
    const ten = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10].find((factor) => factor * ten >= value) * ten;
}

// A series is { name, points: [[ms, value], …], kind, filled, holds, text }; with `holds` a value
// is that of its point until the next one, and the line has steps; `text` writes a value. `about`
// says what is to be seen.
function drawing(width, series, from, to, about) {
    const most = Math.max(1, ...series.flatMap((one) => one.points.map(([, value]) => value)));
    const top = round_up(most);
    const right = width - RIGHT;
    const bottom = HEIGHT - BOTTOM;
    const x = (ms) => LEFT + ((ms - from) / Math.max(1, to - from)) * (right - LEFT);
    const y = (value) => bottom - (value / top) * (bottom - TOP);
    const box = { width, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": about };
    const svg = s("svg", box);

    for (const part of [0, 0.5, 1]) {
        const value = part * top;
        if (value !== Math.round(value)) continue;
        svg.append(
            s("line", { class: "grid", x1: LEFT, x2: right, y1: y(value), y2: y(value) }),
            s("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, count(value)),
        );
    }
    const steps = width > 500 ? [0, 0.25, 0.5, 0.75, 1] : [0, 1];
    for (const part of steps) {
        const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
        const ms = from + part * (to - from);
        svg.append(s("text", { x: x(ms), y: HEIGHT - 6, "text-anchor": anchor }, clock(ms)));
    }
    for (const { points, kind, filled, holds } of series) {
        if (points.length === 0) continue;
        const path = points.flatMap(([ms, value], i) => {
            const at = x(ms).toFixed(1);
            const point = `${at} ${y(value).toFixed(1)}`;
            return holds && i > 0 ? [`${at} ${y(points[i - 1][1]).toFixed(1)}`, point] : [point];
        });
        const line = `M${path.join("L")}`;
        if (filled) {
            const last = x(points.at(-1)[0]).toFixed(1);
            const area = `${line}L${last} ${bottom}L${x(points[0][0]).toFixed(1)} ${bottom}Z`;
            svg.append(s("path", { class: "area", d: area }));
        }
        svg.append(s("path", { class: `line ${kind ?? ""}`, d: line }));
    }
    return svg;
}

// ---- the values at one moment

// Which point of the series is meant by a moment: with `holds` the last one that is not later.
function point_at({ points, holds }, ms) {
    const after = points.findIndex(([at]) => at > ms);
    const last = after < 0 ? points.length - 1 : after - 1;
    if (last < 0) return points[0];
    const next = points[last + 1];
    if (holds || !next) return points[last];
    return ms - points[last][0] > next[0] - ms ? next : points[last];
}

// The moment below the pointer, as a line in the drawing and as a text beside it.
function reading_show(state) {
    const { svg, box, series, from, to, pointer } = state;
    svg.querySelector(".cursor")?.remove();
    const shown = series.filter(({ points }) => points.length > 0);
    box.hidden = pointer == null || shown.length === 0;
    if (box.hidden) return;
    const width = svg.clientWidth || 600;
    const span = Math.max(1, width - RIGHT - LEFT);
    const wanted = from + Math.min(1, Math.max(0, (pointer - LEFT) / span)) * (to - from);
    const found = shown.map((one) => [one, point_at(one, wanted)]);
    const ms = shown[0].holds ? wanted : found[0][1][0];
    const x = LEFT + ((ms - from) / Math.max(1, to - from)) * span;
    svg.append(s("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    box.replaceChildren(
        h("strong", {}, moment(ms)),
        ...found.map(([{ kind, name, text = count }, [, value]]) =>
            h("span", { class: `key ${kind ?? ""}` }, `${name} ${text(value)}`),
        ),
    );
    const is_right = x + 10 + box.offsetWidth <= width;
    box.style.left = `${is_right ? x + 10 : Math.max(0, x - 10 - box.offsetWidth)}px`;
}

// ---- the values as a table

const ROWS_MOST = 120;

function table_show({ details, body, series }) {
    if (!details.open) return;
    const points = series[0].points;
    const step = Math.max(1, Math.ceil(points.length / ROWS_MOST));
    const rows = points.filter((_, i) => i % step === 0 || i === points.length - 1).reverse();
    body.replaceChildren(
        ...rows.map(([ms]) =>
            h(
                "tr",
                {},
                h("th", { scope: "row" }, moment(ms)),
                series.map((one) => {
                    const value = point_at(one, ms)?.[1];
                    const text = value == null ? "–" : (one.text ?? count)(value);
                    return h("td", { class: "number", "data-name": one.name }, text);
                }),
            ),
        ),
    );
}

function state_make(figure, series) {
    const state = { pointer: null };
    state.box = h("div", { class: "reading", hidden: true, "aria-hidden": "true" });
    state.body = h("tbody");
    const heads = ["Time", ...series.map(({ name }) => name)];
    const cells = heads.map((name, i) => h("th", { scope: "col", class: i ? "number" : "" }, name));
    const table = h(
        "table",
        { class: "rows" },
        h("caption", {}, "Values of the chart, latest first"),
        h("thead", {}, h("tr", {}, cells)),
        state.body,
    );
    state.details = h(
        "details",
        { class: "values", ontoggle: () => table_show(state) },
        h("summary", {}, "As a table"),
        tall("Values of the chart", table),
    );
    figure.addEventListener("pointermove", (event) => {
        const place = state.svg.getBoundingClientRect();
        const is_below = event.clientY > place.bottom;
        state.pointer = is_below ? null : event.clientX - place.left;
        reading_show(state);
    });
    figure.addEventListener("pointerleave", () => {
        state.pointer = null;
        reading_show(state);
    });
    return state;
}

const figures = new WeakMap();

function draw(figure) {
    const state = figures.get(figure);
    const { series, from, to, about } = state;
    const svg = drawing(figure.clientWidth || 600, series, from, to, about);
    if (state.svg?.parentElement === figure) state.svg.replaceWith(svg);
    else figure.replaceChildren(svg, state.box, state.details);
    state.svg = svg;
    reading_show(state);
    table_show(state);
}

const sizes = new ResizeObserver((changed) => {
    for (const { target } of changed) if (target.querySelector("svg")) draw(target);
});

// Draws in the figure, and again once its width is another one: the letters keep their size.
export function chart(figure, series, from, to, about) {
    if (!figures.has(figure)) figures.set(figure, state_make(figure, series));
    Object.assign(figures.get(figure), { series, from, to, about });
    draw(figure);
    sizes.observe(figure);
}

// ---- a schedule

const ROW = 38;

// Spans, one a row: { name, from, to, kind } in ms; null: without an end on this side. `now` is a
// line through all of them.
export function timeline(width, rows, now, about) {
    const known = [now, ...rows.flatMap(({ from, to }) => [from, to])].filter((ms) => ms != null);
    const [first, last] = [Math.min(...known), Math.max(...known)];
    const pad = Math.max(3600000, (last - first) * 0.06);
    const [from, to] = [first - pad, last + pad];
    const x = (ms) => ((ms - from) / (to - from)) * width;
    const height = rows.length * ROW + BOTTOM;
    const bottom = height - BOTTOM;
    const box = { width, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": about };
    const svg = s("svg", { ...box, class: "timeline" });
    const fits = Math.floor(width / 7.5);
    rows.forEach((row, i) => {
        const left = row.from == null ? 0 : x(row.from);
        const right = row.to == null ? width : x(row.to);
        const y = i * ROW;
        const shown = row.name.length > fits ? `${row.name.slice(0, fits - 1)}…` : row.name;
        svg.append(
            s("text", { x: 2, y: y + 15 }, shown),
            s("rect", {
                class: `span ${row.kind ?? ""}`,
                x: left.toFixed(1),
                y: y + 21,
                width: Math.max(3, right - left).toFixed(1),
                height: 9,
                rx: 4,
            }),
        );
    });
    svg.append(s("line", { class: "grid", x1: 0, x2: width, y1: bottom, y2: bottom }));
    const digits = to - from > 4 * 86400000 ? 10 : 16; // a day, or also hour and minute
    const places = { start: 0, middle: 0.5, end: 1 };
    for (const [anchor, part] of Object.entries(places)) {
        const place = { x: part * width, y: height - 6, "text-anchor": anchor };
        svg.append(s("text", place, moment(from + part * (to - from)).slice(0, digits)));
    }
    svg.append(s("line", { class: "now", x1: x(now), x2: x(now), y1: 0, y2: bottom }));
    return svg;
}

const lines = new WeakMap();
const line_sizes = new ResizeObserver((changed) => {
    for (const { target } of changed) {
        const width = target.clientWidth;
        const [drawn, make] = lines.get(target);
        if (!width || drawn === width) continue;
        lines.set(target, [width, make]);
        target.replaceChildren(make(width));
    }
});

// A figure with a schedule, in its own width once it is shown.
export function timeline_figure(rows, about) {
    const figure = h("figure");
    lines.set(figure, [0, (width) => timeline(width, rows, Date.now(), about)]);
    line_sizes.observe(figure);
    return figure;
}
