// Lines over time, as SVG.
import { clock, count } from "./dom.js";

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

// A series is { points: [[ms, value], …], kind, filled, holds }; with `holds` a value is that of
// its point until the next one, and the line has steps. `about` says what is to be seen.
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

const figures = new WeakMap();
const draw = (figure) =>
    figure.replaceChildren(drawing(figure.clientWidth || 600, ...figures.get(figure)));
const sizes = new ResizeObserver((changed) => {
    for (const { target } of changed) if (target.querySelector("svg")) draw(target);
});

// Draws in the figure, and again once its width is another one: the letters keep their size.
export function chart(figure, ...what) {
    figures.set(figure, what);
    draw(figure);
    sizes.observe(figure);
}
