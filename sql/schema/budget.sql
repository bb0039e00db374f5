-- What campaigns may give in all.

-- A row is as hot as its campaigns together: a transaction changes it once. Amounts are in the
-- smallest unit of the currency (cents).
CREATE TABLE budget (
	name       text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9._-]{1,64}$'
		AND lower(name) NOT IN ('none', 'null')), -- by which a campaign has none
	currency   text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'), -- ISO 4217
	amount     bigint NOT NULL CHECK (amount BETWEEN 0 AND 9007199254740991),
	held       bigint NOT NULL DEFAULT 0, -- reserved by holds
	spent      bigint NOT NULL DEFAULT 0, -- taken by uses
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	UNIQUE (name, currency), -- for coupon
	CONSTRAINT budget_never_overspent CHECK (held >= 0 AND spent >= 0
		AND held + spent <= amount)
) WITH (fillfactor = 25);

-- What operators have changed, in the order of the ids. Rows are only added.
CREATE TABLE budget_history (
	name    text COLLATE "C" NOT NULL,
	id      bigint GENERATED ALWAYS AS IDENTITY,
	made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	made_by text NOT NULL,
	amount  bigint NOT NULL, -- after the change, as the next two
	held    bigint NOT NULL,
	spent   bigint NOT NULL,
	PRIMARY KEY (name, id)
);

-- use() sets no amount, and does not pay for these.
CREATE TRIGGER budget_changed AFTER INSERT OR UPDATE OF amount ON budget
	FOR EACH ROW EXECUTE FUNCTION budget_changed();

CREATE TRIGGER coupon_change_count AFTER INSERT OR UPDATE OF amount ON budget
	FOR EACH STATEMENT EXECUTE FUNCTION coupon_change_count();
