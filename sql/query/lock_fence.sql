-- The fence of the lock that was just taken.
SELECT lock_fence() AS fence
