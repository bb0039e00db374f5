-- The life of a campaign: the changes of its status that are allowed, and the record of every
-- change of its terms.

-- The one list of the changes of status that are allowed.
CREATE TABLE campaign_transition (
	from_status text NOT NULL,
	to_status   text NOT NULL,
	action      text NOT NULL,
	PRIMARY KEY (from_status, to_status)
);
INSERT INTO campaign_transition (from_status, to_status, action) VALUES
	('draft', 'published', 'publish'),
	('published', 'paused', 'pause'),
	('paused', 'published', 'resume'),
	('published', 'closed', 'close'),
	('paused', 'closed', 'close');

-- Every change, in the order of its id. Rows are only added.
CREATE TABLE campaign_history (
	coupon_id   bigint NOT NULL,
	id          bigint GENERATED ALWAYS AS IDENTITY,
	made_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
	made_by     text NOT NULL,
	action      text NOT NULL,
	from_status text,           -- NULL: the coupon is new
	version     int NOT NULL,   -- of the terms, after the change
	terms       jsonb NOT NULL, -- all of them, after the change
	PRIMARY KEY (coupon_id, id)
);

CREATE TRIGGER event_changed_add AFTER INSERT ON campaign_history
	FOR EACH ROW EXECUTE FUNCTION event_changed_add();
