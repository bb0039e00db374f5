-- A rebuild reads everything at one moment. It waits on no lock.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY
