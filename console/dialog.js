// A change is shown before it is made: what it does, and of which version.
import { form_begin, form_end, may_change, may_operate, Problem } from "./api.js";
import { h, say, show } from "./dom.js";

// A button that cannot be pressed a second time while the first is at work.
export async function busy(button, work) {
    if (button.getAttribute("aria-disabled") === "true") return;
    button.setAttribute("aria-disabled", "true");
    try {
        await work();
    } finally {
        button.removeAttribute("aria-disabled");
    }
}

// Shows a problem with one input, found by its name or its label, at that input, in the words of
// the form. Returns what is left to show below the form.
function problem_place(form, message) {
    const named = [...form.elements].filter((one) => one.name && one.closest("label"));
    const label_of = (one) =>
        (one.closest("label").querySelector("span") ?? one.closest("label")).textContent;
    let text = message;
    for (const one of named) {
        const name = new RegExp(`\\b${one.name}\\b`, "g");
        if (one.name.includes("_") || text.startsWith(one.name))
            text = text.replaceAll(name, label_of(one));
    }
    const begin = text.replace(/^The /, "").toLowerCase();
    const found = named
        .filter((one) => begin.startsWith(label_of(one).toLowerCase()))
        .sort((a, b) => label_of(b).length - label_of(a).length)[0];
    if (!found) return text;
    found.closest("details")?.setAttribute("open", "");
    const id = `error-of-${found.name}`;
    found.setAttribute("aria-invalid", "true");
    found.setAttribute("aria-describedby", id);
    found.closest("label").append(h("span", { class: "error", id, role: "alert" }, text));
    found.focus();
    return "";
}

function problem_clear(form) {
    for (const one of form.querySelectorAll("label .error")) one.remove();
    for (const one of form.querySelectorAll("[aria-invalid]")) {
        one.removeAttribute("aria-invalid");
        one.removeAttribute("aria-describedby");
    }
}

// `changes()` lists the effects, as texts and elements; an empty list: no change.
// `act(tell, is_open)` makes the change and returns what to say afterwards, a text or a list; if
// it takes long, it tells how far it is, and ends when the dialog is not open any more. Input in
// one of `fields` shows the changes anew. The promise resolves to what to say, or to null: nothing
// was done.
export function ask({ title, word, grave, fields = [], changes, version, act }) {
    return new Promise((resolve) => {
        const list = h("ul", {});
        const box = h("div", { class: "changes", "aria-live": "polite" }, list);
        const error = h("p", { class: "error", role: "alert" });
        const progress = h("p", { role: "status" });
        const does = h("button", { class: grave ? "grave" : "first" }, word);
        const leave = h("button", { type: "button" }, "Cancel");
        let said = null;
        const list_show = () => {
            try {
                const found = changes();
                const texts = found.length ? found : ["Nothing would change."];
                list.replaceChildren(...texts.map((one) => h("li", {}, one)));
                return found.length > 0;
            } catch (problem) {
                list.replaceChildren(h("li", {}, problem.message));
                return false;
            }
        };
        const submit = (event) => {
            event.preventDefault();
            say(error, "");
            problem_clear(form);
            if (!list_show()) {
                say(error, problem_place(form, list.textContent));
                return;
            }
            busy(does, async () => {
                try {
                    const tell = (text) => say(progress, text);
                    const done = await act(tell, () => dialog.open);
                    said = dialog.open ? done : null;
                    dialog.close();
                } catch (problem) {
                    if (!(problem instanceof Problem)) throw problem;
                    say(progress, "");
                    say(error, problem_place(form, problem.message));
                }
            });
        };
        const checked =
            version == null
                ? null
                : h(
                      "p",
                      { class: "hint" },
                      `Based on version ${version}. If the campaign has changed since, ` +
                          "nothing is done.",
                  );
        const form = h(
            "form",
            {
            method: "dialog",
            novalidate: true,
            onsubmit: submit,
            oninput: () => {
                problem_clear(form);
                list_show();
            },
        },
            h("h2", { id: "dialog-title" }, title),
            fields,
            fields.some((one) => one.querySelector?.(":required")) &&
                h("p", { class: "hint" }, "* required"),
            box,
            checked,
            h("div", { class: "foot" }, progress, error, h("div", { class: "bar" }, leave, does)),
        );
        const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
        leave.addEventListener("click", () => dialog.close());
        dialog.addEventListener("close", () => {
            form_end();
            dialog.remove();
            resolve(said);
        });
        document.body.append(dialog);
        form_begin();
        list_show();
        dialog.showModal();
    });
}

// A button that changes something; null if the session may not. `of` is its object, for its name.
export function action(word, work, kind = "", of = null) {
    if (!may_change()) return null;
    const label = of && `${word} ${of}`;
    const button = h("button", { type: "button", class: kind, "aria-label": label }, word);
    button.addEventListener("click", () => busy(button, work));
    return button;
}

// The same for what only an admin may do.
export const operator_action = (...button) => (may_operate() ? action(...button) : null);

// Moves the focus if the focused element is gone.
export function focus_keep(element) {
    if (document.activeElement === document.body) element.focus();
}

// For a page that has no versions; `note` says what was done, `again` shows what is now.
export const asking = (note, again) => async (question) => {
    show(note);
    const said = await ask(question);
    if (!said) return;
    show(note, said);
    again().then(() => focus_keep(note));
};

const WAITS = "Another person has to approve it: see Approvals.";

// What is said of a change: of one that waits for a second person, that it was not made.
export const warned = (said, answer) => [
    answer.approval && answer.state === "waiting" ? WAITS : said,
    (answer.warnings ?? []).map((one) => ` ${one}`),
];
