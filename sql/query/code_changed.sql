-- Counts the transaction as a change; see change_note(). The last statement before COMMIT.
SELECT change_note() AS change
