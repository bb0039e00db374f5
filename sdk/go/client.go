// Package couponmq is a client of couponmq's gateway, for servers. A call is done once, and what
// its answer or its error says of it is true, whatever happens to connections and gateways.
package couponmq

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	mathrand "math/rand"
	"net/http"
	"net/url"
	"regexp"
	"sync/atomic"
	"time"
)

// Options of a client. A zero member has its default.
type Options struct {
	// Token is an API key or a user token.
	Token string
	// Deadline is for a call with all its attempts, 30 s. The deadline of a call's context, if it
	// has one, takes its place.
	Deadline time.Duration
	// Attempt is for one attempt, 10 s: longer than the gateway waits (5 s).
	Attempt time.Duration
	// TLS has the authorities that are trusted, instead of those of the system, and a certificate.
	TLS *tls.Config
}

// Client is a client of one or several gateways, for any number of goroutines. Connections are
// kept.
type Client struct {
	gateways []*url.URL
	place    atomic.Int32 // the gateway that is asked
	token    string
	deadline time.Duration
	attempt  time.Duration
	http     *http.Client
	name     string // the beginning of the ids of its requests
	requests atomic.Int64
	closed   context.Context
	close    context.CancelFunc
}

var tokenForm = regexp.MustCompile(`^([!-~][ -~]*)?$`)

// New makes a client of these gateways, such as http://127.0.0.1:7480. It connects with the first
// call. Options may be nil.
func New(gateways []string, options *Options) (*Client, error) {
	if options == nil {
		options = &Options{}
	}
	if len(gateways) == 0 {
		return nil, invalid("there is no gateway")
	}
	if !tokenForm.MatchString(options.Token) {
		return nil, invalid("the token is not printable ASCII")
	}
	c := &Client{token: options.Token, deadline: options.Deadline, attempt: options.Attempt}
	if c.deadline == 0 {
		c.deadline = 30 * time.Second
	}
	if c.attempt == 0 {
		c.attempt = 10 * time.Second
	}
	for _, one := range gateways {
		found, err := url.Parse(one)
		if err != nil || found.Scheme != "http" && found.Scheme != "https" || found.Host == "" {
			return nil, invalid("%q is no URL of a gateway, such as http://127.0.0.1:7480", one)
		}
		c.gateways = append(c.gateways, found)
	}
	c.place.Store(int32(chance() * float64(len(c.gateways))))
	c.name = NewKey()[:12]
	c.closed, c.close = context.WithCancel(context.Background())
	c.http = &http.Client{
		Transport: &http.Transport{ // without Proxy, and without HTTP/2
			TLSClientConfig:        options.TLS.Clone(),
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			DisableCompression:     true,
			IdleConnTimeout:        20 * time.Second, // later it may be dead, and nobody told
			MaxIdleConnsPerHost:    math.MaxInt,      // as many as there were calls at once
			MaxResponseHeaderBytes: 1 << 16,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	return c, nil
}

// Close ends all connections. Calls that wait for a reply end with UnknownError, if they change
// something.
func (c *Client) Close() {
	c.close()
	c.http.CloseIdleConnections()
}

// NewKey makes an idempotency key for one attempt of a customer.
func NewKey() string {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		panic(fmt.Sprintf("couponmq: there are no random numbers: %v", err)) // keys would be equal
	}
	return hex.EncodeToString(random[:])
}

func keyOf(given string) string {
	if given == "" {
		return NewKey()
	}
	return given
}

// From 0 to 1. Without a seed all processes would have the same.
func chance() float64 {
	return mathrand.New(mathrand.NewSource(time.Now().UnixNano())).Float64()
}

// Issue asks for a coupon.
func (c *Client) Issue(ctx context.Context, r IssueRequest) (*IssueAnswer, error) {
	return run[IssueAnswer](ctx, c, "issue", r, keyOf(r.Key))
}

// Claim asks for the coupon of an exchange code.
func (c *Client) Claim(ctx context.Context, r ClaimRequest) (*IssueAnswer, error) {
	return run[IssueAnswer](ctx, c, "claim", r, keyOf(r.Key))
}

// Hold keeps receives for an order while it is being paid.
func (c *Client) Hold(ctx context.Context, r OrderRequest) (*OrderAnswer, error) {
	return run[OrderAnswer](ctx, c, "hold", r, keyOf(r.Key))
}

// Use uses what the order holds, or what is free.
func (c *Client) Use(ctx context.Context, r OrderRequest) (*OrderAnswer, error) {
	return run[OrderAnswer](ctx, c, "use", r, keyOf(r.Key))
}

// Release gives up a hold: the order is cancelled before it has used the receives.
func (c *Client) Release(ctx context.Context, r OrderRequest) (*OrderAnswer, error) {
	return run[OrderAnswer](ctx, c, "release", r, keyOf(r.Key))
}

// Rollback takes a use back: the order is cancelled after it has used the receives. With Amount and
// Currency it takes only this part of the discount back, and the receive stays used.
func (c *Client) Rollback(ctx context.Context, r OrderRequest) (*OrderAnswer, error) {
	return run[OrderAnswer](ctx, c, "rollback", r, keyOf(r.Key))
}

// Status tells what became of a receive, or of all receives of a user.
func (c *Client) Status(ctx context.Context, r StatusRequest) (*StatusAnswer, error) {
	return run[StatusAnswer](ctx, c, "status", r, "")
}

// Coupon tells the terms of a coupon, and what is left.
func (c *Client) Coupon(ctx context.Context, r CouponRequest) (*CouponAnswer, error) {
	return run[CouponAnswer](ctx, c, "coupon", r, "")
}

// Code tells what an exchange code would give to a user, who does not claim it.
func (c *Client) Code(ctx context.Context, r CodeRequest) (*CodeAnswer, error) {
	return run[CodeAnswer](ctx, c, "code", r, "")
}

// Coupons tells the coupons of a user, of all pages, newest first.
func (c *Client) Coupons(ctx context.Context, r CouponsRequest) ([]UserCoupon, error) {
	var all []UserCoupon
	for {
		page, err := c.CouponsPage(ctx, r)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Coupons...)
		if r.Cursor = page.Cursor; r.Cursor == "" {
			return all, nil
		}
	}
}

// CouponsPage tells one page of the coupons of a user.
func (c *Client) CouponsPage(ctx context.Context, r CouponsRequest) (*CouponsAnswer, error) {
	return run[CouponsAnswer](ctx, c, "coupons", r, "")
}

// Offers tells the campaigns that are open or begin soon, of all pages.
func (c *Client) Offers(ctx context.Context, r OffersRequest) ([]Offer, error) {
	var all []Offer
	for {
		page, err := c.OffersPage(ctx, r)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Offers...)
		if r.Cursor = page.Cursor; r.Cursor == "" {
			return all, nil
		}
	}
}

// OffersPage tells one page of the campaigns that are open or begin soon.
func (c *Client) OffersPage(ctx context.Context, r OffersRequest) (*OffersAnswer, error) {
	return run[OffersAnswer](ctx, c, "offers", r, "")
}

// Quote tells what a coupon, or the receives of a user, take off an amount. It holds nothing.
func (c *Client) Quote(ctx context.Context, r QuoteRequest) (*QuoteAnswer, error) {
	return run[QuoteAnswer](ctx, c, "quote", r, "")
}

// Ping tells whether a gateway answers.
func (c *Client) Ping(ctx context.Context) (*Answer, error) {
	return run[Answer](ctx, c, "ping", struct{}{}, "")
}

// A call with all its attempts: what a reply means, how long to wait, when to give up. One that
// changes something has a key.
func run[A any](ctx context.Context, c *Client, op string, request any, key string) (*A, error) {
	deadline, has := ctx.Deadline()
	if !has {
		deadline = time.Now().Add(c.deadline)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	go func() {
		select {
		case <-c.closed.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	stopped := func() error {
		if c.closed.Err() != nil {
			return ErrClosed
		}
		return ctx.Err()
	}

	var members map[string]json.RawMessage
	text, _ := json.Marshal(request) // texts, numbers, true: neither can fail
	_ = json.Unmarshal(text, &members)
	if key != "" {
		members["key"], _ = json.Marshal(key)
	}
	if members["currency"] == nil && string(members["amount"]) == "0" { // neither was given
		delete(members, "amount")
	}
	// `receive` is one that is accepted, without the level of ack.
	mayBeDone, receive, why := false, "", "it was not tried"
	end := func(cause error) error {
		if cause != nil {
			why = fmt.Sprintf("%s; %v", why, cause)
		}
		if key != "" && mayBeDone {
			return &UnknownError{op + " is unknown: " + why, key, receive, cause}
		}
		return &UnavailableError{op + " was not done by this call: " + why, cause}
	}

	for failures := 0; ; failures++ {
		if cause := stopped(); cause != nil {
			return nil, end(cause)
		}
		place := c.place.Load()
		var begun atomic.Bool
		got, err := c.exchange(ctx, c.gateways[place], op, members, &begun)
		if err == nil && got.Code >= 0 && got.Code < busy {
			answer := new(A)
			if err = json.Unmarshal(got.text, answer); err == nil {
				any(answer).(interface{ setKey(string) }).setKey(key)
				return answer, nil
			} // what cannot be read is no answer, but the gateway has done what it says
		}

		told := 0.0
		if err != nil {
			// Of an attempt that the deadline shortened, what ended the one before says more.
			if failures == 0 || ctx.Err() == nil {
				why = "no reply: " + err.Error()
			}
			mayBeDone = mayBeDone || begun.Load()
		} else {
			if why = got.Message; why == "" {
				why = fmt.Sprintf("HTTP %d", got.httpStatus)
			}
			told = got.told()
			// A proxy's, or that of a gateway to which the request did not arrive in time.
			isTrouble := got.httpStatus == http.StatusRequestTimeout ||
				got.httpStatus == http.StatusTooManyRequests || got.httpStatus >= 500
			switch {
			case got.Code == busy, got.Code == unavailable, got.Code == rateLimited:
				// Nothing was done.
			case got.Code == unknown:
				mayBeDone = true
				if got.Receive != "" {
					receive = got.Receive
				}
			case isTrouble:
				mayBeDone = true
			default:
				kind := HTTP
				if got.Code != noCode && (got.Code != badRequest || got.httpStatus == 400) {
					kind = Kind(statusOf[got.Code])
				}
				// An earlier attempt may have been executed, unless this repeats the answer to that
				// attempt, or the key was never this call's.
				isKnown := got.Replayed || kind == KeyReused
				mayBeDone = (mayBeDone || got.httpStatus < 400) && !isKnown
				if key != "" && mayBeDone {
					return nil, end(nil)
				}
				return nil, &RequestError{kind, got.httpStatus, why}
			}
		}

		if got == nil || got.Code != rateLimited {
			c.place.CompareAndSwap(place, (place+1)%int32(len(c.gateways)))
		}
		// At least what was told, and never beyond the deadline.
		backoff := math.Min(0.05*math.Pow(2, float64(failures)), 2)
		chance := chance()
		pauseS := math.Max(backoff*(1+chance)/2, told*(1+chance/4))
		if ctx.Err() == nil && pauseS >= time.Until(deadline).Seconds() {
			return nil, end(context.DeadlineExceeded)
		}
		select {
		case <-time.After(time.Duration(pauseS * float64(time.Second))):
		case <-ctx.Done():
		}
	}
}
