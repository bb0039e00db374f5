// Go's driver of the conformance suite; sdk/conformance/README.md tells what it reads and writes.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"couponmq"
)

type order struct {
	ID         int               `json:"id"`
	Do         string            `json:"do"`
	Gateways   []string          `json:"gateways"`
	Token      string            `json:"token"`
	CA         string            `json:"ca"`
	DeadlineMS int               `json:"deadline_ms"`
	AttemptMS  int               `json:"attempt_ms"`
	Op         string            `json:"op"`
	Members    given             `json:"members"`
	Options    options           `json:"options"`
	Call       int               `json:"call"`
	Text       string            `json:"text"`
	Minor      int64             `json:"minor"`
	Currency   string            `json:"currency"`
	Secrets    []string          `json:"secrets"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`
	Private    string            `json:"private"`
	Kid        string            `json:"kid"`
	Issuer     string            `json:"issuer"`
	User       string            `json:"user"`
	Coupons    []string          `json:"coupons"`
	Key        string            `json:"key"`
}

type options struct {
	Key        string `json:"key"`
	DeadlineMS int    `json:"deadline_ms"`
}

type given struct {
	Coupon   string       `json:"coupon"`
	User     string       `json:"user"`
	Code     string       `json:"code"`
	Order    string       `json:"order"`
	Receive  string       `json:"receive"`
	Receives []string     `json:"receives"`
	Amount   int64        `json:"amount"`
	Currency string       `json:"currency"`
	TTLS     int          `json:"ttl_s"`
	Ack      couponmq.Ack `json:"ack"`
	Reason   string       `json:"reason"`
	By       string       `json:"by"`
	Trace    string       `json:"trace"`
	Usable   bool         `json:"usable"`
	Within   *int         `json:"within"`
	Tag      string       `json:"tag"`
	Cursor   string       `json:"cursor"`
}

var (
	saying sync.Mutex
	calls  sync.Map // what cancels a call, by the id of its order
)

func say(told map[string]any) {
	line, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	saying.Lock()
	defer saying.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// The value as the suite compares it: times with their offset, amounts with their currency, and
// null for what is zero.
func plain(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var read any
	if err := decoder.Decode(&read); err != nil {
		panic(err)
	}
	return walked(read)
}

func walked(value any) any {
	switch value := value.(type) {
	case []any:
		for n, one := range value {
			value[n] = walked(one)
		}
	case string:
		if at, err := time.Parse(time.RFC3339Nano, value); err == nil && !at.IsZero() {
			return at.Format("2006-01-02T15:04:05.000-07:00")
		} else if err == nil || value == "" {
			return nil
		}
	case map[string]any:
		for name, one := range value {
			switch name {
			case "metadata", "changes":
			case "amount", "amount_off", "cap", "threshold":
				value[name] = map[string]any{"minor": one, "currency": value["currency"]}
				if value["currency"] == "" {
					value[name] = nil
				}
			case "currency": // as it is, for the amounts beside it
			case "percent_off", "slot":
				if value[name] = fmt.Sprint(one); one == nil || fmt.Sprint(one) == "0" {
					value[name] = nil
				} else if name == "slot" {
					value[name] = one
				}
			default:
				value[name] = walked(one)
			}
		}
	}
	return value
}

func failed(err error) map[string]any {
	var (
		request     *couponmq.RequestError
		unavailable *couponmq.UnavailableError
		unknown     *couponmq.UnknownError
		signature   *couponmq.SignatureError
		invalid     *couponmq.InvalidError
	)
	told := map[string]any{"message": err.Error()}
	switch {
	case errors.As(err, &request):
		told["error"], told["http_status"] = request.Kind, request.HTTPStatus
	case errors.As(err, &unavailable):
		told["error"] = "unavailable"
	case errors.As(err, &unknown):
		told["error"], told["key"] = "unknown", unknown.Key
		if unknown.Receive != "" {
			told["receive"] = unknown.Receive
		}
	case errors.As(err, &signature):
		told["error"] = "bad_signature"
	case errors.As(err, &invalid):
		told["error"] = "invalid"
	default:
		told["error"] = fmt.Sprintf("%T", err)
	}
	return told
}

func call(ctx context.Context, client *couponmq.Client, o order) (map[string]any, error) {
	m, key := o.Members, o.Options.Key
	of := couponmq.OrderRequest{
		Order: m.Order, Receive: m.Receive, Receives: m.Receives, Coupon: m.Coupon, User: m.User,
		Amount: m.Amount, Currency: m.Currency, TTLSeconds: m.TTLS, Reason: m.Reason, By: m.By,
		Key: key, Trace: m.Trace}
	var answer interface{ OK() bool }
	var err error
	switch o.Op {
	case "issue":
		answer, err = client.Issue(ctx, couponmq.IssueRequest{
			Coupon: m.Coupon, User: m.User, Ack: m.Ack, Key: key, Trace: m.Trace})
	case "claim":
		answer, err = client.Claim(ctx, couponmq.ClaimRequest{
			Code: m.Code, User: m.User, Ack: m.Ack, Key: key, Trace: m.Trace})
	case "hold":
		answer, err = client.Hold(ctx, of)
	case "use":
		answer, err = client.Use(ctx, of)
	case "release":
		answer, err = client.Release(ctx, of)
	case "rollback":
		answer, err = client.Rollback(ctx, of)
	case "status":
		answer, err = client.Status(ctx, couponmq.StatusRequest{
			Receive: m.Receive, Coupon: m.Coupon, User: m.User})
	case "coupon":
		answer, err = client.Coupon(ctx, couponmq.CouponRequest{Coupon: m.Coupon})
	case "code":
		answer, err = client.Code(ctx, couponmq.CodeRequest{Code: m.Code, User: m.User})
	case "coupons":
		coupons, err := client.Coupons(ctx, couponmq.CouponsRequest{
			User: m.User, Usable: m.Usable, Cursor: m.Cursor})
		if coupons == nil {
			coupons = []couponmq.UserCoupon{}
		}
		return map[string]any{"coupons": plain(coupons)}, err
	case "offers":
		within := ""
		if m.Within != nil {
			within = fmt.Sprintf("%ds", *m.Within)
		}
		offers, err := client.Offers(ctx, couponmq.OffersRequest{
			User: m.User, Within: within, Tag: m.Tag, Cursor: m.Cursor})
		if offers == nil {
			offers = []couponmq.Offer{}
		}
		return map[string]any{"offers": plain(offers)}, err
	case "quote":
		answer, err = client.Quote(ctx, couponmq.QuoteRequest{
			Coupon: m.Coupon, User: m.User, Amount: m.Amount, Currency: m.Currency})
	case "ping":
		answer, err = client.Ping(ctx)
	default:
		return nil, fmt.Errorf("there is no operation %q", o.Op)
	}
	if err != nil {
		return nil, err
	}
	members := plain(answer).(map[string]any)
	members["ok"] = answer.OK()
	return map[string]any{"answer": members}, nil
}

func open(o order) (*couponmq.Client, error) {
	options := &couponmq.Options{
		Token:    o.Token,
		Deadline: time.Duration(o.DeadlineMS) * time.Millisecond,
		Attempt:  time.Duration(o.AttemptMS) * time.Millisecond,
	}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, err
		}
		options.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		options.TLS.RootCAs.AppendCertsFromPEM(pem)
	}
	return couponmq.New(o.Gateways, options)
}

// Does an order that is no call.
func function(o order) (map[string]any, error) {
	switch o.Do {
	case "money":
		amount, err := couponmq.ParseAmount(o.Text, o.Currency)
		return map[string]any{"minor": amount}, err
	case "money_text":
		return map[string]any{"text": couponmq.FormatAmount(o.Minor, o.Currency)}, nil
	case "token":
		signer, err := couponmq.NewTokenSigner([]byte(o.Private), o.Kid, o.Issuer)
		if err != nil {
			return nil, err
		}
		token, err := signer.Token(couponmq.TokenRequest{
			User: o.User, Coupons: o.Coupons, AllCoupons: o.Coupons == nil, Key: o.Key})
		return map[string]any{"token": token}, err
	case "webhook":
		webhook, err := couponmq.NewWebhook(o.Secrets...)
		if err != nil {
			return nil, err
		}
		header := http.Header{}
		for name, value := range o.Headers {
			header.Add(name, value)
		}
		events, err := webhook.Read(header, []byte(o.Body))
		return map[string]any{"events": plain(events)}, err
	}
	return nil, fmt.Errorf("there is no order %q", o.Do)
}

func main() {
	say(map[string]any{"driver": "go", "can": []string{"cancel", "watch"}})
	var client *couponmq.Client
	var working sync.WaitGroup
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			panic(err)
		}
		var told map[string]any
		var err error
		switch o.Do {
		case "open":
			if client != nil {
				client.Close()
			}
			client, err = open(o)
		case "close":
			client.Close()
		case "cancel":
			if cancel, has := calls.Load(o.Call); has {
				cancel.(context.CancelFunc)()
			}
		case "call":
			ctx, cancel := context.WithCancel(context.Background())
			if o.Options.DeadlineMS != 0 {
				within := time.Duration(o.Options.DeadlineMS) * time.Millisecond
				ctx, cancel = context.WithTimeout(context.Background(), within)
			}
			calls.Store(o.ID, cancel)
			working.Add(1)
			go func(client *couponmq.Client) {
				defer working.Done()
				defer cancel()
				finish(o, func() (map[string]any, error) { return call(ctx, client, o) })
				calls.Delete(o.ID)
			}(client)
			continue
		default:
			told, err = function(o)
		}
		finish(o, func() (map[string]any, error) { return told, err })
	}
	if client != nil {
		client.Close()
	}
	working.Wait()
}

func finish(o order, work func() (map[string]any, error)) {
	told, err := work()
	if err != nil {
		told = failed(err)
	} else if told == nil {
		told = map[string]any{}
	}
	told["id"] = o.ID
	say(told)
}
