package couponmq

import (
	"encoding/json"
	"time"
)

// Ack is what the answer to Issue or Claim waits for.
type Ack string

// The levels of Ack. Without one the answer waits for Accepted. With Issued PostgreSQL has the
// coupon: an order can hold it from then on.
const (
	Accepted Ack = "accepted"
	Queued   Ack = "queued"
	Issued   Ack = "issued"
)

// IssueRequest asks for a coupon. Key is the idempotency key of the customer's attempt, stored
// before the call, so that the call can be repeated after a crash; without it the call makes one.
// Trace is a traceparent.
type IssueRequest struct {
	Coupon string `json:"coupon,omitempty"`
	User   string `json:"user,omitempty"`
	Ack    Ack    `json:"ack,omitempty"`
	Key    string `json:"key,omitempty"`
	Trace  string `json:"trace,omitempty"`
}

// ClaimRequest asks for the coupon of an exchange code, as the user typed it.
type ClaimRequest struct {
	Code  string `json:"code,omitempty"`
	User  string `json:"user,omitempty"`
	Ack   Ack    `json:"ack,omitempty"`
	Key   string `json:"key,omitempty"`
	Trace string `json:"trace,omitempty"`
}

// CodeRequest asks what an exchange code would give to a user, who does not claim it.
type CodeRequest struct {
	Code string `json:"code,omitempty"`
	User string `json:"user,omitempty"`
}

// OrderRequest is what an order does with its receives: Receive, several, or any receive of the
// User of a Coupon. Key and Trace are as in IssueRequest.
type OrderRequest struct {
	Order    string   `json:"order,omitempty"`
	Receive  string   `json:"receive,omitempty"`
	Receives []string `json:"receives,omitempty"`
	Coupon   string   `json:"coupon,omitempty"`
	User     string   `json:"user,omitempty"`
	// Amount, for Hold and Use, is that of the order, before the discount; for Rollback the part of
	// the discount of one receive to give back. Without Currency it is not known, or all of it.
	Amount   int64  `json:"amount"`
	Currency string `json:"currency,omitempty"`
	// TTLSeconds, for Hold, is 15 minutes, if it is zero.
	TTLSeconds int `json:"ttl_s,omitempty"`
	// Reason, for Rollback, and By, the name of the caller, are for the history.
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	Key    string `json:"key,omitempty"`
	Trace  string `json:"trace,omitempty"`
}

// StatusRequest names a receive, or a coupon and a user, whose receives are all told.
type StatusRequest struct {
	Receive string `json:"receive,omitempty"`
	Coupon  string `json:"coupon,omitempty"`
	User    string `json:"user,omitempty"`
}

// CouponRequest names a coupon.
type CouponRequest struct {
	Coupon string `json:"coupon,omitempty"`
}

// CouponsRequest names a user. Usable: only those that an order could use. Cursor is that of the
// page before, and Limit the length of a page.
type CouponsRequest struct {
	User   string `json:"user,omitempty"`
	Usable bool   `json:"usable,omitempty"`
	Cursor string `json:"cursor,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

// OffersRequest names the User, if any, of whom each offer says what the user may have. Within is
// how soon campaigns begin at the latest, as 3d; 7d if it is empty. Tag: only those that have it.
// Cursor is that of the page before, and Limit the length of a page.
type OffersRequest struct {
	User   string `json:"user,omitempty"`
	Within string `json:"within,omitempty"`
	Tag    string `json:"tag,omitempty"`
	Cursor string `json:"cursor,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

// QuoteRequest asks what the terms of a coupon take off an amount; or, with User instead of Coupon,
// what the receives of the user do that an order could use, at most Limit of them.
type QuoteRequest struct {
	Coupon   string `json:"coupon,omitempty"`
	User     string `json:"user,omitempty"`
	Limit    int    `json:"limit,omitempty"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency,omitempty"`
}

// Answer is done (OK), or refused, with a Status that says why, and a Message for people. Key is
// that of the call. Replayed: the key was known, by an earlier call, or an attempt of this one.
// What is absent in an answer is zero: an empty text, a time that IsZero. Amounts are in the
// smallest unit of the Currency beside them, as in requests.
type Answer struct {
	Code     int    `json:"code"`
	Status   string `json:"status"`
	Message  string `json:"message"`
	Key      string `json:"key"`
	Replayed bool   `json:"replayed"`
}

// OK tells whether it is done.
func (a *Answer) OK() bool { return a.Code == 0 }

func (a *Answer) setKey(key string) { a.Key = key }

// IssueAnswer has the status accepted, queued, issued; rejected, with a reason; out_of_stock,
// limit_reached, not_started, ended, paused, not_found, code_invalid, code_used,
// code_expired.
type IssueAnswer struct {
	Answer
	Receive string `json:"receive"`
	Coupon  string `json:"coupon"`
	Slot    int    `json:"slot"`
	Reason  string `json:"reason"`
}

// OrderAnswer has the status held, used, released, rolled_back; or held_by_other, already_used,
// expired, not_valid_yet, voided, budget_spent, below_threshold, amount_exceeded, not_found.
// Receives are those that the request has named so.
type OrderAnswer struct {
	Answer
	OrderReceive
	Receives []OrderReceive `json:"receives"`
}

// OrderReceive is one receive of an order.
type OrderReceive struct {
	Receive   string    `json:"receive"`
	Until     time.Time `json:"until"`
	AmountOff int64     `json:"amount_off"`
	Currency  string    `json:"currency"`
	Now       *Now      `json:"now"` // of an answer that is Replayed
}

// Stands tells whether the order has now what Hold or Use has answered. An answer that is Replayed
// describes the past: what it did may have been given back since.
func (a *OrderAnswer) Stands() bool {
	all := a.Receives
	if len(all) == 0 {
		all = []OrderReceive{a.OrderReceive}
	}
	for _, one := range all {
		is := one.Now != nil && one.Now.Order != "" &&
			(one.Now.State == "used" || one.Now.State == a.Status)
		if a.Replayed && !is {
			return false
		}
	}
	return a.Status == "held" || a.Status == "used"
}

// Now is what became of a receive: State is free, held, used, voided or not_found. Order is there
// if the order of the request has it.
type Now struct {
	State string    `json:"state"`
	Order string    `json:"order"`
	Until time.Time `json:"until"`
}

// Use is which order has a receive: held until a time, or used.
type Use Now

// StatusAnswer is accepted, issued, rejected or not_found, of one receive; ok with Receives, of a
// user. Final, of not_found: no receive can still appear.
type StatusAnswer struct {
	Answer
	UserReceive
	Receives []UserReceive `json:"receives"`
	Final    bool          `json:"final"`
}

// UserReceive is one receive of a user. State, in Receives, is accepted, issued or rejected. If
// ValidTo is zero the validity has no end.
type UserReceive struct {
	Receive   string    `json:"receive"`
	Slot      int       `json:"slot"`
	State     string    `json:"state"`
	Reason    string    `json:"reason"`
	ValidFrom time.Time `json:"valid_from"`
	ValidTo   time.Time `json:"valid_to"`
	Use       *Use      `json:"use"`
}

// Discount is what the terms of a coupon take off. PercentOff is exact, as 12.50.
type Discount struct {
	AmountOff  int64       `json:"amount_off"`
	PercentOff json.Number `json:"percent_off"`
	Cap        int64       `json:"cap"`
	Threshold  int64       `json:"threshold"`
	Currency   string      `json:"currency"`
}

// CouponAnswer is ok with the terms, or not_found. Partial: Discount and Metadata could not be
// read.
type CouponAnswer struct {
	Answer
	Coupon   string          `json:"coupon"`
	State    string          `json:"state"`
	Total    int64           `json:"total"`
	Stock    int64           `json:"stock"`
	Limit    int             `json:"limit"`
	Begin    time.Time       `json:"begin"`
	End      time.Time       `json:"end"`
	Discount *Discount       `json:"discount"`
	Metadata json.RawMessage `json:"metadata"`
	Partial  bool            `json:"partial"`
}

// CodeAnswer is ok with what the code would give, or code_invalid. CodeEnd is zero unless the code
// ends by itself. Why is what Claim would answer, if the code is not Claimable. Receive and Slot: the
// user has claimed it.
type CodeAnswer struct {
	CouponAnswer
	CodeEnd   time.Time `json:"code_end"`
	Taken     int       `json:"taken"`
	Left      int       `json:"left"`
	Claimable bool      `json:"claimable"`
	Why       string    `json:"why"`
	Receive   string    `json:"receive"`
	Slot      int       `json:"slot"`
}

// CouponsAnswer is a page of the coupons of a user. The last one has no cursor.
type CouponsAnswer struct {
	Answer
	Coupons []UserCoupon `json:"coupons"`
	Cursor  string       `json:"cursor"`
}

// OffersAnswer is a page of the campaigns that are open or begin soon. The last one has no cursor.
type OffersAnswer struct {
	Answer
	Offers []Offer `json:"offers"`
	Cursor string  `json:"cursor"`
}

// Offer is a campaign on offer. State is open, not_started or unavailable: then Total, Stock and
// Limit are not known. Taken, Left, Claimable and Why, if it is not, are those of a user.
type Offer struct {
	Coupon    string          `json:"coupon"`
	Name      string          `json:"name"`
	Tags      []string        `json:"tags"`
	State     string          `json:"state"`
	Total     int64           `json:"total"`
	Stock     int64           `json:"stock"`
	Limit     int             `json:"limit"`
	Begin     time.Time       `json:"begin"`
	End       time.Time       `json:"end"`
	Discount  *Discount       `json:"discount"`
	Metadata  json.RawMessage `json:"metadata"`
	Taken     int             `json:"taken"`
	Left      int             `json:"left"`
	Claimable bool            `json:"claimable"`
	Why       string          `json:"why"`
}

// UserCoupon is an issued coupon of a user. If ValidTo is zero the validity has no end.
type UserCoupon struct {
	Coupon     string          `json:"coupon"`
	Name       string          `json:"name"`
	Receive    string          `json:"receive"`
	Slot       int             `json:"slot"`
	ReceivedAt time.Time       `json:"received_at"`
	ValidFrom  time.Time       `json:"valid_from"`
	ValidTo    time.Time       `json:"valid_to"`
	Discount   *Discount       `json:"discount"`
	Metadata   json.RawMessage `json:"metadata"`
	Use        *Use            `json:"use"`
	Voided     bool            `json:"voided"`
}

// QuoteAnswer is ok with what the terms take off the amount, or not_found. Not Usable: a use of
// this amount is refused. Of a user it has Receives, those that take most off first.
type QuoteAnswer struct {
	Answer
	Amount    int64           `json:"amount"`
	AmountOff int64           `json:"amount_off"`
	Currency  string          `json:"currency"`
	Usable    bool            `json:"usable"`
	Receives  []QuotedReceive `json:"receives"`
}

// QuotedReceive is a receive of a user that an order could use. If ValidTo is zero the validity has
// no end.
type QuotedReceive struct {
	Receive   string    `json:"receive"`
	Slot      int       `json:"slot"`
	Coupon    string    `json:"coupon"`
	Name      string    `json:"name"`
	AmountOff int64     `json:"amount_off"`
	Currency  string    `json:"currency"`
	ValidTo   time.Time `json:"valid_to"`
}

// Event is a CloudEvent, from RabbitMQ or by a webhook. Source and ID together are the same in each
// copy.
type Event struct {
	ID          string    `json:"id"`
	Source      string    `json:"source"`
	Type        string    `json:"type"`
	Subject     string    `json:"subject"`
	Time        time.Time `json:"time"`
	Data        EventData `json:"data"`
	Traceparent string    `json:"traceparent"`
	RequestID   string    `json:"requestid"`
}

// EventData has the members that docs/guides/events.md names for the type of the event; the others
// are zero. Changes has each term that changed, before and after.
type EventData struct {
	Coupon     string          `json:"coupon"`
	User       string          `json:"user"`
	Receive    string          `json:"receive"`
	Slot       int             `json:"slot"`
	Key        string          `json:"key"`
	Order      string          `json:"order"`
	ReceivedAt time.Time       `json:"received_at"`
	ValidFrom  time.Time       `json:"valid_from"`
	ValidTo    time.Time       `json:"valid_to"`
	Until      time.Time       `json:"until"`
	Amount     int64           `json:"amount"`
	AmountOff  int64           `json:"amount_off"`
	Currency   string          `json:"currency"`
	Reason     string          `json:"reason"`
	Why        string          `json:"why"`
	By         string          `json:"by"`
	Returned   bool            `json:"returned"` // stock and slot became free
	Version    int             `json:"version"`
	Action     string          `json:"action"`
	From       string          `json:"from"`
	To         string          `json:"to"`
	Changes    json.RawMessage `json:"changes"`
}
