#!/usr/bin/python3
"""A shop with coupons: shop.py COUPON [PORT].

A user claims the coupon, sees it on a page, and pays an order with it. Before each call the order
is stored with what it is going to do and with the number of its attempt: when the shop is killed in
between, its next start repeats the call with the same key, and nothing is done twice.
"""

import html
import os
import secrets
import sqlite3
import sys
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

from couponmq import Client, Money, Unavailable, Unknown
from couponmq.errors import BadRequest, RequestError

PRICE = Money.parse("20.00", "EUR")

# What an order is doing: the operation, and the state of the order if it is done, or refused.
DOING = {
    "holding": ("hold", "held", "refused"),
    "using": ("use", "paid", "refused"),
    "releasing": ("release", "cancelled", "cancelled"),  # refused: the hold had ended
    "rolling_back": ("rollback", "cancelled", "paid"),
}
# What the buttons of an order start: from which state, and to which.
BUTTONS = {
    "pay": {"held": "using", "refused": "using"},
    "cancel": {"held": "releasing", "paid": "rolling_back"},
}


class Orders:
    """The shop's database."""

    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.db.row_factory = sqlite3.Row
        self.lock = threading.RLock()
        self.sql(
            "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, user TEXT, receive TEXT,"
            " state TEXT, attempt INTEGER DEFAULT 1, to_pay TEXT, told TEXT DEFAULT '')"
        )

    def sql(self, statement, *values):
        with self.lock:
            return self.db.execute(statement, values).fetchall()

    def of(self, order):
        return next(iter(self.sql("SELECT * FROM orders WHERE id = ?", order)), None)


class Shop:
    def __init__(self, gateways, coupon, path):
        self.coupon, self.orders = coupon, Orders(path)
        self.client = Client(
            gateways,
            token=os.environ.get("COUPON_GATEWAY_KEY"),
            ca=os.environ.get("COUPON_TLS_CA"),
        )
        self.turns = defaultdict(threading.Lock)  # an order does one thing at a time

    def order_make(self, user, receive):
        order = f"order-{secrets.token_hex(6)}"
        self.orders.sql(
            "INSERT INTO orders (id, user, receive, state) VALUES (?, ?, ?, 'holding')",
            *(order, user, receive),
        )
        self.go_on(order)
        return order

    def press(self, order, button):
        """A button is an attempt of the customer: it gets the next number."""
        with self.turns[order]:
            if doing := BUTTONS[button].get(self.orders.of(order)["state"]):
                self.orders.sql(
                    "UPDATE orders SET state = ?, attempt = attempt + 1 WHERE id = ?", doing, order
                )
        self.go_on(order)

    def go_on(self, order):
        """Does what the order is doing, if nobody knows yet that it is done."""
        with self.turns[order]:
            row = self.orders.of(order)
            if row["state"] not in DOING:
                return
            op, done, refused = DOING[row["state"]]
            # The user, too: a coupon of somebody else is not found.
            call = {"user": row["user"], "key": f"{order}/{row['attempt']}/{op}"}
            if op in ("hold", "use"):
                call["amount"] = PRICE
            off = Money(0, PRICE.currency)
            try:
                answer = getattr(self.client, op)(order, row["receive"], **call)
                told, off = answer.status, answer.amount_off or off
                state = done if (answer.stands if "amount" in call else answer.ok) else refused
            except (Unavailable, Unknown) as error:
                self.orders.sql("UPDATE orders SET told = ? WHERE id = ?", str(error), order)
                return  # it goes on with the next look at the order, or the next start
            except BadRequest as error:  # what the form had is no receive
                told, state = str(error), refused
            self.orders.sql(
                "UPDATE orders SET state = ?, told = ?, to_pay = ? WHERE id = ?",
                *(state, told, str(PRICE - off), order),
            )

    def resume(self):
        for row in self.orders.sql("SELECT id FROM orders"):
            self.go_on(row["id"])


def page(title, *parts):
    return f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1>" + "".join(
        parts
    )


def button(action, label, **fields):
    hidden = "".join(f'<input type=hidden name={n} value="{v}">' for n, v in fields.items())
    return f'<form method=post action="{action}">{hidden}<button>{label}</button></form>'


class Handler(BaseHTTPRequestHandler):
    """/users/USER is the page of a user, whom a real shop knows by a session; /orders/ORDER is that
    of an order."""

    shop: Shop

    def do_GET(self):  # noqa: N802
        kind, name, _ = self.place()
        order = self.shop.orders.of(name) if kind == "orders" else None
        if order:
            self.shop.go_on(name)
            self.order_page(self.shop.orders.of(name))
        elif kind == "users" and name:
            self.user_page(name)
        else:
            self.send_error(404)

    def do_POST(self):  # noqa: N802
        form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        fields = {name: values[0] for name, values in form.items()}
        kind, name, action = self.place()
        try:
            if kind == "users" and action == "claim":
                self.claim(name, fields["press"])
            elif kind == "users" and action == "orders":
                self.redirect(f"/orders/{self.shop.order_make(name, fields['receive'])}")
            elif kind == "orders" and action in BUTTONS and self.shop.orders.of(name):
                self.shop.press(name, action)
                self.redirect(f"/orders/{name}")
            else:
                self.send_error(404)
        except RequestError as error:
            self.answer(400, page("The gateway refuses this", html.escape(str(error))))

    def place(self):
        """The three parts of the path."""
        parts = urlsplit(self.path).path.split("/")[1:4]
        return [*map(unquote, parts), "", ""][:3]

    def claim(self, user, press):
        """One press of the button is one attempt, however often the browser sends it."""
        try:
            answer = self.shop.client.issue(self.shop.coupon, user, ack="issued", key=press)
        except (Unavailable, Unknown) as error:
            again = button(f"/users/{quote(user)}/claim", "Ask again", press=html.escape(press))
            self.answer(503, page("Please wait", f"<p>{html.escape(str(error))}</p>", again))
            return
        if answer.ok:
            self.redirect(f"/users/{quote(user)}")
        else:
            self.answer(409, page("No coupon", f"<p>{html.escape(answer.status)}</p>"))

    def user_page(self, user):
        at = f"/users/{quote(user)}"
        rows = []
        for one in self.shop.client.coupons(user, usable=True):
            until = f", until {one.valid_to:%Y-%m-%d %H:%M}" if one.valid_to else ""
            name = html.escape(f"{one.name}{until}")
            order = button(f"{at}/orders", f"Order for {PRICE}", receive=html.escape(one.receive))
            rows.append(f"<li>{name} {order}")
        claim = button(f"{at}/claim", "Get the coupon", press=secrets.token_hex(16))
        self.answer(200, page("Your coupons", claim, "<ul>", *rows, "</ul>"))

    def order_page(self, order):
        told = "".join(
            f"<p>{name}: {html.escape(str(order[name]))}</p>"
            for name in ("state", "to_pay", "told")
        )
        buttons = (
            button(f"/orders/{order['id']}/{one}", one.capitalize())
            for one, states in BUTTONS.items()
            if order["state"] in states
        )
        self.answer(200, page(f"Order {order['id']}", told, *buttons))

    def answer(self, status, text, **headers):
        body = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "text/html; charset=utf-8", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def redirect(self, to):
        self.answer(303, "", Location=to)

    def log_message(self, *_):
        pass


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    gateways = os.environ.get("COUPON_GATEWAYS", "http://127.0.0.1:7480").split(",")
    Handler.shop = Shop(gateways, sys.argv[1], os.environ.get("SHOP_DB", "shop.db"))
    Handler.shop.resume()
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"http://127.0.0.1:{server.server_port}/users/42", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
