package couponmq;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.*;
import java.util.function.UnaryOperator;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Verifies what arrives at a webhook. */
public final class Webhook {
    private static final long TOLERANCE_S = 300;

    private final List<byte[]> keys;

    /** The secrets are {@code whsec_…}: one, or several while they change. */
    public Webhook(String... secrets) {
        keys = Arrays.stream(secrets)
                .map(one -> Base64.getDecoder().decode(one.replaceFirst("^whsec_", "")))
                .toList();
        if (keys.isEmpty() || !keys.stream().allMatch(key -> key.length >= 24 && key.length <= 64))
            throw new IllegalArgumentException(
                    "a secret of a webhook is whsec_ and 24 to 64 bytes in base64");
    }

    /**
     * The events of a request, whose body is as it arrived. The function returns a header by its
     * name, such as {@code request::getHeader}.
     *
     * @throws BadSignature nobody who has a secret has sent this, or too long ago
     */
    public List<Event> read(UnaryOperator<String> headers, byte[] body) {
        String id = headers.apply("webhook-id");
        String at = headers.apply("webhook-timestamp");
        String given = headers.apply("webhook-signature");
        if (id == null || at == null || given == null || !at.matches("[0-9]{1,15}"))
            throw new BadSignature("a header of the webhook is missing or malformed");
        if (Math.abs(System.currentTimeMillis() / 1000 - Long.parseLong(at)) > TOLERANCE_S)
            throw new BadSignature("the time of the request is too far away");
        byte[] head = (id + "." + at + ".").getBytes(StandardCharsets.UTF_8);
        for (byte[] key : keys) {
            byte[] right = ("v1," + Base64.getEncoder().encodeToString(hmac(key, head, body)))
                    .getBytes(StandardCharsets.UTF_8);
            for (String one : given.split(" "))
                if (MessageDigest.isEqual(right, one.getBytes(StandardCharsets.UTF_8)))
                    return Event.readAll(body);
        }
        throw new BadSignature("no signature of the request is right");
    }

    /** The events of a request with these headers, by names in any case. */
    public List<Event> read(Map<String, String> headers, byte[] body) {
        var found = new TreeMap<String, String>(String.CASE_INSENSITIVE_ORDER);
        found.putAll(headers);
        return read(found::get, body);
    }

    /** HMAC-SHA-256. */
    static byte[] hmac(byte[] key, byte[]... parts) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            for (byte[] part : parts) mac.update(part);
            return mac.doFinal();
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("Java has no HMAC-SHA-256", e);
        }
    }
}
