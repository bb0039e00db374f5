-- Webhooks: endpoints of others to which events are sent; see docs/guides/webhooks.md.

-- No foreign key to coupon: coupons are never deleted.
CREATE TABLE webhook (
	id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	url           text NOT NULL CHECK (octet_length(url) BETWEEN 1 AND 2048),
	coupon_id     bigint,                   -- NULL: every coupon
	types         text[] NOT NULL,          -- none: every type
	batch_max     int NOT NULL CHECK (batch_max BETWEEN 1 AND 1000), -- events in a delivery
	queue_max     int NOT NULL CHECK (queue_max BETWEEN 1 AND 1000000), -- deliveries
	state         text NOT NULL DEFAULT 'enabled' CHECK (state IN ('enabled', 'disabled')),
	state_why     text,
	state_by      text NOT NULL,
	state_at      timestamptz NOT NULL DEFAULT now(),
	created_by    text NOT NULL,
	created_at    timestamptz NOT NULL DEFAULT now(),
	-- what sending notes
	turn_at       timestamptz NOT NULL DEFAULT '-infinity', -- its last lease or outcome
	turn_coupon   bigint NOT NULL DEFAULT 0,                -- the last coupon in it
	failures_num  int NOT NULL DEFAULT 0,                   -- attempts that failed, in a row
	failing_since timestamptz,                              -- the first of them
	pause_until   timestamptz NOT NULL DEFAULT '-infinity', -- nothing is sent before
	delivered_num bigint NOT NULL DEFAULT 0,                -- events
	delivered_at  timestamptz,
	dropped_num   bigint NOT NULL DEFAULT 0,                -- events: the queue was full
	dropped_at    timestamptz
) WITH (fillfactor = 50);

CREATE TRIGGER webhook_change_count
	AFTER INSERT OR DELETE OR UPDATE OF state ON webhook
	FOR EACH STATEMENT EXECUTE FUNCTION coupon_change_count();

-- In plain: every worker signs with them, also with one that was made a moment ago.
CREATE TABLE webhook_secret (
	webhook_id bigint NOT NULL REFERENCES webhook ON DELETE CASCADE,
	id         bigint GENERATED ALWAYS AS IDENTITY,
	secret     text NOT NULL CHECK (secret ~ '^whsec_[A-Za-z0-9+/]{32,}=*$'),
	created_by text NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	expires_at timestamptz, -- NULL: it has no successor
	PRIMARY KEY (webhook_id, id)
);

-- What is to be sent: one request each. A delivery that has arrived has no row any more.
CREATE TABLE webhook_delivery (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- also their order
	webhook_id  bigint NOT NULL REFERENCES webhook ON DELETE CASCADE,
	coupon_id   bigint NOT NULL,
	message     uuid NOT NULL DEFAULT gen_random_uuid(), -- as webhook-id, in every attempt
	type        text NOT NULL,
	events_num  int NOT NULL,
	body        text NOT NULL,
	created_at  timestamptz NOT NULL DEFAULT now(),
	state       text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'failed')),
	next_at     timestamptz NOT NULL DEFAULT '-infinity', -- of a lease: its end
	is_leased   boolean NOT NULL DEFAULT false,     -- being sent, until next_at
	lease       int NOT NULL DEFAULT 0,             -- how often it was taken
	attempts    int NOT NULL DEFAULT 0,
	last_at     timestamptz,
	last_status int,  -- of the last answer; 0: none
	last_why    text  -- why the last attempt failed
) WITH (fillfactor = 80, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.1);

CREATE INDEX webhook_delivery_webhook ON webhook_delivery (webhook_id, id);
CREATE INDEX webhook_delivery_coupon ON webhook_delivery (webhook_id, coupon_id, id)
	WHERE state = 'waiting';
CREATE INDEX webhook_delivery_next ON webhook_delivery (webhook_id, next_at)
	WHERE state = 'waiting';
CREATE INDEX webhook_delivery_leased ON webhook_delivery (webhook_id, coupon_id) WHERE is_leased;
CREATE INDEX webhook_delivery_failed ON webhook_delivery (webhook_id, id) WHERE state = 'failed';
