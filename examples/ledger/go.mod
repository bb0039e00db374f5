module ledger

go 1.19

require (
	couponmq v0.0.0
	github.com/rabbitmq/amqp091-go v1.5.0
)

replace couponmq => ../../sdk/go
