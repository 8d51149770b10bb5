-- Push: who is told about a task, and what they are owed. Both are changed only by whoever has locked the
-- row of the webhook. Rows are locked in this order: tasks by id, then webhooks by uid.
SET LOCAL search_path = nuncio, pg_catalog;

CREATE TABLE webhooks (
  uid text COLLATE "C" PRIMARY KEY,
  task text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  scope uuid NOT NULL,
  -- That of the scope.
  agent text COLLATE "C" NOT NULL,
  target text COLLATE "C" NOT NULL,
  body text NOT NULL,
  -- It is owed no entry before this one.
  first_seq bigint NOT NULL,
  -- Not null as long as something is pending, or somebody has it in hand.
  due_at bigint,
  -- The owner that has it in hand.
  holder bigint,
  stopped boolean NOT NULL DEFAULT false,
  UNIQUE (task, id)
) WITH (fillfactor = 70);
CREATE INDEX webhooks_due ON webhooks (target, due_at, uid) WHERE due_at IS NOT NULL AND holder IS NULL;
CREATE INDEX webhooks_held ON webhooks (holder) WHERE holder IS NOT NULL;

-- States: 0 pending, 1 delivered, 2 dead. Of the attempts the last ones are told, as JSON.
CREATE TABLE deliveries (
  webhook text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  since bigint NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  state smallint NOT NULL DEFAULT 0,
  recent text[] NOT NULL DEFAULT '{}',
  PRIMARY KEY (webhook, seq)
) WITH (fillfactor = 80);
CREATE INDEX deliveries_pending ON deliveries (webhook, seq) WHERE state = 0;
CREATE INDEX deliveries_dead ON deliveries (webhook, seq) WHERE state = 2;
