// Java's driver of the conformance suite; sdk/conformance/README.md tells what it reads and writes.

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import couponmq.*;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.RecordComponent;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;

final class Driver {
    private static final Gson GSON = new Gson();
    private static final DateTimeFormatter TIME =
            DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSSxxx").withZone(ZoneOffset.UTC);
    private static final Map<Long, Thread> CALLS = new ConcurrentHashMap<>();

    private static Client client;

    public static void main(String[] arguments) throws Exception {
        print("{\"driver\":\"java\",\"can\":[\"cancel\"]}");
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            JsonObject order = JsonParser.parseString(line).getAsJsonObject();
            long id = order.get("id").getAsLong();
            if (!text(order, "do").equals("call")) {
                tell(id, () -> done(order));
                continue;
            }
            Client open = client;
            var call = new Thread(() -> {
                tell(id, () -> called(open, order));
                CALLS.remove(id);
            });
            CALLS.put(id, call);
            call.start();
        }
        if (client != null) client.close();
    }

    private static void tell(long id, Callable<Map<String, Object>> work) {
        Map<String, Object> told = new LinkedHashMap<>(Map.of("id", id));
        try {
            told.putAll(work.call());
        } catch (Exception | Error e) {
            told.put("error", nameOf(e));
            told.put("message", e.toString());
            if (e instanceof Unknown unknown) told.put("key", unknown.key());
            if (e instanceof Unknown unknown) told.put("receive", unknown.receive());
            if (e instanceof RequestException wrong) told.put("http_status", wrong.httpStatus());
        }
        print(GSON.toJson(plain(told)));
    }

    private static void print(String line) {
        byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (System.out) {
            System.out.write(bytes, 0, bytes.length);
            System.out.flush();
        }
    }

    private static String nameOf(Throwable e) {
        if (e instanceof RequestException wrong) return wrong.status();
        return e instanceof CouponException ? snake(e.getClass().getSimpleName()) : "invalid";
    }

    private static String snake(String name) {
        return name.replaceAll("(?<=[a-z])([A-Z])", "_$1").toLowerCase(Locale.ROOT);
    }

    /** As the suite compares it. */
    private static Object plain(Object value) {
        if (value instanceof Instant time) return TIME.format(time);
        if (value instanceof BigDecimal number) return number.toString();
        if (value instanceof List<?> all) return all.stream().map(Driver::plain).toList();
        Map<String, Object> members = new LinkedHashMap<>();
        if (value instanceof Map<?, ?> all) {
            all.forEach((name, one) -> members.put((String) name, plain(one)));
            return members;
        }
        if (!(value instanceof Record)) return value;
        if (value instanceof Answer answer) members.put("ok", answer.ok());
        try {
            for (RecordComponent one : value.getClass().getRecordComponents())
                members.put(nameOf(one), plain(one.getAccessor().invoke(value)));
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
        return members;
    }

    private static String nameOf(RecordComponent one) {
        return one.getName().equals("isFinal") ? "final" : snake(one.getName());
    }

    private static String text(JsonObject from, String name) {
        return from.has(name) ? from.get(name).getAsString() : null;
    }

    private static List<String> texts(JsonElement all) {
        List<String> texts = new ArrayList<>();
        for (JsonElement one : all.getAsJsonArray()) texts.add(one.getAsString());
        return texts;
    }

    private static Map<String, Object> done(JsonObject order) throws Exception {
        switch (text(order, "do")) {
            case "open" -> {
                if (client != null) client.close();
                var options = Client.of(texts(order.get("gateways")).toArray(new String[0]));
                if (order.has("token")) options.token(text(order, "token"));
                if (order.has("ca")) options.ca(Path.of(text(order, "ca")));
                if (order.has("deadline_ms"))
                    options.deadline(Duration.ofMillis(order.get("deadline_ms").getAsLong()));
                if (order.has("attempt_ms"))
                    options.attempt(Duration.ofMillis(order.get("attempt_ms").getAsLong()));
                client = options.build();
            }
            case "close" -> client.close();
            case "cancel" -> {
                Thread call = CALLS.get(order.get("call").getAsLong());
                if (call != null) call.interrupt();
            }
            case "money" -> {
                var money = Money.parse(text(order, "text"), text(order, "currency"));
                return Map.of("minor", money.minor());
            }
            case "money_text" -> {
                var money = new Money(order.get("minor").getAsLong(), text(order, "currency"));
                return Map.of("text", money.text());
            }
            case "token" -> {
                byte[] key = text(order, "private").getBytes(StandardCharsets.UTF_8);
                var signer = new TokenSigner(key, text(order, "kid"), text(order, "issuer"));
                List<String> coupons = order.has("coupons") ? texts(order.get("coupons")) : null;
                return Map.of(
                        "token", signer.token(text(order, "user"), coupons, text(order, "key")));
            }
            case "webhook" -> {
                Map<String, String> headers = new LinkedHashMap<>();
                JsonObject given = order.getAsJsonObject("headers");
                for (String name : given.keySet()) headers.put(name, text(given, name));
                var webhook = new Webhook(texts(order.get("secrets")).toArray(new String[0]));
                byte[] body = text(order, "body").getBytes(StandardCharsets.UTF_8);
                return Map.of("events", webhook.read(headers, body));
            }
            default -> throw new IllegalArgumentException("what is " + order + "?");
        }
        return Map.of();
    }

    private static Map<String, Object> called(Client open, JsonObject order) {
        JsonObject of = order.getAsJsonObject("members");
        JsonObject options = order.getAsJsonObject("options");
        Client by = open;
        if (options.has("deadline_ms"))
            by = open.within(Duration.ofMillis(options.get("deadline_ms").getAsLong()));
        Money amount = null;
        if (of.has("amount"))
            amount = new Money(of.get("amount").getAsLong(), text(of, "currency"));
        String key = text(options, "key");
        String coupon = text(of, "coupon");
        String user = text(of, "user");
        String orderId = text(of, "order");
        Answer answer;
        switch (text(order, "op")) {
            case "issue" -> {
                Issue call = Issue.of(coupon, user);
                if (of.has("ack")) call.ack(ack(of));
                answer = by.issue(key == null ? call : call.key(key));
            }
            case "claim" -> {
                Claim call = Claim.of(text(of, "code"), user);
                if (of.has("ack")) call.ack(ack(of));
                answer = by.claim(key == null ? call : call.key(key));
            }
            case "hold" -> {
                Hold call = named(Hold.of(orderId), of, key);
                if (amount != null) call.amount(amount);
                if (of.has("ttl_s")) call.ttl(Duration.ofSeconds(of.get("ttl_s").getAsLong()));
                answer = by.hold(call);
            }
            case "use" -> {
                Use call = named(Use.of(orderId), of, key);
                answer = by.use(amount == null ? call : call.amount(amount));
            }
            case "release" -> answer = by.release(named(Release.of(orderId), of, key));
            case "rollback" -> {
                Rollback call = named(Rollback.of(orderId), of, key);
                if (amount != null) call.amount(amount);
                answer = by.rollback(of.has("reason") ? call.reason(text(of, "reason")) : call);
            }
            case "status" ->
                    answer =
                            of.has("receive")
                                    ? by.status(text(of, "receive"))
                                    : by.status(coupon, user);
            case "coupon" -> answer = by.coupon(coupon);
            case "code" -> answer = by.code(text(of, "code"), user);
            case "coupons" -> {
                return Map.of("coupons", by.coupons(user).toList());
            }
            case "offers" -> {
                Duration within =
                        of.has("within") ? Duration.ofSeconds(of.get("within").getAsLong()) : null;
                return Map.of("offers", by.offers(user, within, text(of, "tag")).toList());
            }
            case "quote" ->
                    answer =
                            coupon == null
                                    ? by.quoteUser(user, amount)
                                    : by.quote(coupon, amount);
            case "ping" -> answer = by.ping();
            default -> throw new IllegalArgumentException("what is " + order + "?");
        }
        return Map.of("answer", answer);
    }

    private static Ack ack(JsonObject of) {
        return Ack.valueOf(text(of, "ack").toUpperCase(Locale.ROOT));
    }

    private static <S extends OfOrder<S>> S named(S call, JsonObject of, String key) {
        if (key != null) call.key(key);
        if (of.has("receive")) call.receive(text(of, "receive"));
        if (of.has("receives")) call.receives(texts(of.get("receives")));
        if (of.has("coupon")) call.coupon(text(of, "coupon"));
        if (of.has("user")) call.user(text(of, "user"));
        return call;
    }
}
