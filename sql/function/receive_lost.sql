-- version: 1
-- function: receive_lost(bigint,int[],uuid[],smallint[],text[],smallint[],bigint[])
--
-- Records receives of one coupon as lost that have no outcome and whose messages no longer exist.
-- Each gets a tombstone, so that it is never issued even if its message arrives later. `generation`
-- is the generation of the receive, or any older one if it is not known: the receive is counted in
-- that generation if it has numbers in flight, else in the oldest one that has. So no generation
-- gets more outcomes than it has numbers while another one has numbers in flight. Returns the
-- elements that had no outcome before.
CREATE OR REPLACE FUNCTION receive_lost(
	coupon     bigint,
	generation int[],
	batch      uuid[],
	idx        smallint[],
	user_id    text[],
	slot       smallint[],
	at_ms      bigint[])
RETURNS SETOF int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	c coupon%ROWTYPE;
	i int;
	own int;
BEGIN
	-- As in settle(): tombstones are written under this lock, and rows that were inserted
	-- without it are checked under it.
	SELECT * INTO c FROM coupon WHERE id = receive_lost.coupon FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	FOR i IN 1 .. cardinality(receive_lost.batch) LOOP
		CONTINUE WHEN EXISTS (SELECT FROM user_coupon AS u
			WHERE u.user_id = receive_lost.user_id[i] AND u.coupon_id = c.id
				AND u.slot = receive_lost.slot[i]
				AND u.batch = receive_lost.batch[i]
				AND u.idx = receive_lost.idx[i]);
		INSERT INTO receive_rejected (coupon_id, batch, idx, user_id, slot, reason,
			received_at)
		VALUES (c.id, receive_lost.batch[i], receive_lost.idx[i], receive_lost.user_id[i],
			receive_lost.slot[i], 'lost',
			timestamptz 'epoch' + receive_lost.at_ms[i] * interval '1 ms')
		ON CONFLICT DO NOTHING;
		CONTINUE WHEN NOT FOUND;
		RETURN NEXT i;
		IF receive_lost.generation[i] = c.generation THEN
			-- Numbers have no gaps: seq_seen is at least the number of outcomes.
			UPDATE coupon SET settled_num = settled_num + 1,
				seq_seen = greatest(seq_seen, settled_num + 1)
			WHERE id = c.id;
			CONTINUE;
		END IF;
		own := CASE WHEN receive_lost.generation[i] <= c.generation_folded THEN 0
			ELSE receive_lost.generation[i] END;
		SELECT g.generation INTO own FROM coupon_generation AS g
		WHERE g.coupon_id = c.id AND (g.generation = own OR g.settled_num < g.seq_seen)
		ORDER BY g.settled_num < g.seq_seen DESC, g.generation = own DESC, g.generation
		LIMIT 1;
		UPDATE coupon_generation AS g SET settled_num = g.settled_num + 1,
			seq_seen = greatest(g.seq_seen, g.settled_num + 1)
		WHERE g.coupon_id = c.id AND g.generation = own;
		UPDATE coupon SET late_num = late_num + 1
			WHERE id = c.id RETURNING late_num INTO c.late_num;
		INSERT INTO coupon_late (coupon_id, num, generation, seq, user_id, slot, batch, idx,
			key, reason)
		VALUES (c.id, c.late_num, receive_lost.generation[i], 0, receive_lost.user_id[i],
			receive_lost.slot[i], receive_lost.batch[i], receive_lost.idx[i], '',
			'lost');
	END LOOP;
END
$$;
