package couponmq;

import com.google.gson.JsonArray;
import java.util.Collection;

/**
 * What an order does with its receives: one, several, or, by coupon and user, any receive of the
 * user.
 *
 * @param <S> the kind of call
 */
public abstract sealed class OfOrder<S extends OfOrder<S>> extends Attempt<S>
        permits Hold, Use, Release, Rollback {
    OfOrder(String order) { with("order", order); }

    /** This receive. */
    public S receive(String receive) { return with("receive", receive); }

    /** These receives, of which all change or none. */
    public S receives(Collection<String> receives) {
        var all = new JsonArray();
        for (String one : receives) all.add(Json.text("receives", one));
        members.add("receives", all);
        return self();
    }

    /** Any receive of the user of this coupon, instead of one that is named. */
    public S coupon(String coupon) { return with("coupon", coupon); }

    /** Whose receives they are. */
    public S user(String user) { return with("user", user); }

    /** The name of the caller for the history. */
    public S by(String by) { return with("by", by); }
}
