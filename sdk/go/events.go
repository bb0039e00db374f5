package couponmq

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ReadEvents reads the events of a message of RabbitMQ, or of a request that was verified.
func ReadEvents(body []byte) ([]Event, error) {
	var events []Event
	err := json.Unmarshal(body, &events)
	return events, err
}

// Webhook verifies what arrives at a webhook.
type Webhook struct {
	// Tolerance is how far away the time of a request may be: 5 minutes, if it is not changed.
	Tolerance time.Duration
	keys      [][]byte
}

// NewWebhook takes the secret, whsec_…, or several while they change.
func NewWebhook(secrets ...string) (*Webhook, error) {
	one := &Webhook{Tolerance: 5 * time.Minute}
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) < 24 || len(key) > 64 {
			return nil, invalid("a secret of a webhook is whsec_ and 24 to 64 bytes in base64")
		}
		one.keys = append(one.keys, key)
	}
	return one, nil
}

// Read returns the events of a request, whose body is as it arrived. It returns a SignatureError if
// the request is not of couponmq.
func (w *Webhook) Read(header http.Header, body []byte) ([]Event, error) {
	id, sent := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	if !w.isSigned(header.Get("Webhook-Signature"), id+"."+sent+"."+string(body)) {
		return nil, &SignatureError{"no signature of the request is right"}
	}
	at, err := strconv.ParseInt(sent, 10, 64)
	if away := time.Since(time.Unix(at, 0)); err != nil || away.Abs() > w.Tolerance {
		return nil, &SignatureError{"the time of the request is too far away"}
	}
	return ReadEvents(body)
}

func (w *Webhook) isSigned(signatures, signed string) bool {
	for _, key := range w.keys {
		ours := "v1," + base64.StdEncoding.EncodeToString(digest(key, []byte(signed)))
		for _, one := range strings.Fields(signatures) {
			if hmac.Equal([]byte(one), []byte(ours)) {
				return true
			}
		}
	}
	return false
}
