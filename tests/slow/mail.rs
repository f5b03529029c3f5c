//! Mail to a real SMTP server (aiosmtpd): TLS, login, recipients that are refused, threads, and the command that tests channels.

use std::path::PathBuf;
use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;
use test_support::free_port;
use tokio::process::Child;

use crate::harness::parts::{certificates, command, python_part};
use crate::harness::{SECRET, Setup, World, on_one_forge, story};

on_one_forge!(notices_are_sent_by_mail_as_a_thread,);

/// Server that stores each mail as a file, with the session's facts before it. `answer` in its folder is the answer to the
/// next mails; recipients `gone@…` do not exist.
const SERVER: &str = r#"
import asyncio, pathlib, ssl, sys, time
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
folder, port, mode, password = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("gone@"):
            return "550 5.1.1 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"
    async def handle_DATA(self, server, session, envelope):
        answer = folder / "answer"
        if answer.exists():
            return answer.read_text()
        tls = server.transport.get_extra_info("ssl_object") is not None
        facts = f"tls={tls} login={bool(session.authenticated)} from={envelope.mail_from} to={','.join(envelope.rcpt_tos)}\r\n"
        draft = folder / "draft"
        draft.write_bytes(facts.encode() + envelope.content)
        draft.rename(folder / f"{mode}-{time.monotonic_ns()}.eml")
        return "250 OK"
def check(server, session, envelope, mechanism, data):
    good = isinstance(data, LoginPassword) and data.login == b"ralph" and data.password == password.encode()
    return AuthResult(success=good, handled=good)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
settings = dict(hostname="127.0.0.1", port=port, ready_timeout=30)
if mode == "starttls":
    settings |= dict(tls_context=context, require_starttls=True, authenticator=check, auth_required=True)
else:
    settings |= dict(ssl_context=context)
controller = Controller(Handler(), **settings)
controller.start()
(folder / f"{mode}.ready").touch()
while True:
    time.sleep(3600)
"#;

struct MailServer {
    folder: tempfile::TempDir,
    ports: [u16; 2],
    _processes: Vec<Child>,
}

impl MailServer {
    /// Starts servers with STARTTLS and login, and with TLS from the start; `None` if a part is missing, which is reported.
    async fn start() -> Option<Self> {
        let python = python_part("aiosmtpd==1.4.6")?;
        let folder = tempfile::tempdir().expect("a folder");
        certificates(folder.path()).await?;
        let ports = [free_port(), free_port()];
        let mut processes = Vec::new();
        for (mode, port) in ["starttls", "tls"].iter().zip(ports) {
            let mut server = command(python.program("python3"));
            server.arg("-c").arg(SERVER).arg(folder.path()).arg(port.to_string()).arg(mode).arg(SECRET);
            processes.push(server.spawn().expect("the server starts"));
            let ready = async {
                while !folder.path().join(format!("{mode}.ready")).exists() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), ready).await.expect("the server listens");
        }
        Some(Self { folder, ports, _processes: processes })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Mails of one server, oldest first.
    fn mails(&self, mode: &str) -> Vec<String> {
        let mut files: Vec<_> = std::fs::read_dir(self.folder.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "eml"))
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{mode}-"))))
            .collect();
        files.sort();
        files.iter().map(|file| std::fs::read_to_string(file).expect("text").replace("\r\n", "\n")).collect()
    }
}

/// Value of a header; empty without one.
fn header<'m>(mail: &'m str, name: &str) -> &'m str {
    let head = mail.split_once("\n\n").map_or(mail, |(head, _)| head);
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default()
}

/// State and receipt of the notices to a channel.
async fn receipts(world: &World, channel: &str) -> Vec<(String, String)> {
    let all = world.receipts().await.into_iter().filter(|row| row.key.starts_with(&format!("notify/{channel}/")));
    all.map(|row| (row.state, row.receipt.unwrap_or_default())).collect()
}

async fn notices_are_sent_by_mail_as_a_thread(dialect: Dialect) {
    let Some(server) = MailServer::start().await else { return };
    let [starttls, tls] = server.ports;
    std::fs::write(server.path("wrong"), "another password").expect("written");
    let folder = server.folder.path().display();
    let to = "from: 'ralph-bot <ralph@example.org>', allow_private: true";
    let ca = format!("ca_file: '{folder}/ca.pem'");
    let channels = [
        format!(
            "{{ name: post, kind: mail, url: 'smtp://localhost:{starttls}', user: ralph, secret_env: SECRET, to: [team@example.org, gone@example.org], {to}, {ca} }}"
        ),
        format!("{{ name: safe, kind: mail, url: 'smtps://localhost:{tls}', to: [safe@example.org], {to}, {ca} }}"),
        format!(
            "{{ name: wrong, kind: mail, url: 'smtp://localhost:{starttls}', user: ralph, secret_file: '{folder}/wrong', to: [team@example.org], {to}, {ca} }}"
        ),
        format!("{{ name: strange, kind: mail, url: 'smtps://localhost:{tls}', to: [strange@example.org], {to} }}"),
        format!("{{ name: nobody, kind: mail, url: 'smtps://localhost:{tls}', to: [gone@example.org], {to}, {ca} }}"),
    ];
    let setup = Setup::new(dialect)
        .agent("if [ $RALPH_ITERATION -ge 3 ]; then echo 42 >answer.txt; else echo $RALPH_ITERATION >answer.txt; fi\n")
        .config("limits: { iterations: 2, comments_per_hour: 1000, comments_per_day: 1000 }")
        .config(&format!("escalation: {{ channels: [{}] }}", channels.join(", ")));
    story(setup, async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.state, LoopState::LimitReached, "{}", stopped.why);
        let settled = async |channel: &str| {
            for _ in 0..20 {
                if receipts(world, channel).await.iter().all(|(state, _)| state != "ready") {
                    break;
                }
                world.advance(Duration::from_secs(30)).await;
            }
            receipts(world, channel).await
        };
        let [(state, receipt)] = &settled("post").await[..] else { panic!("one notice") };
        assert!(state == "done" && receipt.contains("SMTP 250, refused: gone@example.org"), "{state}: {receipt}");
        let [(state, receipt)] = &settled("safe").await[..] else { panic!("one notice") };
        assert!(state == "done" && receipt.starts_with("SMTP 250"), "{state}: {receipt}");
        let [(state, receipt)] = &settled("wrong").await[..] else { panic!("one notice") };
        assert!(state == "rejected" && receipt.contains("535") && !receipt.contains("another"), "{state}: {receipt}");
        let [(state, receipt)] = &settled("nobody").await[..] else { panic!("one notice") };
        assert!(state == "rejected" && receipt.contains("no such user"), "{state}: {receipt}");
        // A certificate of an authority that is not trusted: nothing is sent.
        let [(state, receipt)] = &receipts(world, "strange").await[..] else { panic!("one notice") };
        assert!(state == "ready" && receipt.to_lowercase().contains("certificate"), "{state}: {receipt}");

        let [first] = &server.mails("starttls")[..] else { panic!("one mail: {:?}", server.mails("starttls")) };
        assert!(first.starts_with("tls=True login=True from=ralph@example.org to=team@example.org\n"), "{first}");
        assert!(first.contains("needs a decision") && first.contains("text/html"), "{first}");
        let id = header(first, "Message-ID");
        assert!(id.ends_with("@example.org>") && header(first, "In-Reply-To").is_empty(), "{first}");
        let [safe] = &server.mails("tls")[..] else { panic!("one mail") };
        assert!(safe.starts_with("tls=True login=False from=ralph@example.org to=safe@example.org\n"), "{safe}");

        // A reminder that is put off by the server arrives later, once, as an answer to the first mail.
        std::fs::write(server.path("answer"), "451 4.3.0 try again later").expect("written");
        world.advance(Duration::from_secs(24 * 3600)).await;
        let put_off = receipts(world, "post").await;
        let waits = |(state, receipt): &(String, String)| state == "ready" && receipt.contains("try again");
        assert!(put_off.iter().any(waits), "{put_off:?}");
        std::fs::remove_file(server.path("answer")).expect("removed");
        world.advance(Duration::from_secs(60)).await;
        settled("post").await;
        let [_, reminder] = &server.mails("starttls")[..] else { panic!("two mails: {:?}", server.mails("starttls")) };
        assert_eq!((header(reminder, "In-Reply-To"), header(reminder, "References")), (id, id));
        assert_eq!(header(reminder, "Subject"), format!("Re: {}", header(first, "Subject")));
        assert!(
            reminder.contains("Reminder: ralph needs a decision") && header(reminder, "Message-ID") != id,
            "{reminder}"
        );

        commands_test_the_channels(world, &server).await;
        world.comment("/ralph abort").await;
        world.settle().await;
        assert_eq!(server.mails("starttls").len(), 3, "the end of a loop is no mail");
    })
    .await;
}

/// `check` logs in and sends nothing; `channels test` sends.
async fn commands_test_the_channels(world: &World, server: &MailServer) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ralph-control.yaml");
    std::fs::write(&file, world.config_text("127.0.0.1:0", false)).expect("written");
    let run = async |arguments: &[&str]| {
        let mut program = command(env!("CARGO_BIN_EXE_ralph-bot"));
        program.arg("--config").arg(&file).args(arguments).env_clear().envs(world.environment());
        let output = program.output().await.expect("the binary starts");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let before = server.mails("starttls").len();
    let (_, said) = run(&["check"]).await;
    let line =
        |name: &str| said.lines().find(|line| line.contains(&format!("channel {name}"))).unwrap_or_default().to_owned();
    assert!(line("post").contains("logged in as `ralph`"), "{said}");
    assert!(line("wrong").contains("535") && line("strange").to_lowercase().contains("certificate"), "{said}");
    assert_eq!(server.mails("starttls").len(), before, "`check` sent something");
    let (code, said) = run(&["channels", "test", "post"]).await;
    assert!(code == Some(0) && said.contains("ok   post: delivered to localhost"), "{said}");
    assert!(server.mails("starttls").last().is_some_and(|mail| mail.contains("An operator tests this channel")));
    let (code, said) = run(&["channels", "test", "wrong", "--json"]).await;
    assert!(code == Some(1) && said.contains("\"delivered\":false") && !said.contains(SECRET), "{said}");
    let (code, _) = run(&["channels", "test", "pots"]).await;
    assert_eq!(code, Some(2), "an unknown channel");
    let (_, said) = run(&["channels"]).await;
    assert!(said.contains("info, critical, emergency"), "{said}");
}
