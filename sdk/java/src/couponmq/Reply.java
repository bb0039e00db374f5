package couponmq;

import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.http.HttpHeaders;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpResponse.ResponseInfo;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.*;

/**
 * The reply to one request.
 *
 * @param body empty: the reply has no object of JSON
 */
record Reply(int httpStatus, HttpHeaders headers, JsonObject body) {
    static final int BUSY = 20;
    static final int UNKNOWN = 22;
    static final int RATE_LIMITED = 23;
    static final int KEY_REUSED = 44;
    static final int NO_CODE = 99;

    // The answers that say nothing about a coupon or a receive. The gateway may give those of
    // UNPARSED before it has read the id of the request.
    private static final Map<Integer, String> NAMES = Map.of(
            BUSY, "busy", 21, "unavailable", UNKNOWN, "unknown", RATE_LIMITED, "rate_limited",
            40, "bad_request", 41, "unauthorized", 42, "forbidden", 43, "too_large",
            KEY_REUSED, "key_reused");
    private static final Set<Integer> UNPARSED = Set.of(BUSY, 21, RATE_LIMITED, 40, 41, 42, 43);

    /** That of the gateway's answer. NO_CODE: the reply is a proxy's, whatever its JSON says. */
    int code() {
        String status = Json.string(body, "status");
        String number = String.valueOf(body.get("code"));
        if (status == null || !number.matches("[0-9]{1,2}")) return NO_CODE;
        int code = Integer.parseInt(number);
        return code < BUSY || status.equals(NAMES.get(code)) ? code : NO_CODE;
    }

    /** Whether this says that it replies to the request with this id. */
    boolean isNamed(String id) { return id.equals(Json.string(body, "id")); }

    /** Whether this is, or may be, the reply to another request than that with this id. */
    boolean isOfAnother(String id) {
        int code = code();
        return code != NO_CODE && !isNamed(id) && (body.has("id") || !UNPARSED.contains(code));
    }

    /** The body as an answer to the call that had this key. */
    <T> T answer(Class<T> kind, String key) throws IOException {
        body.addProperty("key", key);
        try {
            Json.amountsMake(body);
            return Json.build(kind, body);
        } catch (RuntimeException e) {
            throw new IOException("the answer is malformed: " + e.getMessage(), e);
        }
    }

    /** For people. */
    String message() {
        String message = Json.string(body, "message");
        return message == null ? "HTTP " + httpStatus : message;
    }

    /** Why the request was refused for good. */
    RequestException refusal() {
        boolean isOfHttp = code() == NO_CODE || code() == 40 && httpStatus != 400;
        return new RequestException(
                isOfHttp ? "http" : NAMES.get(code()), message(), httpStatus);
    }

    /** How long the gateway wants to be left alone. */
    double toldNs() {
        String ms = String.valueOf(body.get("retry_after_ms"));
        if (ms.matches("[0-9.]+")) return Double.parseDouble(ms) * 1e6;
        String s = headers.firstValue("Retry-After").orElse("");
        return s.matches("[0-9]+") ? Double.parseDouble(s) * 1e9 : 0;
    }

    /**
     * Reads the reply to the request with this id. A reply that does not name it ends its
     * connection, over which the real one may still come.
     */
    static final class Reader implements BodySubscriber<Reply> {
        private static final int BYTES_MAX = 1 << 22;

        private final ResponseInfo head;
        private final String id;
        private final Runnable distrust;
        private final long length; // -1: it comes in chunks
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private final CompletableFuture<Reply> done = new CompletableFuture<>();
        private Flow.Subscription subscription;
        private Reply reply; // once all of it is here

        Reader(ResponseInfo head, String id, Runnable distrust) {
            this.head = head;
            this.id = id;
            this.distrust = distrust;
            length = head.headers().firstValueAsLong("Content-Length").orElse(-1);
        }

        @Override
        public CompletionStage<Reply> getBody() { return done; }

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            this.subscription = subscription;
            subscription.request(Long.MAX_VALUE);
            String coding = head.headers().firstValue("Transfer-Encoding").orElse("");
            if (length < 0 && !coding.equalsIgnoreCase("chunked"))
                refuse("the length of the reply is not known");
        }

        @Override
        public void onNext(List<ByteBuffer> parts) {
            for (ByteBuffer part : parts) {
                byte[] some = new byte[part.remaining()];
                part.get(some);
                bytes.writeBytes(some);
            }
            if (bytes.size() > BYTES_MAX) refuse("the reply is too long");
            if (bytes.size() != length) return;
            reply = parse();
            // At once: before onComplete() the connection is kept for the next request.
            if (!reply.isNamed(id)) end();
        }

        @Override
        public void onComplete() {
            if (reply == null) reply = parse();
            if (!done.isDone()) end();
        }

        @Override
        public void onError(Throwable trouble) { done.completeExceptionally(trouble); }

        private Reply parse() {
            var body = new JsonObject();
            try {
                if (Json.parse(bytes.toByteArray()) instanceof JsonObject object) body = object;
            } catch (IOException | RuntimeException e) {
                // A proxy's page.
            }
            return new Reply(head.statusCode(), head.headers(), body);
        }

        private void end() {
            if (reply.isOfAnother(id)) {
                if (length < 0) distrust.run();
                refuse("the reply is that of another request");
            } else {
                done.complete(reply);
                if (!reply.isNamed(id)) subscription.cancel();
            }
        }

        private void refuse(String why) {
            done.completeExceptionally(new IOException(why));
            subscription.cancel();
        }
    }
}
