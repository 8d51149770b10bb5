-- Messages that may be at work while there is no task and no reply yet.
SET LOCAL search_path = nuncio, pg_catalog;

-- The id is that of the task. The key has its row among the answers, with the id in `reserved`. The reference
-- makes whoever reserves notice that a scope has been erased.
CREATE TABLE reservations (
  id text COLLATE "C" PRIMARY KEY,
  scope uuid NOT NULL REFERENCES scopes,
  key text COLLATE "C",
  owner bigint NOT NULL,
  at bigint NOT NULL,
  body bytea NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX reservations_scope ON reservations (scope);

ALTER TABLE answers ADD COLUMN reserved text COLLATE "C";
