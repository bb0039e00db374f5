package couponmq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
)

const bodyMax = 1 << 22

const busy, unavailable, unknown, rateLimited, badRequest, keyReused = 20, 21, 22, 23, 40, 44
const noCode = -1

// The answers that say nothing about a coupon or a receive.
var statusOf = map[int]string{
	busy: "busy", unavailable: "unavailable", unknown: "unknown", rateLimited: "rate_limited",
	badRequest: "bad_request", 41: "unauthorized", 42: "forbidden", 43: "too_large",
	keyReused: "key_reused",
}

// A reply of a gateway, or of a proxy before it.
type reply struct {
	httpStatus   int
	retryAfter   string // the header
	text         []byte
	ID           any     `json:"id"`
	Code         int     `json:"code"` // noCode: it is a proxy's, whatever it says
	Status       string  `json:"status"`
	Message      string  `json:"message"`
	Receive      string  `json:"receive"`
	Replayed     bool    `json:"replayed"`
	RetryAfterMS float64 `json:"retry_after_ms"`
}

// Sends a request and waits for its reply. begun is set before the first byte: the gateway may have
// the request. net/http sends a POST again by itself only if nothing of it was written.
func (c *Client) exchange(
	ctx context.Context, gateway *url.URL, op string, members map[string]json.RawMessage,
	begun *atomic.Bool,
) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.attempt)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { begun.Store(true) },
	})
	id := fmt.Sprintf("%s-%d", c.name, c.requests.Add(1))
	members["id"], _ = json.Marshal(id)
	body, _ := json.Marshal(members)
	address := gateway.JoinPath("v1", op).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Request-Id", id)
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, bodyMax+1))
	if err != nil {
		return nil, err
	}
	if len(text) > bodyMax {
		return nil, errors.New("the reply is too long")
	}
	if response.ContentLength < 0 && response.TransferEncoding == nil {
		return nil, errors.New("the reply has no length: it may be half of one")
	}
	got := replyOf(text)
	got.httpStatus, got.retryAfter = response.StatusCode, response.Header.Get("Retry-After")

	// The gateway may refuse what it has not parsed without its id; any other answer without it, or
	// with another one, is that of another request.
	if got.ID != id {
		// The connection of the reply is idle by now, and gets no further request, but for one of a
		// call that has taken it in this moment, and compares the id, too.
		c.http.CloseIdleConnections()
		needsID := got.Code < busy || got.Code == unknown || got.Code == keyReused
		if got.Code != noCode && (got.ID != nil || needsID) {
			return nil, errors.New("the reply is that of another request")
		}
	}
	return got, nil
}

func replyOf(text []byte) *reply {
	got := &reply{text: text, Code: noCode}
	err := json.Unmarshal(text, got)
	isKnown := got.Code >= 0 && got.Code < busy || statusOf[got.Code] == got.Status
	if err != nil || got.Status == "" || !isKnown {
		got.Code = noCode
	}
	return got
}

// How long the gateway wants to be left alone, in seconds.
func (r *reply) told() float64 {
	if r.RetryAfterMS > 0 {
		return r.RetryAfterMS / 1000
	}
	seconds, _ := strconv.ParseUint(r.retryAfter, 10, 32) // 0: a date, or nothing
	return float64(seconds)
}
