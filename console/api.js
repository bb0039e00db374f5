// The API of coupon-admin, the session, and the stream of samples, one a second.

const BASE = "/admin/v1";
const SESSION = "/admin/session";
const OLD_MS = 3000; // a sample is due once a second
const LOST_MS = 10000; // then a connection is given up, although nothing has ended it
const SESSION_MS = 2000;
const RETRY_MS = [500, 1000, 1000, 1000, 1000, 2000, 5000];

let session = null; // key or user, role, csrf_token, ends_at
let is_over = false; // it has ended, and not by the button
const watchers = new Set(); // told when the session begins or ends

export class Problem extends Error {
    constructor(status, detail) {
        super(detail);
        this.status = status;
    }
}

async function send(method, path, body, version, key) {
    const headers = {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (version != null) headers["If-Match"] = `"${version}"`;
    if (key) headers["Idempotency-Key"] = `"${key}"`;
    if (method !== "GET" && session) headers["X-CSRF-Token"] = session.csrf_token;
    let answer, text;
    try {
        answer = await fetch(path, {
            method,
            headers,
            body: body === undefined ? undefined : JSON.stringify(body),
            signal: path === SESSION ? AbortSignal.timeout(SESSION_MS) : undefined,
        });
        text = await answer.text();
    } catch {
        throw new Problem(0, "coupon-admin does not answer. Try again.");
    }
    let object = {};
    try {
        object = text ? JSON.parse(text) : {};
    } catch {
        throw new Problem(answer.status, `The answer cannot be read (HTTP ${answer.status}).`);
    }
    if (answer.ok) return object;
    if (answer.status === 401 && session) session_set(null);
    throw new Problem(answer.status, object.detail ?? `HTTP ${answer.status}`);
}

export const get = (path) => send("GET", BASE + path);

// ---- changes

// The request of the open form that has no answer yet, and its key: when the form is submitted
// again, what it asks for is done once. Another request, or a new form, has a new key.
let attempt = null;
const UNKNOWN = 22; // the code of an answer of a gateway: it may have been done

export const form_begin = () => (attempt = { request: null, key: null });
export const form_end = () => (attempt = null);

export async function change(method, path, body, version) {
    const form = method === "POST" ? attempt : null;
    const request = JSON.stringify([path, body, version ?? null]);
    if (form && form.request !== request) {
        const bytes = crypto.getRandomValues(new Uint8Array(16));
        form.request = request;
        form.key = Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
    }
    try {
        const answer = await send(method, BASE + path, body, version, form?.key);
        if (form && answer.code !== UNKNOWN) form.request = null;
        return answer;
    } catch (problem) {
        const is_refused = problem.status >= 400 && problem.status < 500;
        if (form && is_refused) form.request = null;
        throw problem;
    }
}

// ---- the session

function session_set(value, leaves = false) {
    const same = value?.csrf_token === session?.csrf_token;
    is_over = !value && !leaves && (is_over || session != null);
    session = value;
    if (same) return;
    live.adjust();
    for (const watcher of watchers) watcher();
}

export const on_session = (watcher) => watchers.add(watcher);
export const session_get = () => session;
export const session_is_over = () => is_over;
// Runs campaigns; and what concerns the whole installation.
export const may_change = () => ["campaign", "admin"].includes(session?.role);
export const may_operate = () => session?.role === "admin";

export async function session_find() {
    try {
        session_set(await send("GET", SESSION));
    } catch (problem) {
        if (problem.status !== 401) throw problem;
        session_set(null);
    }
}

export async function session_begin(key) {
    session_set(await send("POST", SESSION, { key }));
}

export async function session_end() {
    try {
        await send("DELETE", SESSION);
    } catch (problem) {
        if (problem.status !== 401) throw problem;
    }
    session_set(null, true);
}

// ---- samples: while the page is looked at, and somebody wants them

class Live {
    constructor() {
        this.takers = new Set();
        this.coupons = "";
        this.source = null;
        this.retries = 0;
        this.timer = 0;
        this.last_ms = 0; // when the last one came
        this.opened_ms = 0;
        document.addEventListener("visibilitychange", () => this.adjust());
        setInterval(() => this.look(), 1000);
    }

    // How old what is shown is; null: nothing is.
    age_ms() {
        if (this.takers.size === 0 || !this.begun_ms) return null;
        const age = performance.now() - (this.last_ms || this.begun_ms);
        return age > OLD_MS ? age : null;
    }

    look() {
        const heard_ms = Math.max(this.last_ms, this.opened_ms);
        this.told?.(this.age_ms());
        if (this.source && performance.now() - heard_ms > LOST_MS) this.again();
    }

    // Returns what ends it.
    take(taker, coupons = []) {
        const named = [...coupons].sort().join();
        if (named !== this.coupons) {
            this.coupons = named;
            this.close();
        }
        this.takers.add(taker);
        this.last_ms = 0;
        this.begun_ms = performance.now();
        this.adjust();
        return () => {
            this.takers.delete(taker);
            this.adjust();
        };
    }

    is_wanted() {
        return this.takers.size > 0 && !document.hidden && session;
    }

    adjust() {
        if (!this.is_wanted()) this.close();
        else if (!this.source && !this.timer) this.open();
    }

    open() {
        const query = this.coupons ? `?coupons=${this.coupons}` : "";
        this.opened_ms = performance.now();
        this.source = new EventSource(`${BASE}/live${query}`);
        this.source.addEventListener("sample", (event) => {
            this.retries = 0;
            this.last_ms = performance.now();
            const sample = JSON.parse(event.data);
            for (const taker of this.takers) taker(sample);
            this.told?.(this.age_ms());
        });
        this.source.addEventListener("end", () => this.again());
        this.source.addEventListener("error", () => this.again());
    }

    close() {
        this.source?.close();
        this.source = null;
        clearTimeout(this.timer);
        this.timer = 0;
    }

    // After a loss; the session may have ended.
    again() {
        this.close();
        const pause = RETRY_MS[Math.min(this.retries++, RETRY_MS.length - 1)];
        this.timer = setTimeout(async () => {
            this.timer = 0;
            try {
                await session_find();
                this.adjust();
            } catch {
                if (this.is_wanted()) this.again(); // it does not answer
            }
        }, pause);
    }
}

export const live = new Live();
