// What a list shows: a form whose fields are parameters of the address, and links to its pages.
// Each page has an address, so the browser's Back button leads to what was shown before.
import { h } from "./dom.js";

const input_of = ({ name, kind, options }) =>
    kind === "select"
        ? h(
              "select",
              { name },
              options.map(([value, text]) => h("option", { value }, text)),
          )
        : h("input", { name, type: kind ?? "text", autocomplete: "off", spellcheck: "false" });

const address = (path, query) => (query.size ? `${path}?${query}` : path);

// Each field is { name, label, kind, options }. Another choice begins with the first page.
export function filter_form(path, query, fields) {
    const inputs = fields.map((field) => {
        const input = input_of(field);
        input.value = query.get(field.name) ?? (field.kind === "select" ? field.options[0][0] : "");
        return input;
    });
    const submit = (event) => {
        event?.preventDefault();
        const wanted = new URLSearchParams();
        for (const input of inputs) {
            const is_default = input.matches("select") && input.selectedIndex === 0;
            if (input.value.trim() && !is_default) wanted.set(input.name, input.value.trim());
        }
        location.hash = address(path, wanted);
    };
    const clear = query.size > 0 && h("a", { class: "button", href: path }, "Show all");
    return h(
        "form",
        { class: "card filters", role: "search", onsubmit: submit, onchange: (event) =>
            event.target.matches("select") && submit() },
        fields.map(({ label }, i) => h("label", {}, h("span", {}, label), inputs[i])),
        h("div", { class: "bar" }, h("button", { class: "first" }, "Find"), clear),
    );
}

// The parameters of the API for days in the address: from the begin of one to the end of another,
// in the zone of the reader.
export function span_of(query) {
    const span = {};
    for (const [name, clock] of [["from", "00:00:00"], ["to", "23:59:59.999"]]) {
        const at = new Date(`${query.get(name)}T${clock}`);
        if (!isNaN(at)) span[name] = at.toISOString();
    }
    return span;
}

// `before` and `next` are the values of the parameter for the pages beside this one; null: there is
// none; "": it is the first one.
export function page_links(name, path, query, parameter, before, next) {
    const link = (text, value) => {
        if (value === null) return null;
        const other = new URLSearchParams(query);
        if (value === "") other.delete(parameter);
        else other.set(parameter, value);
        return h("a", { class: "button", href: address(path, other) }, text);
    };
    const links = [link("Previous page", before), link("Next page", next)];
    return links.some(Boolean) ? h("nav", { class: "bar", "aria-label": name }, links) : null;
}
