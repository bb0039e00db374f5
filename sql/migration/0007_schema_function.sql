-- The record of the files of sql/function/ that couponctl migrate applied: see docs/hacking.md.
-- They replace the functions that the migrations before this one created.
CREATE TABLE schema_function (
	name       text PRIMARY KEY,       -- of the file in sql/function/
	version    int NOT NULL CHECK (version > 0),
	checksum   text NOT NULL,          -- of the file
	definition text NOT NULL,          -- the checksum of what PostgreSQL stores of it
	applied_at timestamptz NOT NULL DEFAULT now()
);
