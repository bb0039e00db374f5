// Node's driver of the conformance suite; sdk/conformance/README.md tells what it reads and writes.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

import * as couponmq from "./src/index.js";

const { Client, Money, TokenSigner, Webhook } = couponmq;
const NAMES = {
  BadRequest: "bad_request",
  Unauthorized: "unauthorized",
  Forbidden: "forbidden",
  TooLarge: "too_large",
  KeyReused: "key_reused",
  HttpError: "http",
  Unavailable: "unavailable",
  Unknown: "unknown",
  BadSignature: "bad_signature",
};

/** What JSON does not have, as the suite compares it. */
function plain(name, value) {
  if (this[name] instanceof Date) return this[name].toISOString().replace("Z", "+00:00");
  if (name === "percent_off" && typeof value === "number") return value.toFixed(2);
  return value;
}

const say = (told) => process.stdout.write(`${JSON.stringify(told, plain)}\n`);

function failed(error) {
  const { name, message, key, receive, httpStatus } = error;
  if (!(error instanceof couponmq.CouponError))
    return { error: "invalid", message: `${name}: ${message}` };
  return { error: NAMES[name], message, key, receive, http_status: httpStatus };
}

let client;
const calls = new Map(); // by their orders: what cancels them

async function call({ id, op, members, options: { key, deadline_ms: deadlineMs } }) {
  const given = { ...members, ...(key !== undefined && { key }) };
  if (given.currency !== undefined) given.amount = new Money(given.amount, given.currency);
  delete given.currency;
  const stopper = new AbortController();
  calls.set(id, stopper);
  const options = { deadlineMs, signal: stopper.signal };
  try {
    if (op === "coupons" || op === "offers") {
      const all = [];
      for await (const one of client[op](given, options)) all.push(one);
      return { [op]: all };
    }
    const answer = await (op === "ping" ? client.ping(options) : client[op](given, options));
    return { answer: { ...answer, ok: answer.ok } };
  } finally {
    calls.delete(id);
  }
}

const ORDERS = {
  open({ gateways, token, ca, deadline_ms: deadlineMs, attempt_ms: attemptMs }) {
    client?.close();
    const trusted = ca && readFileSync(ca);
    client = new Client(gateways, { token, ca: trusted, deadlineMs, attemptMs });
  },
  call,
  cancel: ({ call: id }) => calls.get(id)?.abort(new Error("cancelled")),
  close: () => client.close(),
  money: ({ text, currency }) => ({ minor: Money.parse(text, currency).minor }),
  money_text: ({ minor, currency }) => ({ text: new Money(minor, currency).text }),
  token: ({ private: secret, kid, issuer, user, coupons, key }) => ({
    token: new TokenSigner(secret, kid, { issuer }).token(user, { coupons, key }),
  }),
  webhook: ({ secrets, headers, body }) => ({ events: new Webhook(secrets).read(headers, body) }),
};

say({ driver: "node", can: ["cancel"] });
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  const work = async () => ORDERS[order.do](order);
  work().then(
    (told) => say({ id: order.id, ...told }),
    (error) => say({ id: order.id, ...failed(error) })
  );
}
client?.close();
