package couponmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A gateway that takes connections, and answers nothing. Each request is told.
func silent(t *testing.T) (url string, requests chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	requests = make(chan struct{}, 16)
	go func() {
		for {
			one, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer one.Close()
				into := make([]byte, 4096)
				for {
					if _, err := one.Read(into); err != nil {
						return
					}
					requests <- struct{}{}
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String(), requests
}

func TestAStoppedCallTellsWhy(t *testing.T) {
	url, requests := silent(t)
	client, err := New([]string{url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var unknown *UnknownError
	var unavailable *UnavailableError
	request := IssueRequest{Coupon: "1", User: "2", Key: "mine"}

	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-requests; cancel() }()
	_, err = client.Issue(ctx, request)
	if !errors.As(err, &unknown) || unknown.Key != "mine" || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled after its request was sent: %#v", err)
	}
	_, err = client.Issue(ctx, request)
	if !errors.As(err, &unavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %#v", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = client.Status(ctx, StatusRequest{Receive: "1.2.3.4"})
	if !errors.As(err, &unavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("what changes nothing, after its deadline: %#v", err)
	}
	for len(requests) > 0 {
		<-requests
	}
	go func() { <-requests; client.Close() }()
	_, err = client.Issue(context.Background(), request)
	if !errors.As(err, &unknown) || !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %#v", err)
	}
	_, err = client.Ping(context.Background())
	if !errors.As(err, &unavailable) || !errors.Is(err, ErrClosed) {
		t.Errorf("after it was closed: %#v", err)
	}
}

// A client of a gateway that answers with what this function writes.
func answered(t *testing.T, by func(w http.ResponseWriter, id string)) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct{ ID string }
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		by(w, request.ID)
	}))
	t.Cleanup(server.Close)
	client, err := New([]string{server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func accepted(id string) string {
	return fmt.Sprintf(`{"id":%q,"code":0,"status":"accepted","receive":"1.2.B.0","slot":1}`, id)
}

func TestWhatIsNoReplyIsTriedAgain(t *testing.T) {
	hijacked := func(w http.ResponseWriter, text string) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			fmt.Fprint(conn, text)
			conn.Close()
		}
	}
	for name, broken := range map[string]func(w http.ResponseWriter, id string){
		"without a length": func(w http.ResponseWriter, id string) {
			hijacked(w, "HTTP/1.1 200 OK\r\n\r\n"+accepted(id))
		},
		"cut off": func(w http.ResponseWriter, id string) {
			hijacked(w, "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"+accepted(id))
		},
		"too long": func(w http.ResponseWriter, id string) {
			fmt.Fprint(w, strings.Repeat(" ", bodyMax), accepted(id))
		},
		"of another request": func(w http.ResponseWriter, id string) {
			fmt.Fprint(w, accepted(id+"0"))
		},
		"not readable": func(w http.ResponseWriter, id string) {
			fmt.Fprint(w, strings.Replace(accepted(id), "1}", `"1"}`, 1))
		},
	} {
		requests := 0
		client := answered(t, func(w http.ResponseWriter, id string) {
			if requests++; requests == 1 {
				broken(w, id)
			} else {
				fmt.Fprint(w, accepted(id))
			}
		})
		answer, err := client.Issue(context.Background(), IssueRequest{Coupon: "1", User: "2"})
		if err != nil || answer.Receive != "1.2.B.0" || requests != 2 {
			t.Errorf("%s: %+v, %v, %d requests", name, answer, err, requests)
		}
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	requests := 0
	client := answered(t, func(w http.ResponseWriter, id string) {
		requests++
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	var unknown *UnknownError
	_, err := client.Issue(context.Background(), IssueRequest{Coupon: "1", User: "2"})
	if !errors.As(err, &unknown) || requests != 1 {
		t.Errorf("%#v, %d requests", err, requests)
	}
}

func TestAllConnectionsAreKept(t *testing.T) {
	const callers = 50
	var together, done sync.WaitGroup
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			together.Done()
			together.Wait()
			fmt.Fprintf(w, `{"id":%q,"code":0,"status":"ok"}`, r.Header.Get("X-Request-Id"))
		}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client, err := New([]string{server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for round := 0; round < 3; round++ {
		together.Add(callers)
		done.Add(callers)
		for n := 0; n < callers; n++ {
			go func() {
				defer done.Done()
				if _, err := client.Ping(context.Background()); err != nil {
					t.Error(err)
				}
			}()
		}
		done.Wait()
	}
	if connections.Load() != callers {
		t.Errorf("%d connections for %d callers", connections.Load(), callers)
	}
}

func TestAClientIsNotMadeOfWrongArguments(t *testing.T) {
	for _, one := range []struct {
		gateways []string
		token    string
	}{{nil, ""}, {[]string{"127.0.0.1:7480"}, ""}, {[]string{"http://127.0.0.1:7480"}, "a\n"}} {
		var wrong *InvalidError
		if _, err := New(one.gateways, &Options{Token: one.token}); !errors.As(err, &wrong) {
			t.Errorf("%q: %#v", one, err)
		}
	}
}

func TestWhatStandsIsWhatTheOrderHasNow(t *testing.T) {
	of := func(status string, replayed bool, now *Now) bool {
		one := OrderAnswer{Answer: Answer{Status: status, Replayed: replayed}}
		one.Now = now
		return one.Stands()
	}
	held, used := &Now{State: "held", Order: "o"}, &Now{State: "used", Order: "o"}
	if !of("held", false, nil) || !of("used", true, used) || !of("held", true, used) {
		t.Error("it stands")
	}
	if of("used", true, held) || of("used", true, nil) || of("released", false, nil) ||
		of("held", true, &Now{State: "held"}) {
		t.Error("it does not stand")
	}
}

func TestAnAmountWithoutItsCurrencyIsSent(t *testing.T) {
	bodies := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	client, err := New([]string{server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, _ = client.Hold(context.Background(), OrderRequest{Order: "1", Receive: "r", Amount: 500})
	if body := <-bodies; !strings.Contains(body, `"amount":500`) {
		t.Errorf("the amount is lost: %s", body)
	}
	_, _ = client.Hold(context.Background(), OrderRequest{Order: "1", Receive: "r"})
	if body := <-bodies; strings.Contains(body, "amount") {
		t.Errorf("an amount that was not given: %s", body)
	}
}
