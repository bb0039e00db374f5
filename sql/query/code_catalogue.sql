-- The sets of codes with their spaces, those of the space that was made first first. Of a word its
-- text; NULL: it is not stored yet.
SELECT s.id, s.coupon_id, s.kind, s.first_position, s.code_num,
	s.space_id, p.form, p.alphabet, p.key_version, k.fingerprint, w.text AS word
FROM code_set AS s
	LEFT JOIN code_space AS p ON p.id = s.space_id
	LEFT JOIN code_key AS k ON k.version = p.key_version
	LEFT JOIN code AS w ON s.kind = 'word' AND w.set_id = s.id AND w.serial = 0
ORDER BY s.space_id, s.first_position, s.id
