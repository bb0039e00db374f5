-- What campaigns may give in all.

-- A row is as hot as its campaigns together: a transaction changes it once. Amounts are in the
-- smallest unit of the currency (cents).
CREATE TABLE budget (
	name       text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9._-]{1,64}$'),
	currency   text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'), -- ISO 4217
	amount     bigint NOT NULL CHECK (amount BETWEEN 0 AND 9007199254740991),
	held       bigint NOT NULL DEFAULT 0, -- reserved by holds
	spent      bigint NOT NULL DEFAULT 0, -- taken by uses
	created_by text NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT budget_never_overspent CHECK (held >= 0 AND spent >= 0
		AND held + spent <= amount)
) WITH (fillfactor = 25);
