-- What conversations that had read untrusted text have written: files changed in this time may contain it.

CREATE TABLE untrusted_writes (
    path  text COLLATE "C" NOT NULL,
    began double precision NOT NULL,
    ended double precision NOT NULL,
    PRIMARY KEY (path, began)
);
