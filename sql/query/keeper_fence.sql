-- Returns the fence of a newly elected keeper, which is higher than all earlier ones.
UPDATE keeper SET fence = fence + 1 RETURNING fence
