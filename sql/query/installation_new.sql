-- Gives the installation another id.
UPDATE installation SET id = gen_random_uuid() RETURNING id
