// The calls: what is sent, and how answers are read.

import { randomBytes } from "node:crypto";

import { Money } from "./money.js";

export const BUSY = 20;
export const UNKNOWN = 22;
export const RATE_LIMITED = 23;

/** An idempotency key for one attempt of a customer. */
export const newKey = () => randomBytes(16).toString("hex");

/** The value as the gateway reads it; refuses what would become a text by mistake, as null. */
export function text(name, value) {
  if (!["string", "bigint"].includes(typeof value) && !Number.isSafeInteger(value))
    throw new TypeError(`${name} is ${value}: must be a string or an integer`);
  if (value === "") throw new TypeError(`${name} is empty`);
  return String(value);
}

// Each operation: the members that it needs, and those that it may have.
const ATTEMPT = "key trace";
const OF_ORDER = `receive receives coupon user by ${ATTEMPT}`;
const OPERATIONS = {
  issue: ["coupon user", `ack ${ATTEMPT}`],
  claim: ["code user", `ack ${ATTEMPT}`],
  hold: ["order", `amount ttl_s ${OF_ORDER}`],
  use: ["order", `amount ${OF_ORDER}`],
  release: ["order", OF_ORDER],
  rollback: ["order", `amount reason ${OF_ORDER}`],
  status: ["", "receive coupon user"],
  coupon: ["coupon", ""],
  code: ["code user", ""],
  coupons: ["user", "usable cursor"],
  offers: ["", "user within tag cursor"],
  quote: ["amount", "coupon user"],
  ping: ["", ""],
};
const TEXTS = ["coupon", "user", "code", "order", "key"];

/** The members of a request. One that changes something has a key. */
export function membersOf(op, given) {
  const [needed, more] = OPERATIONS[op].map((names) => names.split(" ").filter(Boolean));
  const members = {};
  for (const [name, value] of Object.entries(given)) {
    if (!needed.includes(name) && !more.includes(name))
      throw new TypeError(`${op} takes no ${name}`);
    if (value === undefined || (value === null && !needed.includes(name))) continue;
    if (name === "amount") {
      if (!(value instanceof Money)) throw new TypeError(`amount is ${value}: must be Money`);
      members.amount = value.minor;
      members.currency = value.currency;
    } else {
      members[name] = TEXTS.includes(name) ? text(name, value) : value;
    }
  }
  const missing = needed.filter((name) => !(name in members));
  if (missing.length) throw new TypeError(`${op} needs ${missing.join(", ")}`);
  if (more.includes("key")) members.key ??= newKey();
  return members;
}

const TIMES = new Set(
  "begin end code_end received_at time until valid_from valid_to".split(" ")
);
const AMOUNTS = new Set(["amount", "amount_off", "cap", "threshold"]);
const OTHERS = new Set(["changes", "metadata"]); // what is in them is not ours

/** JSON as values: times as Date, and amounts as Money where the currency is beside them. */
export function read(value) {
  if (Array.isArray(value)) return value.map(read);
  if (value === null || typeof value !== "object") return value;
  const one = ([name, member]) => {
    if (OTHERS.has(name)) return [name, member];
    if (TIMES.has(name) && typeof member === "string") return [name, new Date(member)];
    if (AMOUNTS.has(name) && typeof member === "number")
      return [name, value.currency ? new Money(member, value.currency) : null];
    return [name, read(member)];
  };
  return Object.fromEntries(Object.entries(value).map(one));
}

/** Done (`ok`), or refused, with a status that says why. */
export class Answer {
  constructor(body, key) {
    const { id, ...members } = read(body);
    Object.assign(this, { replayed: false, key }, members);
  }

  get ok() {
    return this.code === 0;
  }

  /** After hold and use: whether the order has the receives now. A replay describes the past. */
  get stands() {
    const states = { held: ["held", "used"], used: ["used"] }[this.status] ?? [];
    const all = (this.receives?.length ? this.receives : [this]).map((one) => one.now);
    if (!this.replayed) return states.length > 0;
    return all.every((now) => Boolean(now?.order) && states.includes(now.state));
  }
}
