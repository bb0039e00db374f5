-- The spaces of codes, each with the number of codes in its sets.
SELECT p.id, p.form, p.alphabet, p.key_version,
	(SELECT coalesce(sum(s.code_num), 0)::bigint FROM code_set AS s WHERE s.space_id = p.id)
		AS code_num
FROM code_space AS p
ORDER BY p.id
