-- Records, and what agents remember with their tasks.
SET LOCAL search_path = nuncio, pg_catalog;

CREATE TABLE memos (task text COLLATE "C" PRIMARY KEY, body bytea NOT NULL);

CREATE TABLE records (
  kind text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  at bigint NOT NULL,
  value bytea NOT NULL,
  PRIMARY KEY (kind, key)
) WITH (fillfactor = 90);
CREATE INDEX records_time ON records (kind, at, key);
