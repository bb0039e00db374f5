package couponmq;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.net.URI;
import java.net.http.*;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Set;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** The gateways of a client, and its requests to them over connections that are kept. */
final class Gateways {
    static final String STOPPED = "the client is closed, or the thread was interrupted";

    private final List<URI> urls;
    private final AtomicInteger current; // which gateway is asked
    private final CountDownLatch closed = new CountDownLatch(1);
    private final HttpClient.Builder options;
    private final HttpRequest.Builder requests;
    private final Set<Future<?>> waiting = ConcurrentHashMap.newKeySet();
    private final String name = Client.newKey().substring(0, 12);
    private final AtomicLong ids = new AtomicLong();
    private volatile HttpClient http;

    Gateways(List<String> urls, String token, HttpClient.Builder options) {
        if (urls.isEmpty()) throw new IllegalArgumentException("there is no gateway");
        if (token != null && !token.matches("[!-~][ -~]*"))
            throw new IllegalArgumentException("the token is not printable ASCII");
        this.urls = urls.stream().map(Gateways::operations).toList();
        current = new AtomicInteger(ThreadLocalRandom.current().nextInt(urls.size()));
        this.options = options;
        http = options.build();
        requests = HttpRequest.newBuilder()
                .header("Content-Type", "application/json").header("Accept", "application/json");
        if (token != null) requests.header("Authorization", "Bearer " + token);
    }

    private static URI operations(String url) {
        try {
            URI operations = URI.create(url.replaceFirst("/*$", "/v1/"));
            HttpRequest.newBuilder(operations); // refuses what is not HTTP
            return operations;
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException(
                    url + " is no URL of a gateway, such as http://127.0.0.1:7480", e);
        }
    }

    /** Which gateway the next request goes to. */
    int current() { return current.get(); }

    /** The next gateway is asked instead of this one, with which there was trouble. */
    void leave(int gateway) { current.compareAndSet(gateway, (gateway + 1) % urls.size()); }

    /** Returns false at once if the client is closed or the thread interrupted. */
    boolean pause(long ns) {
        try {
            return !closed.await(ns, TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    /**
     * One attempt, whose reply is waited for until its time is over, the client is closed or the
     * thread is interrupted.
     *
     * @param begun true from the moment on from which the gateway may have the request.
     *     Completing it with false before that moment stops the request for good.
     */
    Reply send(int gateway, String op, JsonObject members, CompletableFuture<Boolean> begun,
            long withinNs) throws IOException {
        if (!pause(0)) throw new IOException("nothing was sent");
        String id = name + "-" + ids.incrementAndGet();
        members.addProperty("id", id);
        BodyPublisher bytes = BodyPublishers.ofString(members.toString());
        // HttpClient asks for the body when it has a connection, of a request that was cancelled
        // meanwhile, too. Without its body a request is none.
        Flow.Publisher<ByteBuffer> body = to -> {
            if (!begun.complete(true)) throw new CancellationException("the attempt is over");
            bytes.subscribe(to);
        };
        HttpRequest request = requests.copy()
                .uri(urls.get(gateway).resolve(op))
                .header("X-Request-Id", id)
                .POST(BodyPublishers.fromPublisher(body, bytes.contentLength()))
                .build();
        CompletableFuture<HttpResponse<Reply>> sent =
                http.sendAsync(request, head -> new Reply.Reader(head, id, this::distrust));
        waiting.add(sent);
        if (closed.getCount() == 0) sent.cancel(true); // close() may not have seen it
        try {
            return sent.get(withinNs, TimeUnit.NANOSECONDS).body();
        } catch (InterruptedException | TimeoutException | ExecutionException
                | CancellationException e) {
            if (e instanceof InterruptedException) Thread.currentThread().interrupt();
            throw new IOException("no reply: " + (e.getCause() == null ? e : e.getCause()), e);
        } finally {
            sent.cancel(true); // ends its connection, unless the reply is there
            waiting.remove(sent);
        }
    }

    void close() {
        closed.countDown();
        waiting.forEach(one -> one.cancel(true));
    }

    /** No request goes over a connection again that is there now. */
    private void distrust() { http = options.build(); }
}
