-- The numbers that only grow (see change_note()), the fence of the keeper, and the id of the
-- installation.
SELECT c.stripe, c.num, (SELECT fence FROM keeper) AS fence, i.id AS installation
FROM installation AS i LEFT JOIN change_count AS c ON true
ORDER BY c.stripe
