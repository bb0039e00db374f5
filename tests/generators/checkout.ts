/* A checkout with the client that @hey-api/openapi-ts makes: checkout.js GATEWAY COUPON. Prints a
 * line of JSON for each step: its name, and what was answered. */
import { client } from "./client/client.gen.js";
import {
  getQuote,
  getStatus,
  holdCoupon,
  issueCoupon,
  listCoupons,
  releaseCoupon,
  rollbackCoupon,
  useCoupon,
} from "./client/sdk.gen.js";

const [gateway, coupon] = process.argv.slice(2) as [string, string];
const user = `ann-${coupon}`;
client.setConfig({ baseUrl: gateway });

function say(step: string, ...words: unknown[]): void {
  console.log(JSON.stringify([step, ...words]));
}

const issued = await issueCoupon({ body: { coupon, user, ack: "issued", key: "press-1" } });
if (!issued.data) throw new Error(issued.error.message);
const receive: string = issued.data.receive;
say("issue", issued.data.status, issued.data.slot);

const again = await issueCoupon({ body: { coupon, user, key: "press-1", ack: "issued" } });
say("again", again.data?.replayed === true, again.data?.receive === receive);

// A refusal is one of several types, told apart by its status.
const refused = await issueCoupon({ body: { coupon, user } });
if (refused.error?.status === "limit_reached") say("refused", refused.error.code);

const mine = await listCoupons({ query: { user, usable: true } });
say("coupons", mine.data?.coupons.length);

const price = { amount: 2000, currency: "EUR" };
const quote = await getQuote({ query: { coupon, ...price } });
say("quote", quote.data?.amount_off, quote.data?.usable);

// Keys of orders are known to all coupons.
const order = `order-${coupon}`;
const held = await holdCoupon({
  body: { receive, order, ...price, ttl_s: 900, key: `${coupon}/1/hold` },
});
say("hold", held.data?.status, Date.parse(held.data?.until ?? "") > Date.now());

const elsewhere = `other-${coupon}`;
const other = await useCoupon({ body: { receive, order: elsewhere, ...price } });
say("other", other.error?.status);

const used = await useCoupon({ body: { receive, order, ...price, key: `${coupon}/1/use` } });
const off: number | undefined = used.data?.amount_off;
say("use", used.data?.status, off);

const outcome = await getStatus({ query: { receive } });
if (outcome.data?.status === "issued")
  say("status", outcome.data.use?.state, outcome.data.use?.order === order);

const late = await releaseCoupon({ body: { receive, order } });
say("late", late.error?.status);

const back = await rollbackCoupon({ body: { receive, order, reason: "sent back" } });
say("rollback", back.data?.status);

const next = await holdCoupon({ body: { receive, order: elsewhere, ...price } });
say("next", next.data?.status);

const released = await releaseCoupon({ body: { receive, order: elsewhere } });
say("release", released.data?.status);
