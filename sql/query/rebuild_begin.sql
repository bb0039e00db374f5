-- Begins the transaction of a rebuild: all its queries read one snapshot and wait for no lock.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY
