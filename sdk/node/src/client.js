// Attempts: what a reply means, how long to wait, when to give up.

import { setMaxListeners } from "node:events";

import { Answer, BUSY, RATE_LIMITED, UNKNOWN, membersOf, newKey } from "./calls.js";
import { BY_CODE, BadRequest, HttpError, KeyReused, Unavailable, Unknown } from "./errors.js";
import { Broken, Gateway } from "./wire.js";

const BACKOFF_MS = 50;
const BACKOFF_MAX_MS = 2000;

// The answers that say nothing about a coupon or a receive.
const NAMES = {
  ...{ 20: "busy", 21: "unavailable", 22: "unknown", 23: "rate_limited", 40: "bad_request" },
  ...{ 41: "unauthorized", 42: "forbidden", 43: "too_large", 44: "key_reused" },
};

/** The code of the gateway's answer; undefined: the reply is a proxy's, whatever its JSON says. */
function codeOf({ body: { code, status } }) {
  const isOurs = Number.isInteger(code) && typeof status === "string";
  return isOurs && ((code >= 0 && code < BUSY) || NAMES[code] === status) ? code : undefined;
}

/**
 * Whether the reply names the request. The gateway may refuse what it has not parsed without its
 * id; any other answer without it, or with another one, is that of another request.
 */
function isNamed(reply, id) {
  const code = codeOf(reply);
  const named = reply.body.id === id;
  const needsId = code < BUSY || code === UNKNOWN || code === 44;
  if (code !== undefined && !named && (reply.body.id !== undefined || needsId))
    throw new Broken("the reply is that of another request");
  return named;
}

export class Client {
  #gateways;
  #place; // the gateway that is asked
  #deadlineMs;
  #attemptMs;
  #name = newKey().slice(0, 12);
  #requests = 0;
  #closing = new AbortController();

  constructor(gateways, { token, deadlineMs = 30_000, attemptMs = 10_000, ca, cert, key } = {}) {
    this.#gateways = [gateways].flat().map((url) => new Gateway(url, token, { ca, cert, key }));
    if (!this.#gateways.length) throw new TypeError("there is no gateway");
    setMaxListeners(0, this.#closing.signal); // each call that waits is one
    this.#place = Math.floor(Math.random() * this.#gateways.length);
    this.#deadlineMs = deadlineMs;
    this.#attemptMs = attemptMs;
  }

  issue = (members, options) => this.#run("issue", members, options);
  claim = (members, options) => this.#run("claim", members, options);
  hold = (members, options) => this.#run("hold", members, options);
  use = (members, options) => this.#run("use", members, options);
  release = (members, options) => this.#run("release", members, options);
  rollback = (members, options) => this.#run("rollback", members, options);
  status = (members, options) => this.#run("status", members, options);
  coupon = (members, options) => this.#run("coupon", members, options);
  code = (members, options) => this.#run("code", members, options);
  couponsPage = (members, options) => this.#run("coupons", members, options);
  offersPage = (members = {}, options) => this.#run("offers", members, options);
  quote = (members, options) => this.#run("quote", members, options);
  ping = (options) => this.#run("ping", {}, options);

  async *coupons(members, options) {
    for (let cursor; ; ) {
      const page = await this.couponsPage({ ...members, cursor }, options);
      yield* page.coupons ?? [];
      if (!(cursor = page.cursor)) return;
    }
  }

  async *offers(members, options) {
    for (let cursor; ; ) {
      const page = await this.offersPage({ ...members, cursor }, options);
      yield* page.offers ?? [];
      if (!(cursor = page.cursor)) return;
    }
  }

  close() {
    this.#closing.abort(new Error("the client is closed"));
    for (const one of this.#gateways) one.close();
  }

  async #run(op, given, { deadlineMs = this.#deadlineMs, signal } = {}) {
    const members = membersOf(op, given);
    const giveUp = performance.now() + deadlineMs;
    let mayBeDone = false;
    let receive; // accepted, without the level of ack
    const end = (why, cause) =>
      members.key && mayBeDone
        ? new Unknown(`${op} is unknown: ${why}`, members.key, receive, { cause })
        : new Unavailable(`${op} was not done by this call: ${why}`, { cause });
    const stopIfAsked = () => {
      if (this.#closing.signal.aborted) throw end("the client is closed");
      if (signal?.aborted) throw end("the call was aborted", signal.reason);
    };

    for (let failures = 1, why; ; failures++) {
      const place = this.#place;
      const id = `${this.#name}-${++this.#requests}`;
      const sending = { begun: false };
      const within = Math.min(this.#attemptMs, giveUp - performance.now());
      const stopped = linked([this.#closing.signal, signal], within);
      const check = (reply) => isNamed(reply, id);
      let reply, code, told;
      try {
        const gateway = this.#gateways[place];
        reply = await gateway.exchange(op, members, id, sending, stopped.signal, check);
      } catch (error) {
        // Of an attempt that the deadline shortened, what ended the one before says more.
        if (!why || !stopped.signal.aborted || within === this.#attemptMs)
          why = `no reply: ${error.message || error.code}`;
      } finally {
        stopped.end();
      }

      if (!reply) {
        mayBeDone ||= sending.begun;
        stopIfAsked();
      } else {
        code = codeOf(reply);
        if (code < BUSY) return new Answer(reply.body, members.key);
        told = toldMs(reply);
        why = String(reply.body.message ?? `HTTP ${reply.httpStatus}`);
        const isBusy = code >= BUSY && code <= RATE_LIMITED;
        // A proxy's, or that of a gateway to which the request did not arrive in time.
        const isTrouble = [408, 429].includes(reply.httpStatus) || reply.httpStatus >= 500;
        if (code === UNKNOWN) receive = reply.body.receive ?? receive;
        if (isBusy ? code === UNKNOWN : isTrouble || reply.httpStatus < 400) mayBeDone = true;
        if (!isBusy && !isTrouble) {
          let Kind = BY_CODE.get(code) ?? HttpError;
          if (Kind === BadRequest && reply.httpStatus !== 400) Kind = HttpError;
          const error = new Kind(why, reply.httpStatus);
          // An earlier attempt may have been executed, unless this repeats the answer to that
          // attempt, or the key was never this call's.
          const isKnown = reply.body.replayed === true || Kind === KeyReused;
          throw members.key && mayBeDone && !isKnown ? end(why, error) : error;
        }
      }

      if (code !== RATE_LIMITED && this.#place === place)
        this.#place = (place + 1) % this.#gateways.length;
      // At least what was told, and never beyond the deadline.
      const backoff = Math.min(BACKOFF_MS * 2 ** (failures - 1), BACKOFF_MAX_MS);
      const chance = Math.random();
      const pause = Math.max((backoff * (1 + chance)) / 2, (told ?? 0) * (1 + chance / 4));
      if (performance.now() + pause >= giveUp)
        throw end(`${why}; ${failures} attempts until the deadline`);
      const pausing = linked([this.#closing.signal, signal], pause);
      if (!pausing.signal.aborted)
        await new Promise((done) => pausing.signal.addEventListener("abort", done, { once: true }));
      pausing.end();
      stopIfAsked();
    }
  }
}

/** A signal that is aborted with the first of these, and after this time. */
function linked(signals, withinMs) {
  const own = new AbortController();
  const stop = (event) => own.abort(event.target.reason);
  const timer = setTimeout(() => own.abort(new Error("timed out")), withinMs);
  const given = signals.filter(Boolean);
  for (const one of given)
    if (one.aborted) own.abort(one.reason);
    else one.addEventListener("abort", stop);
  return {
    signal: own.signal,
    end() {
      clearTimeout(timer);
      for (const one of given) one.removeEventListener("abort", stop);
    },
  };
}

/** How long the gateway wants to be left alone. */
function toldMs({ body, headers }) {
  if (Number.isFinite(body.retry_after_ms)) return body.retry_after_ms;
  return /^[0-9]+$/.test(headers["retry-after"] ?? "") ? headers["retry-after"] * 1000 : undefined;
}
