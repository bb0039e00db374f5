// What a call throws. A refusal, such as out_of_stock, is no error: it is the answer.

export class CouponError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = this.constructor.name;
  }
}

/** The caller's mistake: the request is refused however often it is sent. */
export class RequestError extends CouponError {
  constructor(message, httpStatus) {
    super(message);
    this.httpStatus = httpStatus;
  }
}

export class BadRequest extends RequestError {}
export class Unauthorized extends RequestError {}
export class Forbidden extends RequestError {}
export class TooLarge extends RequestError {}
/** The idempotency key was used for another request; a new request needs a new key. */
export class KeyReused extends RequestError {}
/** HTTP itself refuses: another path (404), another name of the host (421), a proxy's reason. */
export class HttpError extends RequestError {}

/** Nothing was done by this call. An earlier call with its key may have done it. */
export class Unavailable extends CouponError {}

/**
 * The call may have been done, now or later. Repeat it with this key until its answer is known,
 * before the order or the user does something else.
 */
export class Unknown extends CouponError {
  constructor(message, key, receive, options) {
    super(message, options);
    this.key = key;
    this.receive = receive;
  }
}

/** A request to a webhook that couponmq did not sign, or too long ago. */
export class BadSignature extends CouponError {}

export const BY_CODE = new Map([
  [40, BadRequest],
  [41, Unauthorized],
  [42, Forbidden],
  [43, TooLarge],
  [44, KeyReused],
]);
