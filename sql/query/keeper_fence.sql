-- At election: a fence number above all before it.
UPDATE keeper SET fence = fence + 1 RETURNING fence
