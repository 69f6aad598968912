-- Order among conversations, versions of a message, and links that show a conversation.

ALTER TABLE sessions ADD COLUMN pinned bigint NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN archived bigint NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN folder text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX sessions_filed ON sessions (folder) WHERE folder <> '';
CREATE INDEX sessions_pinned ON sessions (updated) WHERE pinned = 1;
ALTER TABLE api_keys ADD COLUMN unlisted bigint NOT NULL DEFAULT 0;
ALTER TABLE undone_turns ADD COLUMN after_turn bigint;

-- links that show a conversation as it was when they were made
CREATE TABLE shared_conversations (
    id text COLLATE "C" PRIMARY KEY,
    token_hash bytea NOT NULL UNIQUE,
    session_id text COLLATE "C" NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    created double precision NOT NULL,
    expires double precision NOT NULL
);
CREATE INDEX shared_conversations_by_session ON shared_conversations (session_id);
