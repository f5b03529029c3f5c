//! Database: the address of a server of PostgreSQL, and its passwords.

use secrecy::SecretString;

use super::Validator;
use crate::config::operator::OperatorFile;
use crate::config::{ConfigScope, DatabaseConfig, password_file};
use crate::domain::model::database::PostgresAddress;

impl Validator<'_> {
    /// Returns the server of the database; `None` for SQLite. Runs on this machine's repositories always use SQLite.
    pub(super) fn database(&mut self, file: &OperatorFile) -> Option<DatabaseConfig> {
        let source = self.one_of("", "database_password", &file.database_password_env, &file.database_password_file);
        let Some(text) = &file.database else {
            if let Some((key, _)) = source {
                self.wrong(&key, "it needs `database`, the address of a server of PostgreSQL");
            }
            return None;
        };
        if self.reach == ConfigScope::Local {
            return None;
        }
        let mut address = match PostgresAddress::parse(text) {
            Ok(address) => address,
            Err(problem) => {
                self.wrong("database", problem);
                return None;
            }
        };
        address.root_certificate = address.root_certificate.map(|path| self.base.join(path));
        let passwords = match source {
            Some((key, source)) => vec![Some(self.read_secret(&key, &source)?); address.hosts.len()],
            None => self.passwords_of_libpq(&address)?,
        };
        Some(DatabaseConfig { address, passwords })
    }

    fn passwords_of_libpq(&mut self, address: &PostgresAddress) -> Option<Vec<Option<SecretString>>> {
        let Some(path) = password_file::path(self.env) else { return Some(vec![None; address.hosts.len()]) };
        self.secret_files.push(("database".to_owned(), path.clone()));
        match password_file::passwords(&path, address) {
            Ok(passwords) => Some(passwords),
            Err(problem) => {
                self.wrong("database", problem);
                None
            }
        }
    }
}
