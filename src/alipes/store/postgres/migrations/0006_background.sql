-- Background processes of conversations, so that a notice can name those that were lost with their worker.

CREATE TABLE background_processes (
    holder     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    command    text COLLATE "C" NOT NULL,
    started    double precision NOT NULL,
    PRIMARY KEY (holder, name)
);

CREATE INDEX background_processes_by_session ON background_processes (session_id);
