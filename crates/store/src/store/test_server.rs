//! Server of PostgreSQL for tests.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ::postgres::{Config, NoTls};

use crate::clock::Stopwatch;
use crate::domain::model::database::PostgresAddress;
use crate::store::PgSettings;

/// Folders with the programs of the server, newest version first.
const PROGRAMS: [&str; 5] = [
    "/usr/lib/postgresql/18/bin",
    "/usr/lib/postgresql/17/bin",
    "/usr/lib/postgresql/16/bin",
    "/usr/lib/postgresql/15/bin",
    "/usr/lib/postgresql/14/bin",
];
/// Maximum time for the start of the server.
const START: Duration = Duration::from_secs(30);

/// Server in a temporary folder, with a socket.
pub struct PostgresServer {
    folder: tempfile::TempDir,
    process: Child,
    port: u16,
}

/// Returns the folder with the programs of the server; `None` and records the skipped test if the machine has none.
pub fn programs() -> Option<&'static Path> {
    let found = PROGRAMS.into_iter().map(Path::new).find(|folder| folder.join("initdb").exists());
    if found.is_none() {
        skipped_tests::skip("PostgreSQL is missing; install the package `postgresql`");
    }
    found
}

/// Gives a folder to the user of the server.
pub fn give(folder: &Path) {
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).expect("given to nobody");
    }
}

/// Returns the command of a program that runs as the user of the server.
#[expect(clippy::disallowed_methods, reason = "a program of the tests, not of the service")]
pub fn command(program: PathBuf) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if rustix::process::geteuid().is_root() {
        // The server refuses to run as root.
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Number of the user `nobody` on Debian.
const NOBODY: u32 = 65_534;

impl PostgresServer {
    /// Starts a server; returns `None` and records the skipped test if the machine has none.
    pub fn start() -> Option<Self> {
        Self::start_with(&[], |_| {})
    }

    /// Starts a server with settings; `prepare` may write into its data folder.
    pub fn start_with(settings: &[&str], prepare: impl FnOnce(&Path)) -> Option<Self> {
        let programs = programs()?;
        let folder = tempfile::tempdir().expect("a folder");
        give(folder.path());
        let data = folder.path().join("data");
        let mut init = command(programs.join("initdb"));
        init.args(["--auth=trust", "--username=ralph", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"]).arg(&data);
        assert!(init.status().expect("started").success(), "initdb failed");
        prepare(&data);
        let mut server = command(programs.join("postgres"));
        server.arg("-D").arg(&data).arg("-k").arg(folder.path());
        server.args(["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=400"]);
        let has_addresses = settings.iter().any(|setting| setting.starts_with("listen_addresses"));
        server.args(if has_addresses { &[][..] } else { &["-c", "listen_addresses="] });
        server.args(settings.iter().flat_map(|setting| ["-c", setting]));
        let process = server.spawn().expect("started");
        let port = settings.iter().find_map(|setting| setting.strip_prefix("port="));
        let port = port.map_or(5432, |port| port.parse().expect("a port"));
        let server = Self { folder, process, port };
        let watch = Stopwatch::start();
        while !server.answers() {
            assert!(watch.elapsed() < START, "the server did not start");
            std::thread::yield_now();
        }
        Some(server)
    }

    fn answers(&self) -> bool {
        let socket = self.folder.path().join(format!(".s.PGSQL.{}", self.port));
        if std::os::unix::net::UnixStream::connect(socket).is_err() {
            return false;
        }
        let config = self.config();
        // The caller may be a task, in which connecting must not block.
        std::thread::spawn(move || config.connect(NoTls).is_ok()).join().expect("no panic")
    }

    /// Returns the server's address.
    pub fn address(&self) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://ralph@{folder}:{}/postgres?connect_timeout=10", self.port)
    }

    /// Returns the settings of a connection as the server's administrator.
    pub fn config(&self) -> Config {
        self.address().parse().expect("an address")
    }

    /// Returns the folder of the server's socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs statements as the server's administrator.
    pub fn run(&self, sql: &str) {
        let (config, sql) = (self.config(), sql.to_owned());
        let ran = std::thread::spawn(move || config.connect(NoTls).and_then(|mut c| c.batch_execute(&sql)));
        ran.join().expect("no panic").expect("ran");
    }

    /// Returns a new schema.
    pub fn schema(&self) -> PgSettings {
        new_schema(&self.address())
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // SIGQUIT ends all processes of the server at once.
        let id = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::QUIT);
        let _ = self.process.wait();
    }
}

/// Creates a schema on a server and returns its address.
pub fn new_schema(server: &str) -> PgSettings {
    let name = format!("t{}", fastrand::u64(..));
    let config: Config = server.parse().expect("an address");
    let sql = format!("CREATE SCHEMA {name}");
    let made = std::thread::spawn(move || config.connect(NoTls).and_then(|mut client| client.batch_execute(&sql)));
    made.join().expect("no panic").expect("a schema");
    settings(&format!("{server}&options=-c%20search_path%3D{name}"))
}

/// Returns the settings of an address whose server asks for no password.
pub fn settings(address: &str) -> PgSettings {
    PgSettings::new(&PostgresAddress::parse(address).expect("an address"), &[]).expect("settings")
}
