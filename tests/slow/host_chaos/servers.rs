//! Database of the hosts: a primary and a standby that has every commit.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use ralph_bot::store::test_server::{command, give, programs};

/// Two servers of PostgreSQL with a common port. Commits wait for the standby while there is one.
pub struct Servers {
    folder: tempfile::TempDir,
    programs: &'static Path,
    addresses: [Ipv4Addr; 2],
    /// Index of the primary.
    primary: usize,
}

impl Servers {
    /// Starts both servers; `None` if the machine has no PostgreSQL, which is reported.
    pub fn start(addresses: [Ipv4Addr; 2]) -> Option<Self> {
        let programs = programs()?;
        let folder = tempfile::tempdir().expect("a folder");
        give(folder.path());
        let servers = Self { folder, programs, addresses, primary: 0 };
        let options = ["--auth=trust", "--username=ralph", "--encoding=UTF8", "--locale=C", "--no-sync"];
        servers.run("initdb", options, |init| init.arg("-D").arg(servers.data(0)));
        let rules = servers.data(0).join("pg_hba.conf");
        let text = "host all all 10.0.0.0/8 trust\nhost replication all 10.0.0.0/8 trust\n";
        std::fs::write(rules, text).expect("written");
        servers.control("start", 0);
        servers.follow();
        Some(servers)
    }

    /// Address of the database for `database` in the configuration, with both servers.
    pub fn address(&self) -> String {
        let [first, second] = self.addresses;
        format!("postgres://ralph@{first},{second}/postgres?sslmode=disable&connect_timeout=2")
    }

    fn data(&self, server: usize) -> PathBuf {
        self.folder.path().join(format!("server-{server}"))
    }

    fn run<const N: usize>(&self, program: &str, options: [&str; N], more: impl FnOnce(&mut Command) -> &mut Command) {
        let mut command = command(self.programs.join(program));
        command.args(options).current_dir(self.folder.path());
        let status = more(&mut command).status().expect("started");
        assert!(status.success(), "{program} failed");
    }

    fn control(&self, action: &str, server: usize) {
        let settings = format!(
            "-c listen_addresses={} -c unix_socket_directories= -c fsync=off -c full_page_writes=off -c max_connections=200",
            self.addresses[server]
        );
        let log = self.folder.path().join(format!("server-{server}.log"));
        self.run("pg_ctl", ["--wait", "--silent", "--mode=immediate"], |control| {
            if action == "start" {
                control.arg("--options").arg(settings).arg("--log").arg(log);
            }
            control.arg("-D").arg(self.data(server)).arg(action)
        });
    }

    /// Runs a statement on the primary.
    fn execute(&self, sql: &str) {
        let at = format!("host={} user=ralph dbname=postgres", self.addresses[self.primary]);
        self.run("psql", ["--quiet", "--no-psqlrc", "-v", "ON_ERROR_STOP=1"], |psql| psql.args(["-c", sql, &at]));
    }

    /// Makes the other server a standby of the primary. From then on, commits wait for it.
    pub fn follow(&self) {
        let standby = 1 - self.primary;
        let _ = std::fs::remove_dir_all(self.data(standby));
        let from = format!("host={} user=ralph application_name=standby", self.addresses[self.primary]);
        self.run("pg_basebackup", ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"], |copy| {
            copy.arg("-D").arg(self.data(standby)).arg("--dbname").arg(&from)
        });
        self.control("start", standby);
        self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.execute("SELECT pg_reload_conf()");
        let synchronous =
            "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync') LOOP
            PERFORM pg_sleep(0.02); PERFORM pg_stat_clear_snapshot(); END LOOP; END $$";
        self.execute(synchronous);
    }

    /// Stops the primary as a crash does.
    pub fn crash(&self) {
        self.control("stop", self.primary);
    }

    /// Starts the crashed primary again.
    pub fn restart(&self) {
        self.control("start", self.primary);
    }

    /// Promotes the standby of a crashed primary. Commits wait for no standby until the next one follows.
    pub fn promote(&mut self) {
        self.primary = 1 - self.primary;
        self.control("promote", self.primary);
        self.execute("ALTER SYSTEM RESET synchronous_standby_names");
        self.execute("SELECT pg_reload_conf()");
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in 0..2 {
            let mut control = command(self.programs.join("pg_ctl"));
            control.args(["--mode=immediate", "--silent", "-D"]).arg(self.data(server)).arg("stop");
            let _ = control.status();
        }
    }
}
