//! Databases of earlier versions: dumps that their builds wrote, and today's rows under an earlier schema.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use rusqlite::Connection;

/// Migrations in order.
pub fn migrations() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("migrations").flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).expect("a migration")).collect()
}

/// Version of a database's schema.
pub fn schema_version(path: &Path) -> usize {
    let connection = Connection::open(path).expect("opened");
    let version: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("a version");
    version as usize
}

/// Rows of a query whose columns are texts.
fn rows(connection: &Connection, sql: &str) -> Vec<Vec<String>> {
    let mut statement = connection.prepare(sql).expect("prepared");
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| (0..columns).map(|n| row.get(n)).collect()).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

fn names(connection: &Connection, sql: &str) -> BTreeSet<String> {
    rows(connection, sql).into_iter().flatten().collect()
}

/// Replaces the database at `path` by a database that `make` fills.
fn replace(path: &Path, make: impl FnOnce(&Connection)) {
    let other = path.with_extension("other");
    let connection = Connection::open(&other).expect("made");
    // Tables are filled in the order in which they were made.
    connection.execute_batch("PRAGMA foreign_keys = OFF").expect("set");
    make(&connection);
    drop(connection);
    for extension in ["db-wal", "db-shm"] {
        let _ = std::fs::remove_file(path.with_extension(extension));
    }
    std::fs::rename(other, path).expect("replaced");
}

/// Replaces a database by one with the schema of `version`, which has the rows and columns that this schema has a place for.
pub fn turn_back(path: &Path, version: usize) {
    replace(path, |connection| {
        for sql in &migrations()[..version] {
            connection.execute_batch(sql).expect("migrated");
        }
        connection.pragma_update(None, "user_version", version as u32).expect("set");
        connection.execute("ATTACH ?1 AS new", [path.display().to_string()]).expect("attached");
        // Tables of a search index are made by SQLite.
        let tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT \
                      LIKE '%_words%'";
        for table in names(connection, tables) {
            let columns =
                |schema| names(connection, &format!("SELECT name FROM pragma_table_info('{table}', '{schema}')"));
            let shared: Vec<String> = columns("main").intersection(&columns("new")).cloned().collect();
            assert!(!shared.is_empty(), "{table}");
            let list = shared.join(", ");
            connection
                .execute_batch(&format!("INSERT INTO main.{table} ({list}) SELECT {list} FROM new.{table}"))
                .unwrap_or_else(|error| panic!("{table}: {error}"));
        }
        connection.execute("DELETE FROM meta WHERE key = 'read_model'", []).expect("deleted");
        connection.execute_batch("DETACH new").expect("detached");
    });
}

/// SQL that makes a database again, in the manner of `.dump` of SQLite's shell. Tables of a search index are written as they are.
pub fn dump(path: &Path) -> String {
    let connection = Connection::open(path).expect("opened");
    let mut out = format!("PRAGMA user_version = {};\nPRAGMA writable_schema = ON;\n", schema_version(path));
    let tables = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL AND name NOT LIKE \
                  'sqlite_%' ORDER BY rowid";
    for table in rows(&connection, tables) {
        let [name, sql] = [&table[0], &table[1]];
        if sql.to_ascii_uppercase().starts_with("CREATE VIRTUAL TABLE") {
            let sql = sql.replace('\'', "''");
            writeln!(
                out,
                "INSERT INTO sqlite_master (type, name, tbl_name, rootpage, sql) VALUES ('table', '{name}', '{name}', 0, '{sql}');"
            )
            .expect("written");
            continue;
        }
        writeln!(out, "{sql};").expect("written");
        let columns = rows(&connection, &format!("SELECT name FROM pragma_table_info('{name}')")).concat();
        let values: Vec<String> = columns.iter().map(|column| format!("quote(\"{column}\")")).collect();
        for row in rows(&connection, &format!("SELECT {} FROM \"{name}\"", values.join(" || ', ' || "))) {
            writeln!(out, "INSERT INTO \"{name}\" VALUES ({});", row[0]).expect("written");
        }
    }
    let others = "SELECT sql FROM sqlite_master WHERE type != 'table' AND sql IS NOT NULL ORDER BY rowid";
    for row in rows(&connection, others) {
        writeln!(out, "{};", row[0]).expect("written");
    }
    out.push_str("PRAGMA writable_schema = OFF;\n");
    out
}

/// Replaces a database by the database of `dump`.
pub fn restore_dump(path: &Path, dump: &str) {
    replace(path, |connection| connection.execute_batch(dump).expect("a dump"));
}
