-- What the processes of a gateway share.

CREATE TABLE platform_states (  -- state files of messengers, such as read positions
    platform text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    data     bytea NOT NULL,
    PRIMARY KEY (platform, name)
);

ALTER TABLE outbox ALTER COLUMN owner SET DEFAULT coalesce(current_setting('alipes.worker', true), '');
