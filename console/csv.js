// CSV, as RFC 4180 and spreadsheets write it.
import { h } from "./dom.js";

const cell = (value) => {
    const text = String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export const csv_line = (cells) => `${cells.map(cell).join(",")}\n`;

// What separates the columns: what the first line has most of, outside of quotes.
function delimiter_of(text) {
    const heading = text.split("\n", 1)[0].replaceAll(/"[^"]*"/g, "");
    const columns = (delimiter) => heading.split(delimiter).length;
    return [",", ";", "\t"].reduce((a, b) => (columns(b) > columns(a) ? b : a));
}

// The rows of a text, each a list of cells. A line sep=; before the first one is left out.
export function csv_rows(text) {
    const rows = [[""]];
    let quoted = false;
    const begun = text.replace(/^\uFEFF/, "").replaceAll(/\r\n?/g, "\n");
    const told = /^sep=([,;\t])\n/.exec(begun);
    const plain = told ? begun.slice(told[0].length) : begun;
    const delimiter = told ? told[1] : delimiter_of(plain);
    for (let i = 0; i < plain.length; i++) {
        const [one, row] = [plain[i], rows.at(-1)];
        if (quoted) {
            if (one !== '"') row[row.length - 1] += one;
            else if (plain[i + 1] === '"') row[row.length - 1] += plain[++i];
            else quoted = false;
        } else if (one === '"' && row.at(-1) === "") quoted = true;
        else if (one === delimiter) row.push("");
        else if (one === "\n") rows.push([""]);
        else row[row.length - 1] += one;
    }
    return rows.filter((row) => row.some((one) => one.trim() !== ""));
}

// Has the browser save a file.
export function csv_save(name, lines) {
    const url = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
    h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url));
}
