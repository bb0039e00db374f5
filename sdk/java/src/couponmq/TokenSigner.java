package couponmq;

import com.google.gson.*;
import java.nio.charset.StandardCharsets;
import java.security.*;
import java.security.interfaces.ECPrivateKey;
import java.security.spec.*;
import java.time.Duration;
import java.util.*;
import java.util.regex.*;

/**
 * Signs user tokens, which a shop's server gives to a user, whose browser then asks the gateway: by
 * ES256 or EdDSA with a private key in PEM (PKCS #8), or by HS256 with a secret of 32 bytes or
 * more.
 */
public final class TokenSigner {
    private static final Pattern PEM = Pattern.compile(
            "\\s*-----BEGIN PRIVATE KEY-----([\\w+/=\\s]+)-----END PRIVATE KEY-----\\s*");

    private static final String P256 = "1.2.840.10045.3.1.7";

    private final String head;
    private final String issuer;
    private final byte[] secret; // of HS256; null: there is a private key
    private final PrivateKey privateKey;
    private String audience = "couponmq";
    private Duration life = Duration.ofMinutes(10);

    /**
     * A signer with this key.
     *
     * @param kid the name of the key in COUPON_TOKEN_KEYS
     */
    public TokenSigner(byte[] key, String kid, String issuer) {
        this.issuer = Json.text("issuer", issuer);
        String text = new String(key, StandardCharsets.ISO_8859_1);
        boolean isPem = text.stripLeading().startsWith("-----BEGIN");
        if (!isPem && key.length < 32)
            throw new IllegalArgumentException("a secret for HS256 has 32 bytes or more");
        secret = isPem ? null : key.clone();
        privateKey = isPem ? privateKey(text) : null;
        var header = new JsonObject();
        header.addProperty("alg", secret != null ? "HS256" : isEc() ? "ES256" : "EdDSA");
        header.addProperty("kid", Json.text("kid", kid));
        head = base64(header.toString().getBytes(StandardCharsets.UTF_8));
    }

    /** Whom the tokens are for, {@code couponmq} by default. */
    public TokenSigner audience(String audience) {
        this.audience = Json.text("audience", audience);
        return this;
    }

    /** How long a token is valid, 10 minutes by default. */
    public TokenSigner life(Duration life) {
        this.life = life;
        return this;
    }

    /** A token for all requests of this user. */
    public String token(String user) { return token(user, null, null); }

    /**
     * A token for some requests of this user.
     *
     * @param coupons only these, 1 to 64; null: all
     * @param key the idempotency key that each of its requests must have, so that a stolen token
     *     gives no further coupon; null: any
     */
    public String token(String user, Collection<String> coupons, String key) {
        var claims = new JsonObject();
        claims.addProperty("iss", issuer);
        claims.addProperty("aud", audience);
        claims.addProperty("sub", Json.text("user", user));
        claims.addProperty("exp", (System.currentTimeMillis() + life.toMillis()) / 1000);
        if (coupons != null) {
            if (coupons.isEmpty() || coupons.size() > 64)
                throw new IllegalArgumentException(
                        "coupons has " + coupons.size() + " ids: must have 1 to 64");
            var ids = new JsonArray();
            for (String one : coupons) ids.add(Json.text("coupons", one));
            claims.add("coupons", ids);
        }
        if (key != null) claims.addProperty("key", Json.text("key", key));
        String signed = head + "." + base64(claims.toString().getBytes(StandardCharsets.UTF_8));
        return signed + "." + base64(sign(signed.getBytes(StandardCharsets.US_ASCII)));
    }

    private byte[] sign(byte[] text) {
        if (secret != null) return Webhook.hmac(secret, text);
        try { // tokens have signatures in the form of IEEE P1363
            var by = Signature.getInstance(isEc() ? "SHA256withECDSAinP1363Format" : "Ed25519");
            by.initSign(privateKey);
            by.update(text);
            return by.sign();
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("Java cannot sign by this key", e);
        }
    }

    private boolean isEc() { return privateKey instanceof ECPrivateKey; }

    private static PrivateKey privateKey(String pem) {
        Matcher found = PEM.matcher(pem);
        if (!found.matches())
            throw new IllegalArgumentException(
                    "the private key is not PKCS #8 in PEM, as by openssl pkcs8 -topk8 -nocrypt");
        var spec = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(found.group(1)));
        for (String kind : List.of("Ed25519", "EC")) {
            try {
                PrivateKey key = KeyFactory.getInstance(kind).generatePrivate(spec);
                if (!(key instanceof ECPrivateKey ec)) return key;
                var curve = AlgorithmParameters.getInstance("EC");
                curve.init(ec.getParams());
                String name = curve.getParameterSpec(ECGenParameterSpec.class).getName();
                if (name.equals(P256)) return key;
            } catch (GeneralSecurityException e) {
                // It must be of the other kind.
            }
        }
        throw new IllegalArgumentException("the private key is neither of P-256 nor of Ed25519");
    }

    private static String base64(byte[] bytes) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }
}
