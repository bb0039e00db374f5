-- The sets of generated codes, in the order of their positions.
SELECT id, space_id, coupon_id, first_position, code_num
FROM code_set
WHERE kind = 'generated'
ORDER BY space_id, first_position
