/* What openapi-typescript makes of the description has a type for each member that a shop reads. */
import type { components, operations } from "./gateway.js";

type Issued = operations["issueCoupon"]["responses"][200]["content"]["application/json"];
type Refused = operations["issueCoupon"]["responses"][409]["content"]["application/json"];
type Hold = components["schemas"]["HoldRequest"];

export const hold: Hold = { receive: "1001.42.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0", order: "order-77" };
// @ts-expect-error An order is needed.
export const incomplete: Hold = { receive: hold.receive };
// @ts-expect-error There is no such member.
export const misspelled: Hold = { ...hold, amout: 2000 };

export function told(answer: Issued | Refused): string {
  switch (answer.status) {
    case "accepted":
    case "queued":
    case "issued":
      return answer.receive;
    case "rejected":
      return answer.reason;
    case "out_of_stock":
    case "ended":
    case "limit_reached":
    case "not_started":
    case "paused":
      return answer.message;
  }
}
