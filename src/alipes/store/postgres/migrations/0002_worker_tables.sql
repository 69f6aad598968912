-- The tables of the verbs; the functions are in 0007_verbs.sql.

CREATE TABLE workers (  -- the processes of a cluster
    id          text COLLATE "C" PRIMARY KEY,
    started     timestamptz NOT NULL DEFAULT clock_timestamp(),
    host        text COLLATE "C" NOT NULL DEFAULT '',
    pid         integer NOT NULL DEFAULT 0,
    roles       text COLLATE "C" NOT NULL DEFAULT '',
    lease_until timestamptz NOT NULL DEFAULT clock_timestamp() + interval '3 seconds',
    state       text COLLATE "C" NOT NULL DEFAULT 'alive'
) WITH (fillfactor = 50);

CREATE TABLE worker_batches (  -- the last `apply` of a worker; apart from `workers`, so that no heartbeat waits for it
    worker       text COLLATE "C" PRIMARY KEY,
    last_batch   bigint NOT NULL,
    last_results text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
