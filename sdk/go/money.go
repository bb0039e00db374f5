package couponmq

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The currencies that do not have two digits, by the column "Minor unit" of list one of ISO 4217.
// ctl/money.c has the same table.
var digitsOf = map[int]string{
	0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
	3: "BHD IQD JOD KWD LYD OMR TND",
	4: "CLF UYW",
}

var currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)

// How many digits of the currency are behind the point.
func digits(currency string) int {
	for digits, names := range digitsOf {
		if currencyForm.MatchString(currency) && strings.Contains(names, currency) {
			return digits
		}
	}
	return 2
}

// ParseAmount reads an amount as people write it: with all digits of the currency after a point, or
// whole and without a point. 12.50 in EUR is 1250, and 1250 in JPY is 1250. It refuses anything
// else, such as "12,50" or "12.5", which people read in more than one way.
func ParseAmount(text, currency string) (int64, error) {
	if !currencyForm.MatchString(currency) {
		return 0, invalid("currency is %q: must be three letters of ISO 4217", currency)
	}
	digits := digits(currency)
	whole, fraction, hasPoint := strings.Cut(text, ".")
	if !hasPoint {
		fraction = strings.Repeat("0", digits)
	}
	// Amounts of more than 53 bits are no integers for other readers of JSON.
	amount, err := strconv.ParseUint(whole+fraction, 10, 53)
	if err != nil || whole == "" || len(fraction) != digits || hasPoint && digits == 0 {
		return 0, invalid("%q is no amount of %s with %d digits or whole", text, currency, digits)
	}
	return int64(amount), nil
}

// FormatAmount writes an amount with all digits of its currency, as ParseAmount reads it.
func FormatAmount(amount int64, currency string) string {
	digits := digits(currency)
	width := digits + 1
	if amount < 0 {
		width++
	}
	all := fmt.Sprintf("%0*d", width, amount)
	if digits == 0 {
		return all
	}
	point := len(all) - digits
	return all[:point] + "." + all[point:]
}
