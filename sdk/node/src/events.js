// What couponmq tells: CloudEvents, from RabbitMQ or by webhooks, whose signatures are verified.

import { createHmac, timingSafeEqual } from "node:crypto";

import { read } from "./calls.js";
import { BadSignature } from "./errors.js";

const base64 = (text) => {
  const bytes = Buffer.from(text, "base64");
  return bytes.toString("base64") === text ? bytes : Buffer.alloc(0);
};

/** The events of a message of RabbitMQ, or of a request that was verified. */
export function readEvents(body) {
  const events = JSON.parse(body);
  return (Array.isArray(events) ? events : [events]).map(read);
}

export class Webhook {
  #keys;
  #toleranceS;

  constructor(secrets, { toleranceS = 300 } = {}) {
    this.#keys = [secrets].flat().map((one) => base64(one.replace(/^whsec_/, "")));
    if (!this.#keys.length || !this.#keys.every((key) => key.length >= 24 && key.length <= 64))
      throw new TypeError("a secret of a webhook is whsec_ and 24 to 64 bytes in base64");
    this.#toleranceS = toleranceS;
  }

  read(headers, body) {
    const lower = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]);
    const found = Object.fromEntries(lower);
    const [id, at, given] = ["id", "timestamp", "signature"].map((one) => found[`webhook-${one}`]);
    if (![id, at, given].every((one) => typeof one === "string"))
      throw new BadSignature("a header of the webhook is missing or malformed");
    if (!/^[0-9]{1,15}$/.test(at) || Math.abs(Date.now() / 1000 - Number(at)) > this.#toleranceS)
      throw new BadSignature("the time of the request is too far away");
    const ours = given.split(" ").filter((one) => one.startsWith("v1,"));
    const signatures = ours.map((one) => base64(one.slice(3)));
    const is = (key) => {
      const digest = createHmac("sha256", key).update(`${id}.${at}.`).update(body).digest();
      return signatures.some((one) => one.length === digest.length && timingSafeEqual(one, digest));
    };
    if (!this.#keys.some(is)) throw new BadSignature("no signature of the request is right");
    return readEvents(body);
  }
}
