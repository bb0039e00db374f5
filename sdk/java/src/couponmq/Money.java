package couponmq;

import java.math.BigDecimal;
import java.util.Map;

/**
 * An amount of money: an integer in the smallest unit of a currency, never a fraction. {@code new
 * Money(1250, "EUR")} is 12.50 EUR, and {@code new Money(1250, "JPY")} is 1250 JPY.
 *
 * @param minor the amount in the smallest unit
 * @param currency three letters of ISO 4217
 */
public record Money(long minor, String currency) {
    // The currencies that do not have two digits, by the column "Minor unit" of list one of ISO
    // 4217. ctl/money.c has the same table.
    private static final Map<Integer, String> OTHERS = Map.of(
            0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
            3, "BHD IQD JOD KWD LYD OMR TND",
            4, "CLF UYW");
    private static final long PARSED_MAX = (1L << 53) - 1; // what each reader of JSON has exactly

    /** Refuses what is no currency. */
    public Money {
        if (currency == null || !currency.matches("[A-Z]{3}"))
            throw new IllegalArgumentException(
                    "currency is " + currency + ": must be three letters of ISO 4217");
    }

    /**
     * Takes what people write: all digits of the currency after a point, or a whole amount without
     * a point.
     *
     * @throws IllegalArgumentException anything else, such as "12,50" or "12.5", which people read
     *     in more than one way
     */
    public static Money parse(String text, String currency) {
        int digits = new Money(0, currency).digits();
        String form = "[0-9]+" + (digits > 0 ? "(\\.[0-9]{" + digits + "})?" : "");
        if (text != null && text.matches(form)) {
            BigDecimal minor = new BigDecimal(text).movePointRight(digits);
            if (minor.compareTo(BigDecimal.valueOf(PARSED_MAX)) <= 0)
                return new Money(minor.longValueExact(), currency);
        }
        String how = digits > 0 ? "with " + digits + " digits after a point, or without" : "whole";
        throw new IllegalArgumentException(
                "\"" + text + "\" is no amount of " + currency + ": it is written " + how);
    }

    private int digits() {
        for (var one : OTHERS.entrySet())
            if (one.getValue().contains(currency)) return one.getKey();
        return 2;
    }

    /** The amount as a number of the currency's own unit. */
    public BigDecimal amount() { return BigDecimal.valueOf(minor, digits()); }

    /** The amount with all digits of the currency, as {@link #parse} takes it. */
    public String text() { return amount().toPlainString(); }

    /** The sum; both amounts have the same currency. */
    public Money plus(Money other) {
        return new Money(Math.addExact(minor, same(other)), currency);
    }

    /** The difference; both amounts have the same currency. */
    public Money minus(Money other) {
        return new Money(Math.subtractExact(minor, same(other)), currency);
    }

    /** The amount and its currency, such as {@code 12.50 EUR}. */
    @Override
    public String toString() { return text() + " " + currency; }

    private long same(Money other) {
        if (!currency.equals(other.currency))
            throw new IllegalArgumentException(
                    this + " and " + other + " have different currencies");
        return other.minor;
    }
}
