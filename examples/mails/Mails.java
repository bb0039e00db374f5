// A receiver of webhooks: Mails FILE [PORT], with the secrets in WEBHOOK_SECRETS, separated by
// spaces.
//
// Each user who gets a coupon gets a mail; here it is a line of FILE. A request is answered with
// 204 once its lines are on the disk. An event that arrives again has its line already.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import couponmq.BadSignature;
import couponmq.Event;
import couponmq.Webhook;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.Executors;

final class Mails {
    private final RandomAccessFile file;
    private final Set<String> seen = new HashSet<>();
    private final Webhook webhook;

    private Mails(String path, String... secrets) throws IOException {
        webhook = new Webhook(secrets);
        file = new RandomAccessFile(path, "rw");
        long whole = 0;
        for (String line; (line = file.readLine()) != null; whole = file.getFilePointer()) {
            file.seek(file.getFilePointer() - 1);
            if (file.read() != '\n') break; // cut off: the request was not answered
            seen.add(line.substring(0, line.indexOf('\t')));
        }
        file.setLength(whole);
        file.seek(whole);
    }

    /** The lines of what is new, on the disk. */
    private synchronized void write(Iterable<Event> events) throws IOException {
        var lines = new StringBuilder();
        for (var event : events) {
            if (!(event.data() instanceof Event.Issued issued)) continue;
            var name = event.source() + " " + event.id();
            if (!seen.add(name)) continue;
            lines.append(name).append("\tto ").append(issued.user());
            lines.append(": you have the coupon ").append(issued.coupon()).append('\n');
        }
        if (lines.isEmpty()) return;
        file.write(lines.toString().getBytes(StandardCharsets.UTF_8));
        file.getFD().sync();
    }

    private void answer(HttpExchange request) throws IOException {
        try (request) {
            var body = request.getRequestBody().readAllBytes();
            var headers = request.getRequestHeaders();
            int status = 204;
            try {
                write(webhook.read(headers::getFirst, body));
            } catch (BadSignature stranger) {
                status = 400;
            } catch (IOException full) {
                full.printStackTrace();
                Runtime.getRuntime().halt(1); // what is in memory is not on the disk
            }
            request.sendResponseHeaders(status, -1);
        }
    }

    public static void main(String[] arguments) throws IOException {
        var mails = new Mails(arguments[0], System.getenv("WEBHOOK_SECRETS").split(" "));
        int port = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 8000;
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/hooks/coupons", mails::answer);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
        System.out.println("http://127.0.0.1:" + server.getAddress().getPort() + "/hooks/coupons");
    }
}
