/** Amounts of money: integers in the smallest unit of a currency, never fractions. */
export class Money {
  /** new Money(1250, "EUR") is 12.50 EUR, and new Money(1250, "JPY") is 1250 JPY. */
  constructor(minor: number, currency: string);
  /**
   * Takes what people write: all digits of the currency after a point, or a whole amount without a
   * point. RangeError: anything else, such as "12,50" or "12.5", which people read in more than
   * one way.
   */
  static parse(text: string, currency: string): Money;
  readonly minor: number;
  readonly currency: string;
  readonly digits: number;
  /** The amount with all digits of the currency, as parse() takes it. */
  readonly text: string;
  toString(): string;
  plus(other: Money): Money;
  minus(other: Money): Money;
}

type Id = string | number | bigint;

/** What each call that changes something takes, too. */
export interface Attempt {
  /**
   * The idempotency key of the customer's attempt, stored before the call, so that the call can be
   * repeated after a crash. Without it the call makes one.
   */
  key?: string;
  /** A traceparent. */
  trace?: string;
}

/** What names the receives of an order: one, several, or any receive of the user of a coupon. */
export interface OfOrder extends Attempt {
  order: string;
  receive?: string;
  receives?: string[];
  coupon?: Id;
  user?: Id;
  /** The name of the caller for the history. */
  by?: string;
}

export interface Options {
  /** For the call with all its attempts, in ms, instead of the client's. */
  deadlineMs?: number;
  /** Aborts the call, which throws Unavailable or Unknown. */
  signal?: AbortSignal;
}

export type Ack = "accepted" | "queued" | "issued";

export interface Discount {
  amount_off?: Money | null;
  percent_off?: number;
  cap?: Money | null;
  threshold?: Money | null;
  currency?: string;
}

/** Which order has a receive. */
export interface Use {
  state: "held" | "used";
  order: string;
  until?: Date;
}

/** What became of a receive. order: if the order of the request has it. */
export interface Now {
  state: "free" | "held" | "used" | "voided" | "not_found";
  order?: string;
  until?: Date;
}

export interface Receive {
  receive: string;
  slot: number;
  state: "accepted" | "issued" | "rejected";
  reason?: string;
  valid_from?: Date;
  valid_to?: Date | null;
  use?: Use;
}

export interface UserCoupon {
  coupon: string;
  receive: string;
  slot: number;
  received_at: Date;
  valid_from: Date;
  /** Null: the validity has no end. */
  valid_to?: Date | null;
  name?: string;
  discount?: Discount;
  metadata?: Record<string, unknown>;
  use?: Use;
  voided?: boolean;
}

/** Done (`ok`), or refused, with a status that says why. */
export interface Answer {
  readonly ok: boolean;
  code: number;
  status: string;
  /** For people, of a refusal. */
  message?: string;
  /** The key was known: by an earlier call, or an attempt of this one. */
  replayed: boolean;
  /** The idempotency key that the call had. */
  key?: string;
}

/**
 * `accepted`, `queued`, `issued`; `rejected`, which has a reason; `out_of_stock`, `limit_reached`,
 * `not_started`, `ended`, `paused`, `not_found`, `code_invalid`, `code_used`,
 * `code_expired`.
 */
export interface IssueAnswer extends Answer {
  receive?: string;
  slot?: number;
  coupon?: string;
  reason?: string;
}

/**
 * `held`, `used`, `released`, `rolled_back`; or `held_by_other`, `already_used`, `expired`,
 * `not_valid_yet`, `voided`, `budget_spent`, `below_threshold`, `amount_exceeded`, `not_found`.
 */
export interface OrderAnswer extends Answer {
  receive?: string;
  until?: Date;
  amount_off?: Money | null;
  now?: Now;
  receives?: { receive: string; until?: Date; amount_off?: Money | null; now?: Now }[];
  /**
   * Whether the order has now what hold() or use() has answered. An answer that is `replayed`
   * describes the past: what it did may have been given back since.
   */
  readonly stands: boolean;
}

/** One receive is `accepted`, `issued`, `rejected` or `not_found`; of a user it is `ok`. */
export interface StatusAnswer extends Answer {
  receive?: string;
  slot?: number;
  reason?: string;
  valid_from?: Date;
  valid_to?: Date | null;
  use?: Use;
  receives?: Receive[];
  /** Of not_found: whether no receive can still appear. */
  final?: boolean;
}

export interface CouponAnswer extends Answer {
  coupon?: string;
  state?: string;
  total?: number;
  stock?: number;
  limit?: number;
  begin?: Date | null;
  end?: Date | null;
  discount?: Discount;
  metadata?: Record<string, unknown>;
  /** discount and metadata could not be read. */
  partial?: boolean;
}

/** What an exchange code would give to a user. receive and slot: the user has claimed it. */
export interface CodeAnswer extends CouponAnswer {
  /** If the code ends by itself. */
  code_end?: Date;
  taken?: number;
  left?: number;
  claimable?: boolean;
  /** What claim would answer, if it is not claimable. */
  why?: string;
  receive?: string;
  slot?: number;
}

export interface CouponsAnswer extends Answer {
  coupons?: UserCoupon[];
  cursor?: string;
}

/** A campaign on offer; of a user, with what the user may have of it. */
export interface Offer {
  coupon: string;
  name: string;
  tags: string[];
  /** unavailable: what is left is not known now. */
  state: "open" | "not_started" | "unavailable";
  total?: number;
  stock?: number;
  limit?: number;
  begin?: Date;
  end?: Date;
  discount?: Discount;
  metadata?: Record<string, unknown>;
  taken?: number;
  left?: number;
  claimable?: boolean;
  why?: string;
}

export interface OffersAnswer extends Answer {
  offers?: Offer[];
  cursor?: string;
}

export interface QuoteAnswer extends Answer {
  amount?: Money;
  amount_off?: Money;
  /** False: a use of this amount is refused. */
  usable?: boolean;
  /** Of a user: those that take most off first. */
  receives?: QuotedReceive[];
}

/** A receive of a user that an order could use. */
export interface QuotedReceive {
  receive: string;
  slot: number;
  coupon: string;
  name: string;
  amount_off: Money;
  valid_to?: Date;
}

export class Client {
  constructor(
    gateways: string | string[],
    options?: {
      /** An API key or a user token. */
      token?: string;
      /** For a call with all its attempts (30000), and for one attempt (10000). */
      deadlineMs?: number;
      attemptMs?: number;
      /** The authorities that are trusted, instead of those of the system; a certificate. */
      ca?: string | Uint8Array;
      cert?: string | Uint8Array;
      key?: string | Uint8Array;
    }
  );
  /** Asks for a coupon. ack: what the answer waits for; `accepted` if it is absent. */
  issue(
    call: { coupon: Id; user: Id; ack?: Ack } & Attempt,
    options?: Options
  ): Promise<IssueAnswer>;
  /** Asks for the coupon of an exchange code, as the user typed it. */
  claim(
    call: { code: string; user: Id; ack?: Ack } & Attempt,
    options?: Options
  ): Promise<IssueAnswer>;
  /** Keeps receives for an order. amount: that of the order, before the discount. */
  hold(call: OfOrder & { amount?: Money; ttl_s?: number }, options?: Options): Promise<OrderAnswer>;
  /**
   * Uses what the order holds, or what is free. Another amount, with a new key, changes what was
   * used.
   */
  use(call: OfOrder & { amount?: Money }, options?: Options): Promise<OrderAnswer>;
  /** Gives up a hold: the order is cancelled before it has used the receives. */
  release(call: OfOrder, options?: Options): Promise<OrderAnswer>;
  /**
   * Takes a use back: the order is cancelled after it has used the receives. amount: only this part
   * of the discount, of one receive, which stays used.
   */
  rollback(
    call: OfOrder & { amount?: Money; reason?: string },
    options?: Options
  ): Promise<OrderAnswer>;
  /** What became of a receive, or of all receives of a user. */
  status(
    call: { receive: string } | { coupon: Id; user: Id },
    options?: Options
  ): Promise<StatusAnswer>;
  /** The terms of a coupon, and what is left. */
  coupon(call: { coupon: Id }, options?: Options): Promise<CouponAnswer>;
  /** What an exchange code would give to the user, who does not claim it. */
  code(call: { code: string; user: Id }, options?: Options): Promise<CodeAnswer>;
  /** The coupons of a user, newest first; usable: only those that an order could use. */
  coupons(call: { user: Id; usable?: boolean }, options?: Options): AsyncGenerator<UserCoupon>;
  /** The campaigns that are open or begin within so many seconds, or as "3d"; else 7 days. */
  offers(
    call?: { user?: Id; within?: number | string; tag?: string },
    options?: Options
  ): AsyncGenerator<Offer>;
  offersPage(
    call?: { user?: Id; within?: number | string; tag?: string; cursor?: string },
    options?: Options
  ): Promise<OffersAnswer>;
  couponsPage(
    call: { user: Id; usable?: boolean; cursor?: string },
    options?: Options
  ): Promise<CouponsAnswer>;
  /** What a coupon, or the receives of a user, take off an amount. It holds nothing. */
  quote(
    call: { coupon: Id; amount: Money } | { user: Id; amount: Money },
    options?: Options
  ): Promise<QuoteAnswer>;
  /** Whether a gateway answers. */
  ping(options?: Options): Promise<Answer>;
  /** Calls that wait for a reply end with Unknown, if they change something. */
  close(): void;
}

/** An idempotency key for one attempt of a customer. */
export function newKey(): string;

export class CouponError extends Error {}
export class RequestError extends CouponError {
  httpStatus: number;
}
export class BadRequest extends RequestError {}
export class Unauthorized extends RequestError {}
export class Forbidden extends RequestError {}
export class TooLarge extends RequestError {}
export class KeyReused extends RequestError {}
export class HttpError extends RequestError {}
export class Unavailable extends CouponError {}
export class Unknown extends CouponError {
  /** Repeat the call with it. */
  key: string;
  /** Accepted, and stays so: only the level of ack was not reached. */
  receive?: string;
}
export class BadSignature extends CouponError {}

/** `source` and `id` together are the same in each copy. docs/guides/events.md has the data by
 * `type`. */
export interface CouponEvent {
  id: string;
  source: string;
  type: string;
  subject?: string;
  time: Date;
  data: Record<string, any>;
  traceparent?: string;
  requestid?: string;
}

/** The events of a message of RabbitMQ, or of a request that was verified. */
export function readEvents(body: string | Uint8Array): CouponEvent[];

/** Verifies what arrives at a webhook. secrets: `whsec_…`, one or several while they change. */
export class Webhook {
  constructor(secrets: string | string[], options?: { toleranceS?: number });
  /** The events of a request, whose body is as it arrived. Throws BadSignature. */
  read(
    headers: Record<string, string | string[] | undefined>,
    body: string | Uint8Array
  ): CouponEvent[];
}

/**
 * Signs user tokens by ES256 or EdDSA with a private key in PEM, or by HS256 with a secret of 32
 * bytes or more. kid: the name of the key in COUPON_TOKEN_KEYS.
 */
export class TokenSigner {
  constructor(
    key: string | Uint8Array,
    kid: string,
    options: { issuer: string; audience?: string; lifeS?: number }
  );
  /**
   * coupons: only these, up to 64; without them all. key: the idempotency key that each of its
   * requests must have, so that a stolen token gives no further coupon.
   */
  token(user: Id, options?: { coupons?: Id[]; key?: string; lifeS?: number }): string;
}
