package couponmq;

import com.google.gson.*;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** JSON, and the records in answers and events. Members that are not known here are left out. */
final class Json {
    private static final Set<String> AMOUNTS = Set.of("amount", "amount_off", "cap", "threshold");
    private static final Set<String> OTHERS = Set.of("changes", "metadata"); // are not ours
    private static final JsonDeserializer<Instant> TIME =
            (text, type, of) -> OffsetDateTime.parse(text.getAsString()).toInstant();
    private static final Gson GSON = new GsonBuilder()
            .setFieldNamingPolicy(FieldNamingPolicy.LOWER_CASE_WITH_UNDERSCORES)
            .setObjectToNumberStrategy(ToNumberPolicy.BIG_DECIMAL)
            .registerTypeAdapter(Instant.class, TIME)
            .create();
    private static final TypeAdapter<JsonElement> ANY = GSON.getAdapter(JsonElement.class);

    private Json() {}

    /** The value of an argument; refuses what would become another text on its way. */
    static String text(String name, String value) {
        if (value == null || value.isEmpty())
            throw new IllegalArgumentException(name + (value == null ? " is null" : " is empty"));
        if (!StandardCharsets.UTF_8.newEncoder().canEncode(value))
            throw new IllegalArgumentException(name + " has half a character of UTF-16");
        return value;
    }

    /** The value in these bytes. */
    static JsonElement parse(byte[] body) throws IOException {
        return ANY.fromJson(new String(body, StandardCharsets.UTF_8));
    }

    /** A text member; null: there is none. */
    static String string(JsonObject of, String name) {
        boolean isText = of.get(name) instanceof JsonPrimitive value && value.isString();
        return isText ? of.get(name).getAsString() : null;
    }

    /** The record from the members. Throws RuntimeException, if one is malformed. */
    static <T> T build(Class<T> kind, JsonElement body) { return GSON.fromJson(body, kind); }

    /** The list, or an empty one. */
    static <T> List<T> list(List<T> all) { return all == null ? List.of() : List.copyOf(all); }

    /** Makes amounts what Money is read from, where the currency is beside them. */
    static void amountsMake(JsonElement body) {
        if (body instanceof JsonArray all) all.forEach(Json::amountsMake);
        if (!(body instanceof JsonObject of)) return;
        for (Map.Entry<String, JsonElement> one : of.entrySet()) {
            if (AMOUNTS.contains(one.getKey()) && one.getValue() instanceof JsonPrimitive minor) {
                var amount = new JsonObject();
                amount.add("minor", minor);
                amount.add("currency", of.get("currency"));
                one.setValue(of.has("currency") ? amount : JsonNull.INSTANCE);
            } else if (!OTHERS.contains(one.getKey())) {
                amountsMake(one.getValue());
            }
        }
    }
}
