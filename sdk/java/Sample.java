// The sample of README.md, as a program.

import couponmq.*;
import java.time.Duration;
import java.util.List;
import java.util.Map;

final class Sample {
    private Sample() {}

    public static void main(String[] arguments) {
        var client = Client.of("http://127.0.0.1:7480").build(); // or several; .token("cmq_…")

        // The button. ISSUED waits until PostgreSQL has the coupon: an order can hold it then.
        var answer = client.issue(Issue.of("1001", "42").ack(Ack.ISSUED).key("press-5f0c"));
        if (!answer.ok()) System.out.println("no coupon: " + answer.status()); // out_of_stock, …

        // The order, of 20.00 EUR: hold while it is being paid, use, or give back.
        var order = "order-77";
        var amount = Money.parse("20.00", "EUR");
        var attempt = order + "/1"; // stored with the order, before the calls
        try {
            var hold = Hold.of(order).coupon("1001").user("42").amount(amount);
            var held = client.hold(hold.ttl(Duration.ofMinutes(15)).key(attempt + "/hold"));
            if (held.ok()) {
                var use = Use.of(order).receive(held.receive()).amount(amount);
                var used = client.use(use.key(attempt + "/use"));
                var off = used.amountOff() == null ? new Money(0, "EUR") : used.amountOff();
                if (used.stands()) System.out.println("to pay: " + amount.minus(off));
                // The order is cancelled: Release before it has used the receive, Rollback after.
                var back = Rollback.of(order).receive(held.receive()).reason("sent back");
                client.rollback(back.key(attempt + "/rollback"));
            }
        } catch (Unavailable unavailable) {
            System.out.println("later, with the same keys: " + unavailable.getMessage());
        } catch (Unknown unknown) {
            System.out.println("repeat the call with " + unknown.key());
        }
        client.close();
    }

    static String hooked(Map<String, String> headers, byte[] body, byte[] privatePem) {
        var webhook = new Webhook("whsec_5WbX5kEWLlfzsGNjH64I8lOOqUB6e8FH3BjEO5Vs0zE=");

        // headers and body of the request, the body as it arrived; throws BadSignature
        for (Event event : webhook.read(headers, body)) // or read(request::getHeader, body)
            if (event.data() instanceof Event.Issued issued) System.out.println(issued.user());

        var signer = new TokenSigner(privatePem, "2026-11", "https://shop.example");
        var token = signer.token("42", List.of("1001"), "press-5f0c");
        return token;
    }
}
