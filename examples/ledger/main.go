// Command ledger keeps the books of what coupons have taken off orders: ledger FILE.
//
// It consumes the events of couponmq from RabbitMQ (AMQP_URL) and appends a line to FILE for each
// discount that was given or taken back. An event that arrives again has its line already. A
// message is acknowledged once its lines are on the disk: when the program is killed in between,
// the message comes again.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"couponmq"

	amqp "github.com/rabbitmq/amqp091-go"
)

const queue = "ledger"

// entry is a line of the file.
type entry struct {
	Source   string    `json:"source"`
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	Order    string    `json:"order"`
	Receive  string    `json:"receive"`
	Minor    int64     `json:"minor"` // in the smallest unit of the currency; negative: taken back
	Currency string    `json:"currency"`
}

type ledger struct {
	file    *os.File
	seen    map[string]bool
	given   map[string]entry // what an order has now, by receive
	written []byte           // not yet on the disk
}

func open(path string) (*ledger, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	books := &ledger{file: file, seen: map[string]bool{}, given: map[string]entry{}}
	whole := bytes.LastIndexByte(text, '\n') + 1 // a line that was cut off is not acknowledged
	for _, line := range bytes.Split(text[:whole], []byte("\n")) {
		var one entry
		if len(line) == 0 {
			continue
		}
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		books.take(one)
	}
	return books, file.Truncate(int64(whole))
}

func (b *ledger) take(one entry) {
	b.seen[one.Source+" "+one.ID] = true
	if one.Minor < 0 {
		delete(b.given, one.Receive)
	} else {
		b.given[one.Receive] = one
	}
}

// add writes what the event says of a discount, unless it is known.
func (b *ledger) add(event couponmq.Event) error {
	one := entry{Source: event.Source, ID: event.ID, Time: event.Time}
	one.Order, one.Receive = event.Data.Order, event.Data.Receive
	if b.seen[one.Source+" "+one.ID] {
		return nil
	}
	switch event.Type {
	case "coupon.used":
		one.Minor, one.Currency = event.Data.AmountOff, event.Data.Currency
	case "coupon.rolled_back": // as much as was given
		given := b.given[one.Receive]
		one.Minor, one.Currency = -given.Minor, given.Currency
	}
	if one.Minor == 0 {
		return nil
	}
	line, err := json.Marshal(one)
	b.written = append(append(b.written, line...), '\n')
	b.take(one)
	return err
}

// sync brings all that add has written to the disk.
func (b *ledger) sync() error {
	if _, err := b.file.Write(b.written); err != nil {
		return err
	}
	b.written = b.written[:0]
	return b.file.Sync()
}

// consume returns when the connection is lost.
func consume(url string, books *ledger) error {
	connection, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	// Declared each time: RabbitMQ does not sync what was declared shortly before a power failure.
	quorum := amqp.Table{"x-queue-type": "quorum"}
	if _, err = channel.QueueDeclare(queue, true, false, false, false, quorum); err != nil {
		return err
	}
	for _, kind := range []string{"event.*.coupon.used", "event.*.coupon.rolled_back"} {
		if err = channel.QueueBind(queue, kind, "coupon.event", false, nil); err != nil {
			return err
		}
	}
	if err = channel.Qos(32, 0, false); err != nil {
		return err
	}
	messages, err := channel.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	fmt.Println("consuming")
	for message := range messages {
		events, err := couponmq.ReadEvents(message.Body)
		if err != nil {
			log.Printf("a message that has no events is left out: %v", err)
		}
		for _, event := range events {
			if err := books.add(event); err != nil {
				log.Fatal(err)
			}
		}
		if err := books.sync(); err != nil {
			log.Fatal(err) // nothing more is acknowledged
		}
		if err := message.Ack(false); err != nil {
			return err
		}
	}
	return amqp.ErrClosed
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: AMQP_URL=… ledger FILE")
	}
	books, err := open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for {
		log.Print(consume(os.Getenv("AMQP_URL"), books))
		time.Sleep(time.Second)
	}
}
