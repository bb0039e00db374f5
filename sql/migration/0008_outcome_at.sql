-- When the last outcome was recorded: settle() sets it. An audit reads whether a coupon whose
-- receives are in flight makes progress. No index covers it, so the updates stay HOT.
ALTER TABLE coupon ADD COLUMN outcome_at timestamptz;    -- NULL: none since this migration
GRANT UPDATE (outcome_at) ON coupon TO couponmq_app;

-- Of an older generation: no earlier than the end of the generation.
ALTER TABLE coupon_generation ADD COLUMN outcome_at timestamptz NOT NULL DEFAULT now();
