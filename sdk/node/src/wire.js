// A request over a kept connection, and its reply. The agent of node:http and not fetch(): a
// connection that has brought something unasked for must end, and an authority may be given.

import http from "node:http";
import https from "node:https";

const IDLE_MS = 20_000; // a connection that was idle for longer may be dead, and nobody told
const BODY_MAX = 1 << 22;

/** The bytes are no reply, or that of another request. */
export class Broken extends Error {}

// What arrives on an idle connection, its end included, belongs to no request.
const ended = (socket) => socket.on("data", () => socket.destroy()).resume();

const kept = (Agent) =>
  class extends Agent {
    keepSocketAlive(socket) {
      const keep = super.keepSocketAlive(socket);
      socket.setTimeout(IDLE_MS); // then the agent ends an idle one
      if (keep) ended(socket);
      return keep;
    }

    reuseSocket(socket, request) {
      socket.removeAllListeners("data").setTimeout(0);
      super.reuseSocket(socket, request);
    }
  };
const Agents = { "http:": kept(http.Agent), "https:": kept(https.Agent) };

export class Gateway {
  #url;
  #agent;
  #headers;

  constructor(url, token, tls) {
    this.#url = new URL(url);
    if (!(this.#url.protocol in Agents) || this.#url.search)
      throw new TypeError(`${url} is no URL of a gateway, such as http://127.0.0.1:7480`);
    if (token !== undefined && !/^[!-~][ -~]*$/.test(token))
      throw new TypeError("the token is not printable ASCII");
    const options = { keepAlive: true, scheduling: "lifo", autoSelectFamily: true, ...tls };
    this.#agent = new Agents[this.#url.protocol](options);
    this.#headers = { "Content-Type": "application/json", Accept: "application/json" };
    if (token !== undefined) this.#headers.Authorization = `Bearer ${token}`;
  }

  /**
   * Sends and waits. `sending.begun` is set before the first byte: the gateway may have it.
   * `check` throws, or tells whether the connection may be used again.
   */
  async exchange(op, members, id, sending, signal, check) {
    await new Promise(setImmediate); // all that has arrived on idle connections is read by now
    signal.throwIfAborted();
    const body = JSON.stringify({ id, ...members });
    const request = (this.#url.protocol === "https:" ? https : http).request({
      agent: this.#agent,
      method: "POST",
      protocol: this.#url.protocol,
      hostname: this.#url.hostname.replace(/^\[|\]$/g, ""),
      port: this.#url.port || undefined,
      path: `${this.#url.pathname.replace(/\/$/, "")}/v1/${op}`,
      headers: { ...this.#headers, "X-Request-Id": id, "Content-Length": Buffer.byteLength(body) },
    });
    const stop = () => request.destroy(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    try {
      const reply = await new Promise((resolve, reject) => {
        request.on("error", reject);
        request.on("response", (response) => replyRead(response).then(resolve, reject));
        request.on("socket", (socket) => {
          const begin = () => (sending.begun = true);
          if (request.reusedSocket) begin();
          else socket.once(this.#url.protocol === "https:" ? "secureConnect" : "connect", begin);
        });
        request.end(body);
      });
      if (!check(reply)) request.socket.destroy();
      return reply;
    } catch (error) {
      request.destroy();
      request.socket?.destroy();
      throw error;
    } finally {
      signal.removeEventListener("abort", stop);
    }
  }

  close() {
    this.#agent.destroy();
  }
}

async function replyRead(response) {
  const { statusCode: httpStatus, headers } = response;
  const isBounded = "content-length" in headers || "transfer-encoding" in headers;
  if (!isBounded && httpStatus !== 204) throw new Broken("the reply has no length");
  const parts = [];
  let length = 0;
  for await (const one of response) {
    length += one.length;
    if (length > BODY_MAX) throw new Broken("the reply is too long");
    parts.push(one);
  }
  let body = {};
  try {
    const value = JSON.parse(Buffer.concat(parts).toString());
    if (value && typeof value === "object" && !Array.isArray(value)) body = value;
  } catch {} // a proxy's page
  return { httpStatus, headers, body };
}
