// A change is shown before it is made: what it does, and of which version.
import { may_change, Problem } from "./api.js";
import { h, say } from "./dom.js";

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

// `changes()` returns what it does, as texts and elements, an empty list: nothing; `act()` does it
// and returns what to say afterwards. `fields` are inputs; each of them shows the changes anew.
// The promise has that text, or null: nothing was done.
export function ask({ title, word, grave, fields = [], changes, version, act }) {
    return new Promise((resolve) => {
        const list = h("ul", {});
        const box = h("div", { class: "changes", "aria-live": "polite" }, list);
        const error = h("p", { class: "error", role: "alert" });
        const does = h("button", { class: grave ? "grave" : "first" }, word);
        const leave = h("button", { type: "button" }, "Cancel");
        let said = null;
        const show = () => {
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
            if (!show()) {
                say(error, list.textContent);
                return;
            }
            busy(does, async () => {
                try {
                    said = await act();
                    dialog.close();
                } catch (problem) {
                    if (!(problem instanceof Problem)) throw problem;
                    say(error, problem.message);
                }
            });
        };
        const checked =
            version == null
                ? null
                : h(
                      "p",
                      { class: "hint" },
                      `Checked: version ${version}. If somebody has changed the campaign since, ` +
                          "nothing is done.",
                  );
        const form = h(
            "form",
            { method: "dialog", novalidate: true, onsubmit: submit, oninput: show },
            h("h2", { id: "dialog-title" }, title),
            fields,
            box,
            checked,
            error,
            h("div", { class: "bar" }, leave, does),
        );
        const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
        leave.addEventListener("click", () => dialog.close());
        dialog.addEventListener("close", () => {
            dialog.remove();
            resolve(said);
        });
        document.body.append(dialog);
        show();
        dialog.showModal();
    });
}

// A button of who may change something; of others there is none.
export function action(word, work, kind = "") {
    if (!may_change()) return null;
    const button = h("button", { type: "button", class: kind }, word);
    button.addEventListener("click", () => busy(button, work));
    return button;
}

export const warned = (text, answer) => [text, ...(answer.warnings ?? [])].join(" ");
