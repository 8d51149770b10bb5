-- Ids, names and keys are compared byte by byte, as the hub does. States are the numbers of the protocol,
-- times are milliseconds since 1970.
CREATE SCHEMA IF NOT EXISTS nuncio;
SET LOCAL search_path = nuncio, pg_catalog;

CREATE TABLE schema_version (version bigint NOT NULL);
INSERT INTO schema_version VALUES (0);

CREATE TABLE secrets (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL);

-- Every process that writes is an owner, alive as long as its beat is recent. A row stays until all that
-- its owner has left behind is adopted.
CREATE SEQUENCE epochs;
CREATE TABLE owners (epoch bigint PRIMARY KEY, beat timestamptz NOT NULL) WITH (fillfactor = 50);

-- Whose tasks. The id is a digest of the rest, so that nobody has to look it up.
CREATE TABLE scopes (
  id uuid PRIMARY KEY,
  agent text COLLATE "C" NOT NULL,
  tenant text COLLATE "C",
  owner text COLLATE "C"
);
CREATE INDEX scopes_agent ON scopes (agent);
CREATE INDEX scopes_owner ON scopes (owner);

CREATE TABLE tasks (
  id text COLLATE "C" PRIMARY KEY,
  scope uuid NOT NULL,
  context_id text COLLATE "C" NOT NULL,
  status_at bigint NOT NULL,
  seq bigint NOT NULL,
  owner bigint NOT NULL,
  snapshot_seq bigint NOT NULL,
  -- How many turns have not begun.
  pending integer NOT NULL,
  state smallint NOT NULL,
  -- The state before the last write: a write counts by it.
  former smallint NOT NULL,
  busy boolean NOT NULL,
  snapshot bytea,
  snapshot_refs bytea,
  artifacts bytea,
  artifacts_refs bytea
) WITH (fillfactor = 90);
CREATE INDEX tasks_time ON tasks (scope, status_at, id);
CREATE INDEX tasks_state ON tasks (scope, state, status_at, id);
CREATE INDEX tasks_context ON tasks (scope, context_id, status_at, id);
CREATE INDEX tasks_left ON tasks (owner) WHERE busy OR pending > 0;

-- The log: each row has one or more neighbouring entries.
CREATE TABLE segments (
  task text COLLATE "C" NOT NULL,
  last_seq bigint NOT NULL,
  first_seq bigint NOT NULL,
  body bytea NOT NULL,
  refs bytea,
  PRIMARY KEY (task, last_seq)
);

CREATE TABLE blobs (
  task text COLLATE "C" NOT NULL,
  digest bytea NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (task, digest)
);

CREATE TABLE turns (
  task text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  begun boolean NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (task, id)
);

CREATE TABLE links (
  child text COLLATE "C" NOT NULL,
  parent text COLLATE "C" NOT NULL,
  PRIMARY KEY (child, parent)
);
CREATE INDEX links_parent ON links (parent, child);

-- What was answered under an idempotency key: a task or a direct reply.
CREATE TABLE answers (
  scope uuid NOT NULL,
  key text COLLATE "C" NOT NULL,
  digest bytea NOT NULL,
  at bigint NOT NULL,
  task text COLLATE "C",
  reply bytea,
  PRIMARY KEY (scope, key)
);
CREATE INDEX answers_task ON answers (task) WHERE task IS NOT NULL;
CREATE INDEX answers_reply ON answers (scope, at) WHERE reply IS NOT NULL;

-- How many tasks there are, in rows of each writer, so that writers do not wait for each other; the sum
-- counts. The reference makes a writer notice that a scope it knows has been erased.
CREATE TABLE counters (
  scope uuid NOT NULL REFERENCES scopes,
  state smallint NOT NULL,
  owner bigint NOT NULL,
  n bigint NOT NULL,
  PRIMARY KEY (scope, state, owner)
) WITH (fillfactor = 50);

-- Bodies over 2 KB are compressed by what costs little, or not at all.
DO $$ BEGIN
  ALTER TABLE tasks ALTER snapshot SET COMPRESSION lz4, ALTER artifacts SET COMPRESSION lz4;
  ALTER TABLE segments ALTER body SET COMPRESSION lz4;
  ALTER TABLE blobs ALTER body SET COMPRESSION lz4;
EXCEPTION WHEN OTHERS THEN
  ALTER TABLE tasks ALTER snapshot SET STORAGE EXTERNAL, ALTER artifacts SET STORAGE EXTERNAL;
  ALTER TABLE segments ALTER body SET STORAGE EXTERNAL;
  ALTER TABLE blobs ALTER body SET STORAGE EXTERNAL;
END $$;
