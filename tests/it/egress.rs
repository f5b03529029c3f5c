//! Network access of a program in a sandbox: only the listed hosts are reachable, tried with real sockets.

use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::HeaderMap;
use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::trust::egress::Hosts;
use ralph_bot::process::sandbox::{Network, SandboxView, ScratchHome};
use ralph_bot::process::{
    self, EgressSettings, Finished, ProcessEnd, ProcessLimits, ProcessSpec, RefusedHosts, Sandbox, SandboxTier,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

use crate::harness::{Setup, on_one_forge, sandbox, story};

on_one_forge!(agent_reaches_only_listed_hosts, agent_reaches_its_model_without_the_key,);

/// Server that answers every connection with a word and closes it.
async fn server(word: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = client.read(&mut request).await;
            let length = word.len();
            let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{word}");
            let _ = client.write_all(answer.as_bytes()).await;
        }
    });
    address
}

/// Runs a bash script in a sandbox with access to these hosts; `None` if this machine has no sandbox.
async fn run(hosts: &[&str], script: &str) -> Option<Finished> {
    if sandbox().await.tier != SandboxTier::A {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut spec = ProcessSpec::new("/bin/bash", folder.path()).args(["-c", script]).env("PATH", "/usr/bin:/bin");
    spec.sandbox = Sandbox::of(SandboxView {
        writable: vec![folder.path().to_owned()],
        home: ScratchHome::Memory,
        network: Network::Only(EgressSettings {
            hosts: Hosts::parse(hosts).expect("hosts"),
            helper: PathBuf::from(env!("CARGO_BIN_EXE_ralph-bot")),
            refused: RefusedHosts::default(),
        }),
        ..SandboxView::default()
    });
    spec.limits = ProcessLimits { wall: Duration::from_secs(60), ..ProcessLimits::default() };
    Some(process::run(spec, &CancellationToken::new(), None).await.expect("it runs"))
}

/// Shell functions of the scripts: `ask PORT REQUEST` prints the answer of a loopback port.
const ASK: &str = r#"ask() { exec 9<>/dev/tcp/127.0.0.1/$1 && printf "$2" >&9 && timeout 20 cat <&9; echo; exec 9<&-; }
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listed_hosts_are_reached_by_proxy_and_loopback() {
    let (by_address, by_name) = (server("by address").await, server("by name").await);
    let listed = [by_address.to_string(), format!("localhost:{}", by_name.port())];
    let (one, other) = (by_address.port(), by_name.port());
    let script = format!(
        r#"{ASK}
        ask 3128 'CONNECT 127.0.0.1:{one} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n'
        ask 3128 'GET http://LOCALHOST:{other}/a HTTP/1.1\r\nHost: x\r\n\r\n'
        ask {one} 'GET / HTTP/1.1\r\n\r\n'
        echo "$HTTPS_PROXY $NO_PROXY"; ls /proc/self/fd | tr '\n' ,; exit 7"#
    );
    let Some(finished) = run(&listed.each_ref().map(String::as_str), &script).await else { return };
    let output = finished.stdout.text();
    assert_eq!(finished.ended, ProcessEnd::Exited(7), "{output}{}", finished.stderr.text());
    assert_eq!(output.matches("by address").count(), 2, "{output}");
    assert_eq!(output.matches("by name").count(), 1, "{output}");
    assert!(output.contains("200 Connection established"), "{output}");
    assert!(output.contains("http://127.0.0.1:3128 localhost,127.0.0.1,::1"), "{output}");
    assert!(output.ends_with("0,1,2,3,"), "the command inherited file descriptors: {output}");
}

/// Attempts of a malicious program to reach other hosts.
/// See docs/research/threats.md#s5 and docs/research/threats.md#s6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unlisted_hosts_are_unreachable() {
    let (listed, other) = (server("listed").await, server("not for you").await);
    let heard = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let (port, udp) = (other.port(), heard.local_addr().expect("an address").port());
    let name = format!("ralph-{port}");
    let abstract_name = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
    let outside = UnixListener::bind_addr(&abstract_name).expect("a socket");
    let targets = [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("0x7f.1:{port}"),
        format!("2130706433:{port}"),
        format!("[::1]:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("127.0.0.1:{}", listed.port() ^ 1),
        "169.254.169.254:80".into(),
        "10.0.0.1:443".into(),
        "192.168.1.1:80".into(),
        "8.8.8.8:53".into(),
        "github.com:443".into(),
        "gist.github.com:443".into(),
        "evil.example:443".into(),
        "example.org:22".into(),
        "local.example.org:443".into(),
        "example.org.evil.example:443".into(),
        "metadata.google.internal:80".into(),
    ];
    let mut script = ASK.to_owned();
    for target in &targets {
        script.push_str(&format!("ask 3128 'CONNECT {target} HTTP/1.1\\r\\n\\r\\n'\n"));
        script.push_str(&format!("ask 3128 'GET http://{target}/ HTTP/1.1\\r\\n\\r\\n'\n"));
    }
    script.push_str(&format!(
        "(: </dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo direct\n\
         (echo x >/dev/udp/127.0.0.1/{udp}) 2>/dev/null\n\
         (: </dev/tcp/1.1.1.1/443) 2>/dev/null && echo direct\n\
         (echo x >/dev/udp/8.8.8.8/53) 2>/dev/null && echo datagram\n\
         grep -q '@{name}' /proc/net/unix && echo abstract\n\
         grep -v -e lo: -e '|' /proc/net/dev | sed 's/^/interface /'\n\
         timeout 5 getent hosts example.org && echo resolved\n\
         echo end"
    ));
    let Some(finished) = run(&[&listed.to_string(), "example.org"], &script).await else { return };
    let output = finished.stdout.text();
    assert!(output.trim_end().ends_with("end"), "{output}{}", finished.stderr.text());
    for word in ["not for you", "direct", "datagram", "abstract", "interface", "resolved", "200 Connection"] {
        assert!(!output.contains(word), "{word}: {output}");
    }
    let refused = output.matches("HTTP/1.1 403 Forbidden").count();
    assert_eq!(refused, 2 * targets.len(), "{output}");
    assert!(output.contains("github.com:443 is not allowed: it is not on the list"), "{output}");
    let mut word = [0; 8];
    let nothing = tokio::time::timeout(Duration::from_millis(50), heard.recv(&mut word)).await;
    assert!(nothing.is_err(), "a datagram came through");
    drop(outside);
}

/// The helper reports why it cannot start, and malformed requests do not affect others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_proxy_requests_are_rejected_and_isolated() {
    let good = server("still here").await;
    let port = good.port();
    let script = format!(
        r#"{ASK}
        ask 3128 'GET / HTTP/1.1\r\n\r\n'
        ask 3128 '\x16\x03\x01\x02\r\n\r\n'
        ask 3128 "CONNECT $(head -c 40000 /dev/zero | tr '\0' a):443 HTTP/1.1\r\n\r\n"
        for n in $(seq 300); do exec {{fd}}<>/dev/tcp/127.0.0.1/3128; done 2>/dev/null
        ask {port} 'GET / HTTP/1.1\r\n\r\n'"#
    );
    let Some(finished) = run(&[&good.to_string()], &script).await else { return };
    let output = finished.stdout.text();
    assert_eq!(output.matches("400 Bad Request").count(), 3, "{output}");
    assert!(output.contains("ralph-bot: this is a proxy") && output.contains("too long"), "{output}");
    assert!(output.contains("still here"), "{output}");
}

/// Complete path from the operator's file.
async fn agent_reaches_only_listed_hosts(dialect: Dialect) {
    let (listed, other) = (server("42").await, server("not for you").await);
    let agent = format!(
        "cat >fetch.sh <<'END'\n{ASK}ask 3128 'CONNECT registry.example:443 HTTP/1.1\\r\\n\\r\\n' >/dev/null\n\
         ask $1 'GET / HTTP/1.1\\r\\n\\r\\n' | tail -n 1 | tr -d '\\r'\nEND\n\
         bash fetch.sh {} >answer.txt\nbash fetch.sh {} >other.txt 2>&1\nrm fetch.sh\n",
        listed.port(),
        other.port()
    );
    let mut setup = Setup::new(dialect).isolated().agent(&agent);
    setup.network = format!("['{listed}']");
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
        let tried = world.file(&done.branch.name, "other.txt").await.expect("what came of it");
        assert!(tried.contains("refused") && !tried.contains("not for you"), "{tried}");
        let comments = world.bot_comments().join("\n");
        assert!(comments.contains("network: listed hosts only"), "{comments}");
        assert!(
            comments.contains("🔒 Network access blocked: `registry.example:443`. Allow hosts in `sandbox.network`."),
            "{comments}"
        );
    })
    .await;
}

/// Complete path from the operator's file. The agent sends everything that it has to its model.
/// See docs/research/threats.md#s4.
async fn agent_reaches_its_model_without_the_key(dialect: Dialect) {
    const KEY: &str = "sk-a-key-of-the-operator-s";
    let requests: Arc<Mutex<Vec<(HeaderMap, String)>>> = Arc::default();
    let heard = requests.clone();
    let model = axum::Router::new().fallback(async move |headers: HeaderMap, body: String| {
        heard.lock().expect("no panic").push((headers, body));
        "you should write 42"
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, model).await.expect("it serves") });
    let agent = r#"bash -c '
        at=${MY_URL#http://} everything=$(env | base64 -w 0)
        body="{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"$everything\"}]}"
        exec 9<>/dev/tcp/${at%%:*}/$(echo ${at#*:} | cut -d/ -f1)
        printf "POST /v1/chat/completions HTTP/1.1\r\nHost: ${at%%/*}\r\nConnection: close\r\nAuthorization: Bearer $MY_KEY\r\n" >&9
        printf "Content-Type: application/json\r\nContent-Length: ${#body}\r\n\r\n%s" "$body" >&9
        tail -n 1 <&9 | grep -o 42 >answer.txt'
    "#;
    let mut setup = Setup::new(dialect).isolated().agent(agent);
    setup.network = "[]".into();
    setup.backend = ", env: [MY_KEY, MY_URL], keys: { MY_KEY: MY_URL }".into();
    setup.env = vec![("MY_KEY", KEY.into()), ("MY_URL", url.clone())];
    if sandbox().await.tier != SandboxTier::A {
        setup.network = "all".into();
    }
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{:?}", world.bot_comments());
        let (headers, sent) = requests.lock().expect("no panic").pop().expect("the model was asked");
        let sent: serde_json::Value = serde_json::from_str(&sent).expect("a request");
        let had = sent["messages"][0]["content"].as_str().expect("a text").as_bytes();
        let had = String::from_utf8(data_encoding::BASE64.decode(had).expect("base64")).expect("text");
        assert_eq!(headers["authorization"], format!("Bearer {KEY}"));
        assert!(had.contains("RALPH_ITERATION=1") && !had.contains(KEY) && !had.contains(&url), "{had}");
        // Its former access no longer works.
        let value = |name: &str| had.lines().find_map(|line| line.strip_prefix(name)).expect("it is set").to_owned();
        let (at, token) = (value("MY_URL="), value("MY_KEY="));
        let later = reqwest::Client::new().get(format!("{at}/models")).bearer_auth(token).send().await;
        assert!(later.is_err_and(|error| error.is_connect()), "it ended with its run");
    })
    .await;
}
