#!/usr/bin/env node
// The checkout of a shop: checkout.js COUPON [PORT], an HTTP service that takes and gives JSON.
//
//   POST /orders                {"user":"42","amount":"20.00"}: holds a coupon of the user
//   POST /orders/ORDER/pay      uses it
//   POST /orders/ORDER/cancel   releases it, or rolls the use back
//   GET  /orders/ORDER
//
// Each step is in the journal before the call: when the program is killed in between, its next
// start repeats the call with the same key, and nothing is done twice.

import { randomUUID } from "node:crypto";
import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { createServer } from "node:http";

import {
  BadRequest,
  Client,
  Money,
  RequestError,
  Unavailable,
  Unknown,
} from "../../sdk/node/src/index.js";

const [, , coupon, port = "8000"] = process.argv;
const { COUPON_GATEWAYS, COUPON_GATEWAY_KEY, COUPON_TLS_CA, SHOP_JOURNAL } = process.env;
const client = new Client((COUPON_GATEWAYS ?? "http://127.0.0.1:7480").split(","), {
  token: COUPON_GATEWAY_KEY,
  ca: COUPON_TLS_CA && readFileSync(COUPON_TLS_CA),
});

// What an order is doing: the operation, and the state of the order if it is done, or refused.
const DOING = {
  holding: ["hold", "held", "refused"],
  using: ["use", "paid", "refused"],
  releasing: ["release", "cancelled", "cancelled"], // refused: the hold had ended
  rolling_back: ["rollback", "cancelled", "paid"],
};
const STEPS = {
  pay: { held: "using", refused: "using" },
  cancel: { held: "releasing", paid: "rolling_back" },
};

// The journal: a line for each step, the last one of an order counts. A line that was cut off by a
// loss of power is of a step that has not begun.
const path = SHOP_JOURNAL ?? "checkout.jsonl";
const orders = new Map();
const journal = openSync(path, "a+");
for (const line of readFileSync(path, "utf8").split("\n")) {
  try {
    const order = JSON.parse(line);
    orders.set(order.id, order);
  } catch {} // cut off
}
writeSync(journal, "\n");

function store(order) {
  writeSync(journal, `${JSON.stringify(order)}\n`);
  fsyncSync(journal);
  orders.set(order.id, order);
  return order;
}

/** Does what the order is doing, if nobody knows yet that it is done. */
async function goOn(order) {
  const [op, done, refused] = DOING[order.state] ?? [];
  if (!op) return order;
  const amount = Money.parse(order.amount, "EUR");
  const key = `${order.id}/${order.attempt}/${op}`;
  const call = { order: order.id, user: order.user, key };
  if (order.receive) call.receive = order.receive;
  else call.coupon = coupon;
  if (op === "hold" || op === "use") call.amount = amount;
  try {
    const answer = await client[op](call);
    const stands = call.amount ? answer.stands : answer.ok;
    const off = answer.amount_off ?? new Money(0, "EUR");
    return store({
      ...order,
      state: stands ? done : refused,
      told: answer.status,
      receive: answer.receive ?? order.receive,
      to_pay: amount.minus(off).text,
    });
  } catch (error) {
    if (error instanceof BadRequest)
      return store({ ...order, state: refused, told: error.message }); // such as of no user
    if (!(error instanceof Unavailable || error instanceof Unknown)) throw error;
    return { ...order, told: error.message }; // it goes on with the next request, or the next start
  }
}

// One after the other for each order: a second step waits for the first one.
const turns = new Map();

function inTurn(id, work) {
  const turn = (turns.get(id) ?? Promise.resolve()).then(work, work);
  turns.set(id, turn);
  return turn;
}

/** A step is an attempt of the customer: it gets the next number. */
async function step(id, name) {
  const order = await goOn(orders.get(id));
  const state = STEPS[name][order.state];
  return state ? goOn(store({ ...order, state, attempt: order.attempt + 1 })) : order;
}

async function answer(request) {
  const [, , id, name] = new URL(request.url, "http://shop").pathname.split("/");
  let body = "";
  for await (const part of request) body += part;
  if (request.method === "POST" && !id) {
    const { user, amount } = JSON.parse(body);
    Money.parse(amount, "EUR");
    const order = { id: `order-${randomUUID()}`, user, amount, attempt: 1, state: "holding" };
    return inTurn(order.id, () => goOn(store(order)));
  }
  if (!orders.has(id)) return undefined;
  if (request.method === "POST" && name in STEPS) return inTurn(id, () => step(id, name));
  return inTurn(id, () => goOn(orders.get(id)));
}

const server = createServer((request, response) => {
  const say = (status, value) => {
    response.writeHead(status, { "Content-Type": "application/json" });
    response.end(`${JSON.stringify(value)}\n`);
  };
  const refused = [RequestError, RangeError, SyntaxError];
  const isWrong = (error) => refused.some((one) => error instanceof one);
  answer(request).then(
    (order) => (order ? say(200, order) : say(404, { message: "there is no such order" })),
    (error) => say(isWrong(error) ? 400 : 500, { message: error.message })
  );
});

process.on("exit", () => closeSync(journal));
await Promise.allSettled([...orders.values()].map((order) => inTurn(order.id, () => goOn(order))));
server.listen(Number(port), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
