// A list of texts that a form takes: typed, or a column of a file; and sent in pieces.
import { Problem } from "./api.js";
import { csv_rows } from "./csv.js";
import { h } from "./dom.js";

const PIECE_BYTES = 50000; // a request has at most 64 KiB

// The characters of a file: UTF-8, or UTF-16 with its mark.
async function text_read(file) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    const mark = bytes.length > 1 ? (bytes[0] << 8) | bytes[1] : 0;
    const name = mark === 0xfffe ? "utf-16le" : mark === 0xfeff ? "utf-16be" : "utf-8";
    try {
        return new TextDecoder(name, { fatal: true }).decode(bytes);
    } catch {
        throw new Problem(400, `${file.name} is not UTF-8: save it as CSV UTF-8.`);
    }
}

const OWNERS = "account|client|contact|coupon|customer|e-?mail|login|member|phone|user";
const IDS = "address|code|id|name|no|number|uid|uuid";
const HEADING = new RegExp(`^(${OWNERS}|${IDS})s?[ _-]?(${IDS})?s?$`, "i");

// Whether the first of these texts names the others.
const is_heading = ([first, ...others]) =>
    HEADING.test(first) ||
    (others.length > 0 &&
        [/\d/, /@/].some((sign) => !sign.test(first) && others.every((one) => sign.test(one))));

// The texts of the column with one of these names, or of a file without columns.
function column_read(text, names) {
    const rows = csv_rows(text);
    if (rows.length === 0) return [];
    const heading = rows[0].map((one) => one.trim().toLowerCase());
    const places = heading.flatMap((one, place) => (names.includes(one) ? [place] : []));
    const wanted = names.join(" or ");
    if (places.length > 1) throw new Problem(400, `More than one column is ${wanted}.`);
    if (places.length === 0 && heading.length > 1)
        throw new Problem(400, `The columns are ${rows[0].join(", ")}: none is ${wanted}.`);
    const wrong = rows.findIndex((row) => row.length !== rows[0].length);
    if (wrong >= 0)
        throw new Problem(
            400,
            `Row ${wrong + 1} has another number of columns than the first one: ` +
                rows[wrong].join(", "),
        );
    const texts = rows.map((row) => row[places[0] ?? 0].trim());
    if (places.length) return texts.slice(1).filter(Boolean);
    if (is_heading(texts))
        throw new Problem(400, `${texts[0]} looks like a heading: name the column ${wanted}.`);
    return texts;
}

// Fields for a list, and what they have. `names` are those of the column, the first one that of
// what is typed.
export function list_fields(label, names) {
    const name = `${names[0]}s`;
    const area = h("textarea", { name, rows: "8", spellcheck: "false" });
    const picker = h("input", { name: "file", type: "file", accept: ".csv,.tsv,.txt,text/plain" });
    const field = (input, word, hint) =>
        h("label", {}, h("span", {}, word), input, h("span", { class: "hint" }, hint));
    const column = names.join(" or ");
    const about = `CSV with a column ${column}, or one a line; instead of what is typed`;
    let in_file = () => [];
    picker.addEventListener("change", async () => {
        let found, wrong;
        try {
            if (picker.files.length) found = column_read(await text_read(picker.files[0]), names);
        } catch (problem) {
            if (!(problem instanceof Problem)) throw problem;
            wrong = problem;
        }
        in_file = () => {
            if (wrong) throw wrong;
            return found;
        };
        picker.dispatchEvent(new Event("input", { bubbles: true }));
    });
    return {
        elements: [field(area, label, "one a line"), field(picker, "File", about)],
        texts: () =>
            picker.files.length ? in_file() : area.value.trim().split(/\s*\n\s*/).filter(Boolean),
    };
}

// The texts in pieces of at most so many, which a request can have.
export function pieces_of(texts, most) {
    const pieces = [];
    const utf8 = new TextEncoder();
    let bytes = 0;
    for (const text of texts) {
        const own = utf8.encode(JSON.stringify(text)).length + 1;
        const is_full = bytes + own > PIECE_BYTES || pieces.at(-1)?.length === most;
        if (pieces.length === 0 || is_full) {
            pieces.push([]);
            bytes = 0;
        }
        bytes += own;
        pieces.at(-1).push(text);
    }
    return pieces;
}
