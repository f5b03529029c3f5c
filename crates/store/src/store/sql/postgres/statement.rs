//! Translates statements: `?1` becomes `$1`, and `IS ?1` becomes `IS NOT DISTINCT FROM $1`.

/// Returns a statement in the form of PostgreSQL. Texts in quotation marks remain unchanged.
pub(super) fn translated(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 16);
    let mut rest = sql;
    while let Some(at) = rest.find(['?', '\'']) {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        if let Some(text) = found.strip_prefix('\'') {
            let end = text.find('\'').map_or(found.len(), |end| end + 2);
            out.push_str(&found[..end]);
            rest = &found[end..];
            continue;
        }
        if before.ends_with(" IS ") {
            out.push_str("NOT DISTINCT FROM ");
        }
        out.push('$');
        rest = &found[1..];
    }
    out.push_str(rest);
    out
}

#[test]
fn parameters_are_translated_outside_of_texts() {
    let sql = "SELECT '?1 IS ?2', 'it''s ?' FROM t WHERE a IS ?1 AND b = ?12 AND c IS NOT NULL";
    let expected = "SELECT '?1 IS ?2', 'it''s ?' FROM t WHERE a IS NOT DISTINCT FROM $1 AND b = $12 AND c IS NOT NULL";
    assert_eq!(translated(sql), expected);
}
