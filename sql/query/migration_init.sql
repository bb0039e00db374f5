-- The table of applied migrations. Run by the owner of the database.
CREATE TABLE IF NOT EXISTS schema_migration (
	version    int PRIMARY KEY,
	name       text NOT NULL,
	checksum   text NOT NULL, -- of its files
	applied_at timestamptz NOT NULL DEFAULT now()
)
