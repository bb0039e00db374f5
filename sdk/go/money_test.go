package couponmq

import "testing"

func TestAmountsAreExact(t *testing.T) {
	for text, wanted := range map[string]int64{"0": 0, "0.07": 7, "12": 1200, "12.50": 1250} {
		if amount, err := ParseAmount(text, "EUR"); err != nil || amount != wanted {
			t.Errorf("%s: %d, %v", text, amount, err)
		}
	}
	for _, text := range []string{"", "-1.00", "1.5", "1,50", "1.", ".50", "1.00\n", "1e2", "1_0",
		"1.0.0", "90071992547409.92", "99999999999999999999"} {
		if amount, err := ParseAmount(text, "EUR"); err == nil {
			t.Errorf("%q is %d", text, amount)
		}
	}
	if amount, err := ParseAmount("12.", "JPY"); err == nil {
		t.Errorf("a point without digits: %d", amount)
	}
	for _, one := range []struct {
		amount         int64
		currency, text string
	}{
		{7, "EUR", "0.07"}, {-7, "EUR", "-0.07"}, {-1250, "EUR", "-12.50"},
		{0, "JPY", "0"}, {-5, "JPY", "-5"}, {7, "KWD", "0.007"},
	} {
		if text := FormatAmount(one.amount, one.currency); text != one.text {
			t.Errorf("%v is written as %q", one, text)
		}
	}
}
