package couponmq_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"couponmq"
)

func Example() {
	gateways := []string{"http://127.0.0.1:7480"}
	client, err := couponmq.New(gateways, nil) // or &couponmq.Options{Token: "cmq_…"}
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	// The button. Issued waits until PostgreSQL has the coupon: an order can hold it from then on.
	answer, err := client.Issue(ctx, couponmq.IssueRequest{
		Coupon: "1001", User: "42", Ack: couponmq.Issued, Key: "press-5f0c",
	})
	if err == nil && !answer.OK() {
		fmt.Println("no coupon:", answer.Status) // out_of_stock, limit_reached, ended, …
	}

	// The order, of 20.00 EUR: hold while it is being paid, use, or give back.
	amount, err := couponmq.ParseAmount("20.00", "EUR") // 2000
	if err != nil {
		log.Fatal(err)
	}
	attempt := "order-77/1" // stored with the order, before the calls
	held, err := client.Hold(ctx, couponmq.OrderRequest{
		Order: "order-77", Coupon: "1001", User: "42", Amount: amount, Currency: "EUR",
		Key: attempt + "/hold",
	})
	if err == nil && held.OK() {
		var used *couponmq.OrderAnswer
		used, err = client.Use(ctx, couponmq.OrderRequest{
			Order: "order-77", Receive: held.Receive, Amount: amount, Currency: "EUR",
			Key: attempt + "/use",
		})
		if err == nil && used.Stands() {
			left := couponmq.FormatAmount(amount-used.AmountOff, "EUR")
			fmt.Println("to pay:", left, "EUR")
		}
	}

	var unavailable *couponmq.UnavailableError
	var unknown *couponmq.UnknownError
	switch {
	case errors.As(err, &unavailable):
		fmt.Println("later, with the same keys:", unavailable)
	case errors.As(err, &unknown):
		fmt.Println("it may be done: repeat the call with", unknown.Key)
	case err != nil:
		log.Fatal(err) // the request is wrong, and stays so
	}

	// The order is cancelled: Release before it has used the receive, Rollback after that.
	back, err := client.Rollback(ctx, couponmq.OrderRequest{
		Order: "order-77", Coupon: "1001", User: "42", Reason: "sent back",
		Key: attempt + "/rollback",
	})
	if err == nil {
		fmt.Println(back.Status)
	}
}

func ExampleWebhook() {
	webhook, err := couponmq.NewWebhook("whsec_5WbX5kEWLlfzsGNjH64I8lOOqUB6e8FH3BjEO5Vs0zE=")
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/hooks/coupons", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			return
		}
		events, err := webhook.Read(r.Header, body) // the body as it arrived
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		for _, event := range events { // remember its Source and ID: copies arrive
			fmt.Println(event.Type, event.Data.User)
		}
	})
}

func ExampleTokenSigner() {
	private, err := os.ReadFile("issuer.pem")
	if err != nil {
		log.Fatal(err)
	}
	signer, err := couponmq.NewTokenSigner(private, "2026-11", "https://shop.example")
	if err != nil {
		log.Fatal(err)
	}
	token, err := signer.Token(couponmq.TokenRequest{
		User: "42", Coupons: []string{"1001"}, Key: "press-5f0c",
	})
	fmt.Println(token, err)
}
