package couponmq

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"
)

func TestWebhooksAreVerified(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	body := []byte(`[{"id":"B.0/used/1","source":"/couponmq","type":"coupon.used",` +
		`"time":"2026-11-21T12:00:00.130Z","requestid":"r","data":{"coupon":"1001","amount":2000,` +
		`"amount_off":500,"currency":"EUR","received_at":"2026-11-21T12:00:00Z","later":1}}]`)
	request := func(age time.Duration, key []byte) http.Header {
		at := strconv.FormatInt(time.Now().Add(-age).Unix(), 10)
		by := digest(key, append([]byte("msg_1."+at+"."), body...))
		header := http.Header{}
		header.Set("webhook-id", "msg_1")
		header.Set("webhook-timestamp", at)
		header.Set("webhook-signature", "v1,AAAA v1,"+base64.StdEncoding.EncodeToString(by))
		return header
	}
	webhook, err := NewWebhook("whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 24)), secret)
	if err != nil {
		t.Fatal(err)
	}
	events, err := webhook.Read(request(0, key), body)
	if err != nil || len(events) != 1 {
		t.Fatal(events, err)
	}
	one := events[0]
	if one.RequestID != "r" || one.Data.AmountOff != 500 || one.Data.Currency != "EUR" ||
		one.Time.UnixMilli() != 1795262400130 || one.Data.ReceivedAt.IsZero() {
		t.Errorf("%+v", one)
	}
	var wrong *SignatureError
	for name, header := range map[string]http.Header{
		"another key": request(0, key[1:]), "old": request(time.Hour, key),
		"of the future": request(-time.Hour, key), "without headers": {},
	} {
		if _, err := webhook.Read(header, body); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, secrets := range [][]string{{"whsec_AAAA"}, {"whsec_!"}} {
		if _, err := NewWebhook(secrets...); err == nil {
			t.Errorf("%q are secrets", secrets)
		}
	}
}
