package couponmq;

import com.google.gson.*;
import java.io.IOException;
import java.net.http.HttpClient;
import java.nio.file.*;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import javax.net.ssl.*;

/**
 * A client of one or several gateways, for any number of threads.
 *
 * <p>A call waits until it has an answer, and is tried again until its deadline while its outcome
 * is not known, or nothing could be done, each time with the same key. A call whose thread is
 * interrupted throws {@link Unavailable} or {@link Unknown}, and the thread stays interrupted.
 */
public final class Client implements AutoCloseable {
    private static final long BACKOFF_NS = 50_000_000;
    private static final long BACKOFF_MAX_NS = 2_000_000_000;

    private final Gateways gateways;
    private final Duration deadline;
    private final Duration attempt;

    private Client(Gateways gateways, Duration deadline, Duration attempt) {
        this.gateways = gateways;
        this.deadline = deadline;
        this.attempt = attempt;
    }

    /** A client of these gateways, such as {@code http://127.0.0.1:7480}. */
    public static Builder of(String... gateways) { return new Builder(List.of(gateways)); }

    /** An idempotency key for one attempt of a customer. */
    static String newKey() { return UUID.randomUUID().toString(); }

    /** The same client, with its connections, whose calls have another deadline. */
    public Client within(Duration deadline) { return new Client(gateways, deadline, attempt); }

    /** Asks for a coupon. */
    public IssueAnswer issue(Issue call) { return change("issue", call, IssueAnswer.class); }

    /** Asks for the coupon of an exchange code. */
    public IssueAnswer claim(Claim call) { return change("claim", call, IssueAnswer.class); }

    /** Keeps receives for an order. */
    public OrderAnswer hold(Hold call) { return change("hold", call, OrderAnswer.class); }

    /** Uses what the order holds, or what is free. */
    public OrderAnswer use(Use call) { return change("use", call, OrderAnswer.class); }

    /** Gives up a hold. */
    public OrderAnswer release(Release call) { return change("release", call, OrderAnswer.class); }

    /** Takes a use back. */
    public OrderAnswer rollback(Rollback call) {
        return change("rollback", call, OrderAnswer.class);
    }

    /** What became of a receive. */
    public StatusAnswer status(String receive) {
        return run("status", members("receive", receive), null, StatusAnswer.class);
    }

    /** What became of all receives of a user. */
    public StatusAnswer status(String coupon, String user) {
        return run("status", members("coupon", coupon, "user", user), null, StatusAnswer.class);
    }

    /** The terms of a coupon, and what is left. */
    public CouponAnswer coupon(String coupon) {
        return run("coupon", members("coupon", coupon), null, CouponAnswer.class);
    }

    /** What an exchange code would give to the user, who does not claim it. */
    public CodeAnswer code(String code, String user) {
        return run("code", members("code", code, "user", user), null, CodeAnswer.class);
    }

    /** The coupons of a user, newest first; further pages are read when they are needed. */
    public Stream<CouponsAnswer.UserCoupon> coupons(String user) { return coupons(user, false); }

    /** The coupons of a user; usable: only those that an order could use. */
    public Stream<CouponsAnswer.UserCoupon> coupons(String user, boolean usable) {
        UnaryOperator<CouponsAnswer> next = page ->
                page.cursor() == null ? null : couponsPage(user, usable, page.cursor());
        return Stream.iterate(couponsPage(user, usable, null), page -> page != null, next)
                .flatMap(page -> page.coupons().stream());
    }

    private CouponsAnswer couponsPage(String user, boolean usable, String cursor) {
        JsonObject members = members("user", user);
        if (usable) members.addProperty("usable", true);
        if (cursor != null) members.addProperty("cursor", cursor);
        return run("coupons", members, null, CouponsAnswer.class);
    }

    /**
     * The campaigns that are open or begin soon; further pages are read when they are needed.
     *
     * @param user of whom each offer says what the user may have; null: nobody
     * @param within how soon they begin at the latest; null: 7 days
     * @param tag only campaigns with this tag; null: any
     */
    public Stream<OffersAnswer.Offer> offers(String user, Duration within, String tag) {
        UnaryOperator<OffersAnswer> next = page ->
                page.cursor() == null ? null : offersPage(user, within, tag, page.cursor());
        return Stream.iterate(offersPage(user, within, tag, null), page -> page != null, next)
                .flatMap(page -> page.offers().stream());
    }

    private OffersAnswer offersPage(String user, Duration within, String tag, String cursor) {
        JsonObject members = user == null ? members() : members("user", user);
        if (within != null) members.addProperty("within", within.toSeconds());
        if (tag != null) members.addProperty("tag", tag);
        if (cursor != null) members.addProperty("cursor", cursor);
        return run("offers", members, null, OffersAnswer.class);
    }

    /** What the terms of a coupon take off an amount. It holds nothing. */
    public QuoteAnswer quote(String coupon, Money amount) {
        return quote(members("coupon", coupon), amount);
    }

    /** What the receives of a user that an order could use take off an amount, the best first. */
    public QuoteAnswer quoteUser(String user, Money amount) {
        return quote(members("user", user), amount);
    }

    private QuoteAnswer quote(JsonObject members, Money amount) {
        members.addProperty("amount", amount.minor());
        members.addProperty("currency", amount.currency());
        return run("quote", members, null, QuoteAnswer.class);
    }

    /** Whether a gateway answers. */
    public Answer ping() { return run("ping", members(), null, Answer.Plain.class); }

    /** Calls that wait for a reply end with {@link Unknown}, if they change something. */
    @Override
    public void close() { gateways.close(); }

    private static JsonObject members(String... pairs) {
        var members = new JsonObject();
        for (int i = 0; i < pairs.length; i += 2)
            members.addProperty(pairs[i], Json.text(pairs[i], pairs[i + 1]));
        return members;
    }

    private <T extends Answer> T change(String op, Attempt<?> call, Class<T> kind) {
        return run(op, call.members.deepCopy(), call.key == null ? newKey() : call.key, kind);
    }

    /** Attempts, until there is an answer or the deadline. A call with a key changes something. */
    private <T extends Answer> T run(String op, JsonObject members, String key, Class<T> kind) {
        long giveUpNs = System.nanoTime() + deadline.toNanos();
        boolean mayBeDone = false;
        String receive = null; // accepted, without the level of ack
        String why = null;
        if (key != null) members.addProperty("key", key);
        for (int attempts = 1; ; attempts++) {
            int gateway = gateways.current();
            int code = Reply.NO_CODE;
            double toldNs = 0;
            Exception trouble = null;
            var begun = new CompletableFuture<Boolean>();
            long withinNs = Math.min(attempt.toNanos(), giveUpNs - System.nanoTime());
            try {
                Reply reply = gateways.send(gateway, op, members, begun, withinNs);
                code = reply.code();
                if (code < Reply.BUSY) return reply.answer(kind, key);
                why = reply.message();
                toldNs = reply.toldNs();

                boolean isLater = code <= Reply.RATE_LIMITED;
                // A proxy's, or that of a gateway to which the request did not arrive in time.
                int status = reply.httpStatus();
                boolean isTrouble = status == 408 || status == 429 || status >= 500;
                mayBeDone |= isLater ? code == Reply.UNKNOWN : isTrouble || status < 400;
                String accepted = Json.string(reply.body(), "receive");
                if (code == Reply.UNKNOWN && accepted != null) receive = accepted;
                if (!isLater && !isTrouble) {
                    // An earlier attempt may have been executed, unless this repeats the answer to
                    // that attempt, or the key was never this call's.
                    boolean isKnown = code == Reply.KEY_REUSED
                            || new JsonPrimitive(true).equals(reply.body().get("replayed"));
                    if (key == null || !mayBeDone || isKnown) throw reply.refusal();
                    throw ending(op, key, receive, why, reply.refusal());
                }
            } catch (IOException e) {
                begun.complete(false);
                mayBeDone |= begun.join();
                trouble = e;
                // Of an attempt that the deadline shortened, what ended the one before says more.
                boolean isShort = withinNs < attempt.toNanos();
                if (why == null || !isShort || !(e.getCause() instanceof TimeoutException))
                    why = e.getMessage();
            }

            if (code != Reply.RATE_LIMITED) gateways.leave(gateway);
            // At least what was told, and never beyond the deadline.
            long backoffNs = Math.min(BACKOFF_NS << Math.min(attempts - 1, 20), BACKOFF_MAX_NS);
            double chance = ThreadLocalRandom.current().nextDouble();
            double pauseNs = Math.max(backoffNs * (1 + chance) / 2, toldNs * (1 + chance / 4));
            if (pauseNs >= giveUpNs - System.nanoTime())
                why += "; " + attempts + " attempts until the deadline";
            else if (gateways.pause((long) pauseNs)) continue;
            else why = Gateways.STOPPED + ": " + why;
            throw ending(op, mayBeDone ? key : null, receive, why, trouble);
        }
    }

    /** The truth about a call that ends without an answer; key: it may be done. */
    private static CouponException ending(
            String op, String key, String receive, String why, Exception cause) {
        return key == null
                ? new Unavailable(op + " was not done by this call: " + why, cause)
                : new Unknown(op + " is unknown: " + why, key, receive, cause);
    }

    /** The options of a client. */
    public static final class Builder {
        private final List<String> urls;
        private final HttpClient.Builder http =
                HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1);
        private String token;
        private Duration deadline = Duration.ofSeconds(30);
        private Duration attempt = Duration.ofSeconds(10);

        private Builder(List<String> urls) { this.urls = urls; }

        /** An API key or a user token. */
        public Builder token(String token) {
            this.token = token;
            return this;
        }

        /** For a call with all its attempts; 30 s by default. */
        public Builder deadline(Duration deadline) {
            this.deadline = deadline;
            return this;
        }

        /** For one attempt, longer than the gateway waits (5 s); 10 s by default. */
        public Builder attempt(Duration attempt) {
            this.attempt = attempt;
            return this;
        }

        /** A file in PEM with the certificates that are trusted, instead of those of Java. */
        public Builder ca(Path certificates) throws IOException {
            try (var in = Files.newInputStream(certificates)) {
                KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
                trusted.load(null, null);
                for (var one : CertificateFactory.getInstance("X.509").generateCertificates(in))
                    trusted.setCertificateEntry("ca-" + trusted.size(), one);
                var trust = TrustManagerFactory.getInstance("PKIX");
                trust.init(trusted);
                SSLContext context = SSLContext.getInstance("TLS");
                context.init(null, trust.getTrustManagers(), null);
                return tls(context);
            } catch (GeneralSecurityException e) {
                throw new IOException(certificates + " has no certificates in PEM", e);
            }
        }

        /** What is trusted, and the certificate of the client that stands for its key. */
        public Builder tls(SSLContext tls) {
            http.sslContext(tls);
            return this;
        }

        /** The client; it connects when it is called. */
        public Client build() {
            return new Client(new Gateways(urls, token, http), deadline, attempt);
        }
    }
}
