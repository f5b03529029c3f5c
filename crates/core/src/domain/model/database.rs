//! Address of a database of PostgreSQL.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::form_urlencoded;

/// Port of a server without a port in its address.
const PORT: u16 = 5432;
/// Known parameters of an address.
const PARAMETERS: &str = "sslmode, sslrootcert, target_session_attrs, connect_timeout and options";

/// Problem of an address. The message does not repeat the address, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressProblem {
    /// The text is not an address of a database.
    #[error("expected an address such as postgres://ralph@db.example.org/ralph")]
    Form,
    /// The address contains a password.
    #[error(
        "the address must not contain a password; set `database_password_env` or `database_password_file`, or use the password file \
         of libpq"
    )]
    Password,
    /// A part is missing.
    #[error("the address contains no {0}; expected an address such as postgres://ralph@db.example.org/ralph")]
    Missing(&'static str),
    /// The port of a host is not a number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// A parameter is unknown.
    #[error("the parameter `{0}` is unknown; known parameters are {PARAMETERS}")]
    Parameter(String),
    /// A parameter has a value that the service does not support.
    #[error("the parameter `{name}` must be {expected}")]
    Value {
        /// Name of the parameter.
        name: &'static str,
        /// Supported values.
        expected: &'static str,
    },
}

/// Address of a database of PostgreSQL, without a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresAddress {
    /// User of the database.
    pub user: String,
    /// Servers in the order in which they are tried; at least one.
    pub hosts: Vec<DatabaseHost>,
    /// Name of the database.
    pub database: String,
    /// Whether connections use TLS; `None` for all hosts except local ones.
    pub tls: Option<bool>,
    /// File with the certificates that sign the server's certificate; `None` for the system's certificates.
    pub root_certificate: Option<PathBuf>,
    /// Maximum time for connecting to one server, if the address limits it.
    pub connect_timeout: Option<Duration>,
    /// Settings of each session, such as `-c search_path=bot`.
    pub options: Option<String>,
}

/// Server of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseHost {
    /// Name, IP address, or absolute path of the folder of a Unix socket.
    pub name: String,
    /// Port of the server.
    pub port: u16,
}

impl DatabaseHost {
    /// Whether the server is reached through a Unix socket.
    pub fn is_socket(&self) -> bool {
        self.name.starts_with('/')
    }

    /// Whether connections to the server do not leave this machine.
    pub fn is_local(&self) -> bool {
        let is_loopback = self.name.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        self.is_socket() || self.name == "localhost" || is_loopback
    }

    fn parse(text: &str) -> Result<Self, AddressProblem> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, after) = rest.split_once(']').ok_or(AddressProblem::Form)?;
                let port = after.strip_prefix(':');
                if port.is_none() && !after.is_empty() {
                    return Err(AddressProblem::Form);
                }
                (name, port)
            }
            None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
        };
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| AddressProblem::Port))?;
        let name = decoded(name);
        match (name.is_empty(), port) {
            (true, _) => Err(AddressProblem::Missing("host")),
            (false, 0) => Err(AddressProblem::Port),
            (false, _) => Ok(Self { name, port }),
        }
    }
}

impl fmt::Display for DatabaseHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.port == PORT { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        write!(f, "postgres://{}@{}/{}", self.user, hosts.join(","), self.database)
    }
}

impl PostgresAddress {
    /// Parses an address: `postgres://user@host[:port][,host…]/name[?parameters]`. The folder of a Unix socket is a host with `%2F` for
    /// each slash.
    ///
    /// # Errors
    /// Returns the problem if the address has another form, contains a password, or has an unsupported parameter.
    pub fn parse(text: &str) -> Result<Self, AddressProblem> {
        let rest = without_scheme(text).ok_or(AddressProblem::Form)?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, _)) if user.contains(':') => return Err(AddressProblem::Password),
            Some((user, rest)) if !user.is_empty() => (user, rest),
            _ => return Err(AddressProblem::Missing("user")),
        };
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        if database.is_empty() || database.contains('/') {
            return Err(AddressProblem::Missing("name of a database"));
        }
        let mut address = Self {
            user: decoded(user),
            hosts: hosts.split(',').map(DatabaseHost::parse).collect::<Result<_, _>>()?,
            database: decoded(database),
            tls: None,
            root_certificate: None,
            connect_timeout: None,
            options: None,
        };
        // A plus sign does not mean a space.
        for (name, value) in form_urlencoded::parse(parameters.replace('+', "%2B").as_bytes()) {
            address.set(&name, &value)?;
        }
        Ok(address)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), AddressProblem> {
        match name {
            "password" => return Err(AddressProblem::Password),
            "sslmode" => {
                self.tls = Some(match value {
                    "disable" => false,
                    // The certificate is always verified.
                    "require" | "verify-full" => true,
                    _ => {
                        let expected = "`disable`, `require` or `verify-full`";
                        return Err(AddressProblem::Value { name: "sslmode", expected });
                    }
                });
            }
            "sslrootcert" => self.root_certificate = Some(value.into()),
            "target_session_attrs" => {
                if value != "read-write" {
                    let expected = "`read-write`, which is the default, because the service writes";
                    return Err(AddressProblem::Value { name: "target_session_attrs", expected });
                }
            }
            "connect_timeout" => {
                let seconds = value.parse().ok().filter(|seconds| (1..=60).contains(seconds));
                let expected = "a number of seconds from 1 to 60";
                let seconds = seconds.ok_or(AddressProblem::Value { name: "connect_timeout", expected })?;
                self.connect_timeout = Some(Duration::from_secs(seconds));
            }
            "options" => self.options = Some(value.to_owned()),
            _ => return Err(AddressProblem::Parameter(name.to_owned())),
        }
        Ok(())
    }
}

fn without_scheme(text: &str) -> Option<&str> {
    text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"))
}

/// Decodes the percent encoding of a part of an address.
fn decoded(text: &str) -> String {
    let escaped = text.replace('+', "%2B").replace('=', "%3D").replace('&', "%26");
    let mut parts = form_urlencoded::parse(escaped.as_bytes());
    parts.next().map_or(String::new(), |(text, _)| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_ports_and_parameters_are_read() {
        let text = "postgresql://ra%40lph@db1,db2:6432,[::1]:7,%2Frun%2Fpg/bot?sslmode=require&sslrootcert=ca.pem&options=-c%20a%3Db+c";
        let address = PostgresAddress::parse(text).expect("an address");
        let hosts: Vec<(&str, u16)> = address.hosts.iter().map(|host| (host.name.as_str(), host.port)).collect();
        assert_eq!(hosts, [("db1", 5432), ("db2", 6432), ("::1", 7), ("/run/pg", 5432)]);
        let local: Vec<bool> = address.hosts.iter().map(DatabaseHost::is_local).collect();
        assert_eq!(local, [false, false, true, true]);
        assert_eq!((address.user.as_str(), address.tls), ("ra@lph", Some(true)));
        assert_eq!(address.options.as_deref(), Some("-c a=b+c"));
        assert_eq!(address.to_string(), "postgres://ra@lph@db1,db2:6432,::1:7,/run/pg/bot");
    }

    #[test]
    fn problems_are_reported_without_the_address() {
        let problem = |text: &str| PostgresAddress::parse(text).expect_err(text);
        for text in ["postgres://u:secret@h/d", "postgres://u:a/b?c@h/d", "postgres://u@h/d?password=secret"] {
            let found = problem(text);
            assert!(!found.to_string().contains("secret"), "{found}");
        }
        assert_eq!(problem("postgres://u:secret@h/d"), AddressProblem::Password);
        assert_eq!(problem("postgres://u@h/d?password=secret"), AddressProblem::Password);
        assert_eq!(problem("mysql://u@h/d"), AddressProblem::Form);
        assert_eq!(problem("postgres://h/d"), AddressProblem::Missing("user"));
        assert_eq!(problem("postgres://u@/d"), AddressProblem::Missing("host"));
        assert_eq!(problem("postgres://u@h1,,h2/d"), AddressProblem::Missing("host"));
        assert_eq!(problem("postgres://u@h"), AddressProblem::Missing("name of a database"));
        assert_eq!(problem("postgres://u@h:70000/d"), AddressProblem::Port);
        assert_eq!(problem("postgres://u@h/d?sslcert=x"), AddressProblem::Parameter("sslcert".to_owned()));
        for value in ["sslmode=prefer", "target_session_attrs=any", "connect_timeout=0"] {
            assert!(matches!(problem(&format!("postgres://u@h/d?{value}")), AddressProblem::Value { .. }), "{value}");
        }
    }
}
