-- The table of applied function files: see docs/hacking.md. Run by the owner of the database.
CREATE TABLE IF NOT EXISTS schema_function (
	name       text PRIMARY KEY, -- of the file in sql/function/
	version    int NOT NULL CHECK (version > 0),
	checksum   text NOT NULL,    -- of the file
	definition text NOT NULL,    -- the checksum of what PostgreSQL stores of it
	applied_at timestamptz NOT NULL DEFAULT now()
)
