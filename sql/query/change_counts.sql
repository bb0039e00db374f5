-- The numbers that only grow (see change_note()), and the fence of the keeper.
SELECT stripe, num, (SELECT fence FROM keeper) AS fence FROM change_count ORDER BY stripe
