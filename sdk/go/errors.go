package couponmq

import (
	"errors"
	"fmt"
)

// ErrClosed is wrapped by the errors of calls whose client was closed.
var ErrClosed = errors.New("the client is closed")

// Kind tells the kinds of RequestError apart.
type Kind string

// The kinds of RequestError.
const (
	BadRequest   Kind = "bad_request"
	Unauthorized Kind = "unauthorized"
	Forbidden    Kind = "forbidden"
	TooLarge     Kind = "too_large"
	// KeyReused: the idempotency key was used for another request; a new request needs a new key.
	KeyReused Kind = "key_reused"
	// HTTP itself refuses: another path (404), another name of the host (421), a proxy's reason.
	HTTP Kind = "http"
)

// RequestError is the caller's mistake: the request is refused however often it is sent.
type RequestError struct {
	Kind       Kind
	HTTPStatus int
	Message    string
}

// Error has the kind and the message of the gateway.
func (e *RequestError) Error() string {
	return fmt.Sprintf("%s: %s", e.Kind, e.Message)
}

// UnavailableError: nothing was done by this call. An earlier call with its key may have done it.
// A call that changes nothing returns it also where no answer came.
type UnavailableError struct {
	Message string
	// Cause is the error of the context, or ErrClosed, or nil.
	Cause error
}

// Error has the reason of the last attempt.
func (e *UnavailableError) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// UnknownError: the call may have been done, now or later. Repeat it with this key until its answer
// is known, before the order or the user does something else.
type UnknownError struct {
	Message string
	Key     string
	// Receive, if it is not empty, was accepted, and stays so: only the level of ack was not
	// reached.
	Receive string
	// Cause is the error of the context, or ErrClosed, or nil.
	Cause error
}

// Error has the reason of the last attempt.
func (e *UnknownError) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *UnknownError) Unwrap() error { return e.Cause }

// SignatureError is a request to a webhook that couponmq did not sign, or too long ago.
type SignatureError struct{ Message string }

// Error says what is wrong.
func (e *SignatureError) Error() string { return e.Message }

// InvalidError is a value that the client itself refuses. Nothing was sent.
type InvalidError struct{ Message string }

// Error names the value, and what is allowed.
func (e *InvalidError) Error() string { return e.Message }

func invalid(format string, values ...any) error {
	return &InvalidError{fmt.Sprintf(format, values...)}
}
