// Amounts of money: integers in the smallest unit of a currency, never fractions.

// The currencies that do not have two digits, by the column "Minor unit" of list one of ISO 4217.
// ctl/money.c has the same table.
const OTHERS = [
  [0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"],
  [3, "BHD IQD JOD KWD LYD OMR TND"],
  [4, "CLF UYW"],
];
const DIGITS = new Map(OTHERS.flatMap(([n, names]) => names.split(" ").map((name) => [name, n])));

export class Money {
  constructor(minor, currency) {
    if (!Number.isSafeInteger(minor))
      throw new TypeError(`minor is ${minor}: must be an integer in the smallest unit`);
    if (typeof currency !== "string" || !/^[A-Z]{3}$/.test(currency))
      throw new TypeError(`currency is ${currency}: must be three letters of ISO 4217`);
    this.minor = minor;
    this.currency = currency;
    Object.freeze(this);
  }

  static parse(text, currency) {
    const { digits } = new Money(0, currency);
    const point = digits ? `(?:\\.([0-9]{${digits}}))?` : "";
    const found = new RegExp(`^([0-9]{1,${20 - digits}})${point}$`).exec(text);
    const minor = found && Number(found[1] + (found[2] ?? "0".repeat(digits)));
    if (!Number.isSafeInteger(minor)) {
      const how = digits ? `with ${digits} digits after a point, or without a point` : "whole";
      throw new RangeError(`"${text}" is no amount of ${currency}: it is written ${how}`);
    }
    return new Money(minor, currency);
  }

  get digits() {
    return DIGITS.get(this.currency) ?? 2;
  }

  get text() {
    const all = String(Math.abs(this.minor)).padStart(this.digits + 1, "0");
    const point = all.length - this.digits;
    const sign = this.minor < 0 ? "-" : "";
    return sign + all.slice(0, point) + (this.digits ? `.${all.slice(point)}` : "");
  }

  toString() {
    return `${this.text} ${this.currency}`;
  }

  plus(other) {
    return new Money(this.minor + this.#same(other), this.currency);
  }

  minus(other) {
    return new Money(this.minor - this.#same(other), this.currency);
  }

  #same(other) {
    if (other.currency !== this.currency)
      throw new TypeError(`${this} and ${other} have different currencies`);
    return other.minor;
  }
}
