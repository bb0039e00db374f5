-- version: 1
-- function: discount(bigint,numeric,bigint,bigint,bigint)
--
-- What the terms of a coupon take off an amount, both in the smallest unit of the currency. A part
-- of a unit is not taken off. NULL: the terms name no discount, or a part of an amount that is not
-- known.
CREATE OR REPLACE FUNCTION discount(
	amount_off  bigint,
	percent_off numeric,
	threshold   bigint,
	cap         bigint,
	amount      bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
	SELECT CASE
		WHEN amount < threshold THEN 0
		WHEN amount_off IS NOT NULL THEN least(amount_off, amount)
		WHEN amount IS NOT NULL THEN least(floor(amount * percent_off / 100)::bigint,
			CASE WHEN percent_off IS NOT NULL THEN cap END)
	END
$$;
