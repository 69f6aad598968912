"""The store's SQL in PostgreSQL's words."""

from alipes.store.postgres.dialect import translate


def test_placeholders_become_those_of_the_driver():
    assert translate("SELECT a FROM t WHERE b = ? AND c = ?").sql == "SELECT a FROM t WHERE b = %s AND c = %s"
    assert translate("SELECT :key, 'x:y?', a::text").sql == "SELECT %(key)s, 'x:y?', a::text"


def test_numbered_values_may_be_used_twice():
    statement = translate("SELECT ?1, ?2, ?1")
    assert statement.sql == "SELECT %(p1)s, %(p2)s, %(p1)s"
    assert statement.bind(("a", "b")) == {"p1": "a", "p2": "b"}


def test_percent_signs_stay_literal():
    assert translate("SELECT '%' || ? || '%', 5 % 2").sql == "SELECT '%%' || %s || '%%', 5 %% 2"


def test_an_ignored_conflict_keeps_its_returning_clause():
    found = translate("INSERT OR IGNORE INTO t (a) VALUES (?) RETURNING a").sql
    assert found == "INSERT INTO t (a) VALUES (%s) ON CONFLICT DO NOTHING RETURNING a"


def test_a_replaced_row_is_updated():
    found = translate("INSERT OR REPLACE INTO chat_settings VALUES (?, ?)").sql
    assert found == (
        "INSERT INTO chat_settings VALUES (%s, %s) ON CONFLICT (lane) DO UPDATE SET progress = excluded.progress"
    )


def test_statements_about_indexes_of_sqlite_are_left_out():
    assert translate("INSERT INTO search_trigrams (rowid, text) VALUES (?, ?)").sql == ""
