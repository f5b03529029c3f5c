//! Schema: the migrations of SQLite, translated. One description serves both engines.
//!
//! Each connection holds a shared advisory lock, and a process needs the exclusive lock to change the schema. So no process
//! works with an unknown schema, also after a lost connection: a new connection takes the lock and checks the version again.

use std::path::PathBuf;
use std::time::Duration;

use postgres::Client;
use regex::{Captures, Regex};

use super::failures::{classified, reason};
use super::words;
use crate::clock::Stopwatch;
use crate::store::schema::{IN_USE, NEWER};
use crate::store::{MIGRATIONS, StoreError, StoreResult, failure, unusable};

/// Class of the advisory lock on the schema's version.
const SCHEMA_LOCK: i32 = 0x7261_6c02;
/// Tables that statements order by SQLite's implicit row id, a column on PostgreSQL.
pub(in crate::store) const ROWID_TABLES: [&str; 2] = ["loops", "loop_events"];
/// Time between two attempts to acquire the lock.
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// Functions and tables that the translated schema and the statements need.
const SUPPORT: &str = "
CREATE TABLE schema_version (version BIGINT NOT NULL);
-- Last ids of tables whose ids are never used again. A sequence would show ids of transactions that have not committed.
CREATE TABLE last_ids (name TEXT COLLATE \"C\" PRIMARY KEY, last BIGINT NOT NULL);
CREATE FUNCTION note_last_id() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO last_ids (name, last) VALUES (TG_TABLE_NAME, NEW.id)
    ON CONFLICT (name) DO UPDATE SET last = greatest(last_ids.last, excluded.last);
    RETURN NULL;
END $$;
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'check_violation';
END $$;
CREATE FUNCTION max(BIGINT, BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS
    'SELECT CASE WHEN $1 IS NULL OR $2 IS NULL THEN NULL ELSE greatest($1, $2) END';
CREATE FUNCTION min(BIGINT, BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS
    'SELECT CASE WHEN $1 IS NULL OR $2 IS NULL THEN NULL ELSE least($1, $2) END';
CREATE FUNCTION json_extract(TEXT, TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS
    'SELECT $1::json #>> string_to_array(substr($2, 3), ''.'')';
";

/// Second number of the advisory locks of a database's schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaKey(pub(super) i32);

impl SchemaKey {
    /// Returns the two numbers of the lock on the schema's version.
    pub(super) fn lock(self) -> String {
        format!("{SCHEMA_LOCK}, {}", self.0)
    }
}

/// Checks that the schema is from this version, and keeps the shared lock.
pub(super) fn check(client: &mut Client, schema: SchemaKey) -> StoreResult<()> {
    let sql = format!("SELECT pg_try_advisory_lock_shared({})", schema.lock());
    if !asked(client, &sql)? {
        return Err(failure("another process is changing its schema; try again"));
    }
    check_version(client)
}

/// Checks that the schema is from this version.
fn check_version(client: &mut Client) -> StoreResult<()> {
    let ours = MIGRATIONS.len() as i64;
    match version(client)? {
        0 => {
            check_right_to_create(client)?;
            Err(StoreError::NotCreated { path: PathBuf::new() })
        }
        v if v < ours => Err(failure("an older version of ralph-bot made it; `ralph-bot serve` brings it up to date")),
        v if v > ours => Err(failure(NEWER)),
        _ => Ok(()),
    }
}

/// Takes the exclusive lock, so that no other process uses the database, and checks that the schema is from this version. Creates
/// the tables if `creates` is set and there are none.
pub(super) fn claim(client: &mut Client, schema: SchemaKey, creates: bool, patience: Duration) -> StoreResult<()> {
    let waited = Stopwatch::start();
    while !asked(client, &format!("SELECT pg_try_advisory_lock({})", schema.lock()))? {
        if waited.elapsed() >= patience {
            return Err(unusable(IN_USE));
        }
        std::thread::sleep(LOCK_RETRY);
    }
    if creates && version(client)? == 0 { migrate(client) } else { check_version(client) }
}

/// Runs the missing migrations and keeps the shared lock. Waits at most `patience` for processes with an older schema.
pub(super) fn update(client: &mut Client, schema: SchemaKey, patience: Duration) -> StoreResult<()> {
    let waited = Stopwatch::start();
    let lock = schema.lock();
    loop {
        if asked(client, &format!("SELECT pg_try_advisory_lock_shared({lock})"))? {
            match version(client)? {
                v if v == MIGRATIONS.len() as i64 => return Ok(()),
                v if v > MIGRATIONS.len() as i64 => {
                    let known = MIGRATIONS.len();
                    return Err(failure(format!(
                        "its schema has version {v}, and this version of ralph-bot supports {known}; {NEWER}"
                    )));
                }
                _ => asked(client, &format!("SELECT pg_advisory_unlock_shared({lock})"))?,
            };
        }
        if asked(client, &format!("SELECT pg_try_advisory_lock({lock})"))? {
            let migrated = migrate(client);
            asked(client, &format!("SELECT pg_advisory_unlock({lock})"))?;
            migrated?;
            continue;
        }
        if waited.elapsed() >= patience {
            return Err(failure(format!(
                "its schema needs a change, but processes of an older version of ralph-bot still use it; stop them, then start \
                 this version again (waited {} s)",
                patience.as_secs()
            )));
        }
        std::thread::sleep(LOCK_RETRY);
    }
}

fn asked(client: &mut Client, sql: &str) -> StoreResult<bool> {
    Ok(client.query_one(sql, &[]).map_err(|error| classified(&error))?.get(0))
}

/// Returns the number of applied migrations; 0 without tables.
fn version(client: &mut Client) -> StoreResult<i64> {
    let exists = "SELECT to_regclass(quote_ident(current_schema()) || '.schema_version') IS NOT NULL";
    if !asked(client, exists)? {
        return Ok(0);
    }
    let row = client.query_one("SELECT coalesce(max(version), 0) FROM schema_version", &[]);
    Ok(row.map_err(|error| classified(&error))?.get(0))
}

/// Checks that the user may create tables in the schema.
fn check_right_to_create(client: &mut Client) -> StoreResult<()> {
    let sql = "SELECT current_schema(), coalesce(has_schema_privilege(current_schema(), 'CREATE'), false), current_user::text";
    let row = client.query_one(sql, &[]).map_err(|error| classified(&error))?;
    let user: String = row.get(2);
    match (row.get::<_, Option<String>>(0), row.get(1)) {
        (Some(_), true) => Ok(()),
        (Some(schema), false) => Err(unusable(format!(
            "the user {user} has no right to create tables; run `GRANT CREATE ON SCHEMA {schema} TO {user}` as the server's \
             administrator"
        ))),
        (None, _) => Err(unusable(format!(
            "the user {user} has no schema for its tables; run `CREATE SCHEMA {user} AUTHORIZATION {user}` as the server's \
             administrator"
        ))),
    }
}

/// Runs the missing migrations in one transaction.
fn migrate(client: &mut Client) -> StoreResult<()> {
    check_right_to_create(client)?;
    let done = version(client)?;
    let mut sql = String::from("BEGIN;\n");
    if done == 0 {
        sql.push_str(SUPPORT);
    }
    for migration in MIGRATIONS.iter().skip(usize::try_from(done).unwrap_or_default()) {
        for statement in statements(migration) {
            sql.push_str(&translated(&statement));
            sql.push_str(";\n");
        }
    }
    let known = MIGRATIONS.len();
    sql.push_str(&format!("DELETE FROM schema_version; INSERT INTO schema_version VALUES ({known});\nCOMMIT;"));
    client.batch_execute(&sql).map_err(|error| {
        let detail = reason(&error);
        let _ = client.batch_execute("ROLLBACK");
        failure(format!("cannot create its tables: {detail}"))
    })
}

/// Returns the statements of a migration without comments.
fn statements(migration: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut is_quoted = false;
    for line in migration.lines() {
        let mut rest = line.chars().peekable();
        while let Some(c) = rest.next() {
            is_quoted ^= c == '\'';
            if !is_quoted && c == '-' && rest.peek() == Some(&'-') {
                break;
            }
            let current = found.last_mut().expect("there is always one");
            // The body of a trigger contains a semicolon.
            let is_body = current.contains("BEGIN") && !current.trim_end().ends_with("END");
            if c == ';' && !is_quoted && !is_body {
                found.push(String::new());
            } else {
                current.push(c);
            }
        }
        found.last_mut().expect("there is always one").push('\n');
    }
    found.iter().map(|statement| statement.trim().to_owned()).filter(|statement| !statement.is_empty()).collect()
}

/// Translates a statement of a migration.
fn translated(statement: &str) -> String {
    let pattern = |pattern: &str| Regex::new(pattern).expect("a valid pattern");
    if let Some(index) = pattern(r"(?s)^CREATE VIRTUAL TABLE (\w+) USING fts5 \((.*)\)$").captures(statement) {
        let names = index[2].split(',').map(str::trim).take_while(|name| !name.contains('='));
        let columns: Vec<String> = names.map(|name| format!("{name} TSVECTOR NOT NULL")).collect();
        let name = &index[1];
        let columns = columns.join(", ");
        let vector = words::vector_of(name).replace(&format!("{name}."), "");
        return format!(
            "CREATE TABLE {name} (rowid BIGINT PRIMARY KEY, {columns}); CREATE INDEX {name}_found ON {name} USING gin ({vector})"
        );
    }
    let trigger = r"(?s)^(CREATE TRIGGER \w+\s+BEFORE .*? ON \w+)(?:\s+WHEN (.*?))?\s+BEGIN SELECT RAISE\(ABORT, ('.*?')\);\s*END$";
    if let Some(parts) = pattern(trigger).captures(statement) {
        let when = parts.get(2).map_or(String::new(), |when| format!(" WHEN ({})", when.as_str()));
        return format!("{} FOR EACH ROW{when} EXECUTE FUNCTION refuse_change({})", &parts[1], &parts[3]);
    }
    let is_numbered = statement.contains("AUTOINCREMENT");
    let types = pattern(r"INTEGER PRIMARY KEY(?: AUTOINCREMENT)?|\b(?:INTEGER|TEXT|BLOB|REAL)\b|\)\s*WITHOUT ROWID");
    let translated = types.replace_all(statement, |found: &Captures<'_>| match &found[0] {
        "INTEGER" => "BIGINT",
        "TEXT" => "TEXT COLLATE \"C\"",
        "BLOB" => "BYTEA",
        "REAL" => "DOUBLE PRECISION",
        other if other.starts_with(')') => ")",
        _ => "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    });
    let mut translated = translated.into_owned();
    for table in ROWID_TABLES {
        let start = format!("CREATE TABLE {table} (");
        let rowid = format!("{start}rowid BIGINT GENERATED BY DEFAULT AS IDENTITY UNIQUE, ");
        translated = translated.replace(&start, &rowid);
    }
    if is_numbered {
        let table =
            pattern(r"CREATE TABLE (\w+)").captures(statement).map_or(String::new(), |found| found[1].to_owned());
        translated.push_str(&format!(
            "; CREATE TRIGGER {table}_last_id AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION note_last_id()"
        ));
    }
    translated
}

#[test]
fn statements_are_split_outside_of_comments_texts_and_triggers() {
    let migration =
        "-- It's; a comment\nCREATE TABLE a (\n    b TEXT -- of; it\n);\nCREATE TRIGGER t BEFORE DELETE ON a
        BEGIN SELECT RAISE(ABORT, 'no; never'); END;\nDROP INDEX i;";
    let found = statements(migration);
    assert_eq!(found.len(), 3, "{found:?}");
    let refused = "CREATE TRIGGER t BEFORE DELETE ON a FOR EACH ROW EXECUTE FUNCTION refuse_change('no; never')";
    assert_eq!(translated(&found[1]), refused);
}
