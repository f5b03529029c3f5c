//! Tests of written mails: thread headers, and text that tries to add headers. The servers are in `tests/slow/mail.rs`.

use super::super::MailSettings;
use super::*;

fn settings() -> MailSettings {
    MailSettings {
        user: None,
        from: "ralph-bot <ralph@example.org>".into(),
        to: vec!["Mira <mira@example.org>".into(), "b@example.org".into()],
        starttls: false,
        ca: Vec::new(),
    }
}

fn mailer(outbound: OutboundFilter) -> Channel {
    let settings = ChannelSettings {
        name: "post".into(),
        kind: ChannelKind::Mail,
        url: "smtp://127.0.0.1:1".to_owned().into(),
        secret: None,
        levels: vec![EscalationLevel::Critical],
        allow_private: true,
        room: None,
        mail: Some(settings()),
    };
    Channel::new(settings, outbound).expect("a channel")
}

fn written(outbound: OutboundFilter, notice: &Notice, posted: Option<&PostedMessage>) -> String {
    let channel = mailer(outbound);
    let mail = channel.mail.as_ref().expect("mail");
    let message = channel.mail_message(mail, sending(notice, posted), "<d-1@example.org>", NOW).expect("a message");
    String::from_utf8(message.formatted()).expect("text")
}

/// Unfolded headers of a mail, and the remaining text.
fn parts(mail: &str) -> (Vec<String>, String) {
    let (head, body) = mail.split_once("\r\n\r\n").expect("a body");
    (head.replace("\r\n ", " ").lines().map(str::to_owned).collect(), body.to_owned())
}

#[test]
fn first_mail_starts_a_thread_and_later_mails_reply_to_it() {
    let (headers, body) = parts(&written(OutboundFilter::default(), &notice(), None));
    for header in [
        "From: ralph-bot <ralph@example.org>",
        "To: Mira <mira@example.org>, b@example.org",
        "Message-ID: <d-1@example.org>",
        "Auto-Submitted: auto-generated",
        "Date: Mon, 21 Sep 2026 14:13:20 +0000",
        "Subject: [ralph-bot] Decision needed on mira/app#42: all 10 iterations are used",
        "MIME-Version: 1.0",
    ] {
        assert!(headers.iter().any(|line| line == header), "{header} is missing: {headers:#?}");
    }
    assert!(!headers.iter().any(|line| line.starts_with("In-Reply-To") || line.starts_with("References")));
    assert!(
        body.contains("text/plain") && body.contains("text/html") && body.contains("iterations are used"),
        "{body}"
    );
    let first = PostedMessage {
        place: String::new(),
        id: "<d-0@example.org>".into(),
        level: EscalationLevel::Critical,
        occasion: Occasion::Raised,
    };
    let (headers, _) = parts(&written(OutboundFilter::default(), &notice(), Some(&first)));
    for header in [
        "In-Reply-To: <d-0@example.org>",
        "References: <d-0@example.org>",
        "Subject: Re: [ralph-bot] Decision needed on mira/app#42: all 10 iterations are used",
    ] {
        assert!(headers.iter().any(|line| line == header), "{header} is missing: {headers:#?}");
    }
}

/// See docs/research/threats.md#i11.
#[test]
fn foreign_text_adds_no_header_and_no_recipient() {
    let evil = "x\r\nBcc: evil@example.net\r\n\r\n.\r\nMAIL FROM:<evil@example.net>\u{2028}\u{85}y\u{0}";
    let notice = Notice {
        title: evil.into(),
        what_happened: evil.into(),
        repo: crate::domain::model::ids::RepoRef { owner: evil.into(), ..notice().repo },
        evidence: vec![evil.into()],
        ..notice()
    };
    let (headers, body) = parts(&written(OutboundFilter::default(), &notice, None));
    let names: Vec<_> = headers.iter().filter_map(|line| line.split(':').next()).collect();
    let known = ["From", "Date", "Message-ID", "Auto-Submitted", "To", "Subject", "MIME-Version", "Content-Type"];
    assert!(names.iter().all(|name| known.contains(name)), "{headers:#?}");
    assert!(!body.lines().any(|line| line.starts_with("Bcc:") || line == "."), "{body}");
}

#[test]
fn secrets_are_masked_in_mail() {
    let outbound = OutboundFilter::default();
    outbound.learn("KEY", &SecretString::from("hunter2hunter2hunter2"));
    let notice = Notice {
        title: "key hunter2hunter2hunter2".into(),
        evidence: vec!["printed hunter2hunter2hunter2".into()],
        ..notice()
    };
    let mail = written(outbound, &notice, None).replace("=\r\n", "");
    assert!(!mail.contains("hunter2") && mail.contains("printed"), "{mail}");
}

#[tokio::test]
async fn mail_to_an_unreachable_server_is_retried() {
    let outcome = send(&mailer(OutboundFilter::default())).await;
    assert!(matches!(outcome, SendOutcome::Retry { .. }), "{outcome:?}");
    let mut private = mailer(OutboundFilter::default());
    private.allow_private = false;
    let outcome = send(&private).await;
    assert!(matches!(&outcome, SendOutcome::Rejected { why } if why.contains("not public")), "{outcome:?}");
}
