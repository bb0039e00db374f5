// User tokens: what a shop's server gives to a user, whose browser then asks the gateway.

import { createHmac, createPrivateKey, sign } from "node:crypto";

import { text } from "./calls.js";

const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");

function signer(key) {
  const bytes = Buffer.from(key);
  if (!bytes.toString("latin1").trimStart().startsWith("-----BEGIN")) {
    if (bytes.length < 32) throw new TypeError("a secret for HS256 has 32 bytes or more");
    return ["HS256", (data) => createHmac("sha256", bytes).update(data).digest()];
  }
  const secret = createPrivateKey(key);
  if (secret.asymmetricKeyType === "ed25519") return ["EdDSA", (data) => sign(null, data, secret)];
  if (secret.asymmetricKeyDetails?.namedCurve !== "prime256v1")
    throw new TypeError("the private key is neither of P-256 nor of Ed25519");
  return ["ES256", (data) => sign("sha256", data, { key: secret, dsaEncoding: "ieee-p1363" })];
}

export class TokenSigner {
  #claims;
  #lifeS;
  #head;
  #sign;

  constructor(key, kid, { issuer, audience = "couponmq", lifeS = 600 }) {
    const [alg, by] = signer(key);
    this.#claims = { iss: text("issuer", issuer), aud: audience };
    this.#lifeS = lifeS;
    this.#head = part({ alg, kid });
    this.#sign = by;
  }

  token(user, { coupons, key, lifeS = this.#lifeS } = {}) {
    const exp = Math.floor(Date.now() / 1000 + lifeS);
    const claims = { ...this.#claims, sub: text("user", user), exp };
    if (coupons !== undefined) {
      if (!Array.isArray(coupons) || coupons.length < 1 || coupons.length > 64)
        throw new TypeError("coupons must be a list of 1 to 64 ids");
      claims.coupons = coupons.map((one) => text("coupons", one));
    }
    if (key !== undefined) claims.key = text("key", key);
    const signed = `${this.#head}.${part(claims)}`;
    return `${signed}.${this.#sign(Buffer.from(signed)).toString("base64url")}`;
  }
}
