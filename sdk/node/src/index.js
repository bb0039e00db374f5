export { Client } from "./client.js";
export {
  BadRequest,
  BadSignature,
  CouponError,
  Forbidden,
  HttpError,
  KeyReused,
  RequestError,
  TooLarge,
  Unauthorized,
  Unavailable,
  Unknown,
} from "./errors.js";
export { Webhook, readEvents } from "./events.js";
export { Money } from "./money.js";
export { TokenSigner } from "./tokens.js";
export { newKey } from "./calls.js";
