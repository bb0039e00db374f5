// CSV, as RFC 4180 and spreadsheets write it.
import { h } from "./dom.js";

const cell = (value) => {
    const text = String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export const csv_line = (cells) => `${cells.map(cell).join(",")}\n`;

// The rows of a text, each a list of cells.
export function csv_rows(text) {
    const rows = [[""]];
    let quoted = false;
    const plain = text.replace(/^\uFEFF/, "").replaceAll(/\r\n?/g, "\n");
    for (let i = 0; i < plain.length; i++) {
        const [one, row] = [plain[i], rows.at(-1)];
        if (quoted) {
            if (one !== '"') row[row.length - 1] += one;
            else if (plain[i + 1] === '"') row[row.length - 1] += plain[++i];
            else quoted = false;
        } else if (one === '"' && row.at(-1) === "") quoted = true;
        else if (one === ",") row.push("");
        else if (one === "\n") rows.push([""]);
        else row[row.length - 1] += one;
    }
    return rows.filter((row) => row.some((one) => one.trim() !== ""));
}

// The texts of the column with this heading; without such a heading, of the first column.
export function csv_column(text, name) {
    const rows = csv_rows(text);
    const place = rows[0]?.findIndex((one) => one.trim().toLowerCase() === name) ?? -1;
    const body = place < 0 ? rows : rows.slice(1);
    return body.map((row) => (row[Math.max(0, place)] ?? "").trim()).filter(Boolean);
}

// Has the browser save a file.
export function csv_save(name, lines) {
    const url = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
    h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url));
}
