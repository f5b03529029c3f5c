//! Password file of libpq: lines `host:port:database:user:password`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;
use secrecy::SecretString;

use super::env::Env;
use super::secret;
use crate::domain::model::database::{DatabaseHost, PostgresAddress};

/// Folders of the Unix socket that use the passwords of `localhost`: the defaults of PostgreSQL and of Debian.
const DEFAULT_SOCKETS: [&str; 3] = ["/tmp", "/run/postgresql", "/var/run/postgresql"];

/// Returns the password file of the environment: `PGPASSFILE`, otherwise `~/.pgpass` if it exists.
pub(super) fn path(env: &Env) -> Option<PathBuf> {
    if let Some(path) = env.get("PGPASSFILE").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let path = Path::new(env.get("HOME").filter(|home| !home.is_empty())?).join(".pgpass");
    path.exists().then_some(path)
}

/// Returns the password of each host of an address, in order; `None` for a host without a line.
///
/// # Errors
/// Fails if the file cannot be read, is not a plain file, or can be used by other accounts.
pub(super) fn passwords(path: &Path, address: &PostgresAddress) -> Result<Vec<Option<SecretString>>, Failure> {
    let of_file = |problem: std::io::Error| {
        Failure::new(format!("cannot read the password file {}", path.display())).caused_by(problem)
    };
    let mode = std::fs::metadata(path).map_err(of_file)?.permissions().mode();
    if mode & 0o077 != 0 {
        let shown = path.display();
        return Err(Failure::new(format!("other accounts can use the password file {shown}"))
            .with_hint(format!("run `chmod 0600 {shown}`")));
    }
    let text = secret::read_file(path).map_err(of_file)?;
    let lines: Vec<Vec<String>> = text.lines().filter(|line| !line.starts_with('#')).filter_map(fields).collect();
    Ok(address.hosts.iter().map(|host| password(&lines, host, address)).collect())
}

fn password(lines: &[Vec<String>], host: &DatabaseHost, address: &PostgresAddress) -> Option<SecretString> {
    let is_default = DEFAULT_SOCKETS.contains(&host.name.as_str());
    let name = if is_default { "localhost" } else { &host.name };
    let port = host.port.to_string();
    let wanted = [name, &port, &address.database, &address.user];
    let mut found = lines.iter().filter(|line| line.iter().zip(wanted).all(|(has, asked)| has == "*" || has == asked));
    found.next().and_then(|line| line.last()).map(|password| SecretString::from(password.clone()))
}

/// Splits a line at its colons; a backslash escapes a colon or a backslash. `None` if it has too few fields.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' if fields.len() < 5 => fields.push(String::new()),
            // A password ends at the next colon, as in libpq.
            ':' => break,
            '\\' => fields.last_mut()?.extend(chars.next()),
            c => fields.last_mut()?.push(c),
        }
    }
    (fields.len() == 5).then_some(fields)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn first_matching_line_has_the_password_of_a_host() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pgpass");
        let text = "# db1:*:*:*:comment\ndb1:5432:other:*:wrong\ndb1:5432:bot:ralph:o\\:n\\\\e\ndb2:*:*:*:two\nlocalhost:*:*:*:socket\n\
                    short:line\ndb2:*:*:*:late\n";
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("set");
        let address = PostgresAddress::parse("postgres://ralph@db1,db2:6432,db3,%2Fvar%2Frun%2Fpostgresql/bot");
        let found = passwords(&file, &address.expect("an address")).expect("read");
        let found: Vec<Option<&str>> = found.iter().map(|p| p.as_ref().map(|p| p.expose_secret())).collect();
        assert_eq!(found, [Some("o:n\\e"), Some("two"), None, Some("socket")]);
    }

    #[test]
    fn file_of_other_accounts_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pgpass");
        std::fs::write(&file, "*:*:*:*:secret\n").expect("written");
        let address = PostgresAddress::parse("postgres://ralph@db/bot").expect("an address");
        for (mode, refused) in [(0o600, false), (0o640, true), (0o604, true)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("set");
            assert_eq!(passwords(&file, &address).is_err(), refused, "{mode:o}");
        }
        assert!(passwords(&folder.path().join("missing"), &address).is_err());
    }

    #[test]
    fn password_file_of_environment_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().display().to_string();
        assert_eq!(path(&Env::of([("HOME", home.as_str())])), None);
        std::fs::write(folder.path().join(".pgpass"), "").expect("written");
        assert_eq!(path(&Env::of([("HOME", home.as_str())])), Some(folder.path().join(".pgpass")));
        assert_eq!(path(&Env::of([("HOME", home.as_str()), ("PGPASSFILE", "/p")])), Some("/p".into()));
    }
}
