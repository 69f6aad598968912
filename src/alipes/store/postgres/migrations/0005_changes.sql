-- Changes of the tables that people see. A transaction of a worker that knows of a watcher sets `alipes.watched`; then
-- these triggers note in `alipes.noted` what changed, and the worker reads it before the commit and announces it after.
-- Both settings end with the transaction. Without a watcher a row costs the comparison of one setting.

CREATE FUNCTION note_change(kind text, id text DEFAULT '', session text DEFAULT '', status text DEFAULT '')
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    noted text := coalesce(current_setting('alipes.noted', true), '');
    note text := ',' || json_build_array(kind, id, session, status);
BEGIN
    IF position(note IN noted) = 0 THEN
        PERFORM set_config('alipes.noted', noted || note, true);
    END IF;
END $$;

CREATE FUNCTION note_row() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    IF TG_OP = 'DELETE' THEN r := old; ELSE r := new; END IF;
    CASE TG_TABLE_NAME
        WHEN 'sessions' THEN
            IF r.platform <> 'subagent' THEN
                PERFORM note_change(CASE TG_OP WHEN 'DELETE' THEN 'session_deleted' ELSE 'session' END, r.id);
            END IF;
        WHEN 'turns' THEN
            PERFORM note_change('run', r.id, coalesce(nullif(r.origin_session, ''), r.session_id),
                coalesce(r.ending, CASE WHEN r.attempts > 0 THEN 'running' WHEN r.held <> 0 THEN 'held' ELSE 'queued' END));
        WHEN 'todos' THEN PERFORM note_change('session', r.session_id);
        WHEN 'undone_turns' THEN PERFORM note_change('session', r.session_id);
        WHEN 'approvals' THEN PERFORM note_change('inbox'), note_change('session', r.session_id);
        WHEN 'questions' THEN PERFORM note_change('inbox'), note_change('session', r.session_id);
        WHEN 'schedules' THEN PERFORM note_change('schedule', r.id);
        WHEN 'schedule_runs' THEN PERFORM note_change('schedule', r.schedule_id);
        WHEN 'memory_changes' THEN PERFORM note_change('memory');
        WHEN 'proposals' THEN
            PERFORM note_change(CASE r.kind WHEN 'memory' THEN 'memory' ELSE 'skill' END), note_change('inbox');
        WHEN 'people' THEN PERFORM note_change('person');
        WHEN 'pairing_requests' THEN PERFORM note_change('person'), note_change('inbox');
        WHEN 'outbox' THEN PERFORM note_change('outbox');
    END CASE;
    RETURN NULL;
END $$;

DO $$
DECLARE
    watched record;
BEGIN
    FOR watched IN SELECT * FROM (VALUES
        ('sessions', 'INSERT OR UPDATE OR DELETE'),
        ('turns', 'INSERT OR UPDATE OF ending, attempts, held'),
        ('todos', 'INSERT OR UPDATE'),
        ('undone_turns', 'INSERT OR DELETE'),
        ('approvals', 'INSERT OR UPDATE'),
        ('questions', 'INSERT OR UPDATE'),
        ('schedules', 'INSERT OR UPDATE OR DELETE'),
        ('schedule_runs', 'INSERT OR UPDATE'),
        ('memory_changes', 'INSERT OR UPDATE'),
        ('proposals', 'INSERT OR UPDATE'),
        ('people', 'INSERT OR UPDATE OR DELETE'),
        ('pairing_requests', 'INSERT OR UPDATE OR DELETE'),
        ('outbox', 'INSERT OR UPDATE OR DELETE')) AS list (name, events)
    LOOP
        EXECUTE format('CREATE TRIGGER watch_%I AFTER %s ON %I FOR EACH ROW
            WHEN (current_setting(''alipes.watched'', true) = ''on'') EXECUTE FUNCTION note_row()',
            watched.name, watched.events, watched.name);
    END LOOP;
END $$;
