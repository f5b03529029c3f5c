//! Mail over SMTP, with one connection per message to a checked address. Notices about a loop form a thread.

use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use lettre::address::Envelope;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message, MultiPart};
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{Channel, MailSettings, NoticeDelivery, SendOutcome};
use crate::domain::model::error_chain::error_chain;
use crate::domain::model::ids::Timestamp;

/// Time limit of one SMTP command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);
/// Status of an accepted message.
const ACCEPTED: u16 = 250;

/// Sender of mail.
pub(super) struct Mail {
    user: Option<String>,
    from: Mailbox,
    to: Vec<Mailbox>,
    port: u16,
    tls: Tls,
    credentials: Option<Credentials>,
}

impl Mail {
    /// Creates a sender for a server such as `smtps://mail.example.org`.
    ///
    /// # Errors
    /// A sentence: an address is malformed, or the certificates cannot be used.
    pub(super) fn new(settings: MailSettings, url: &Url, password: Option<&SecretString>) -> Result<Self, Failure> {
        let mailbox =
            |text: &String| text.parse::<Mailbox>().map_err(|error| Failure::new(format!("`{text}`")).caused_by(error));
        let from = mailbox(&settings.from)?;
        let to = settings.to.iter().map(mailbox).collect::<Result<Vec<_>, _>>()?;
        let implicit = url.scheme() == "smtps";
        let parameters = || {
            let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let mut builder = TlsParameters::builder(host);
            if !settings.ca.is_empty() {
                let certificate =
                    Certificate::from_pem(&settings.ca).map_err(|error| Failure::new("`ca_file`").caused_by(error))?;
                builder = builder.add_root_certificate(certificate);
            }
            builder.build_rustls().map_err(Failure::of)
        };
        let tls = match (implicit, settings.starttls) {
            (true, _) => Tls::Wrapper(parameters()?),
            (false, true) => Tls::Required(parameters()?),
            (false, false) => Tls::None,
        };
        let credentials = settings.user.as_ref().zip(password);
        let credentials =
            credentials.map(|(user, password)| Credentials::new(user.clone(), password.expose_secret().to_owned()));
        let port = url.port().unwrap_or(if implicit { 465 } else { 587 });
        Ok(Self { user: settings.user, from, to, port, tls, credentials })
    }

    /// Returns a transport to one address of the server.
    fn transport(&self, address: IpAddr) -> AsyncSmtpTransport<Tokio1Executor> {
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(address.to_string())
            .port(self.port)
            .tls(self.tls.clone())
            .hello_name(ClientId::Domain(self.from.email.domain().to_owned()))
            .timeout(Some(COMMAND_TIMEOUT));
        if let Some(credentials) = &self.credentials {
            builder = builder.credentials(credentials.clone());
        }
        builder.build()
    }

    /// Returns an id unique to `name`.
    fn message_id(&self, name: &str) -> String {
        format!("<{name}@{}>", self.from.email.domain())
    }

    fn envelope(&self, to: &[Mailbox]) -> Result<Envelope, lettre::error::Error> {
        Envelope::new(Some(self.from.email.clone()), to.iter().map(|mailbox| mailbox.email.clone()).collect())
    }
}

impl Channel {
    pub(super) async fn post_mail(
        &self,
        sending: NoticeDelivery<'_>,
        now: Timestamp,
    ) -> Result<SendOutcome, SendOutcome> {
        let rejected = |why: &str| SendOutcome::Rejected { why: why.to_owned() };
        let Some(mail) = &self.mail else { return Err(rejected("mail is not configured")) };
        let id = mail.message_id(sending.delivery);
        let message = self.mail_message(mail, sending, &id, now).map_err(|error| rejected(&error_chain(&error)))?;
        let bytes = message.formatted();
        let addresses = self.mail_addresses().await?;
        let all = &mail.to;
        let posted = sending.posted.is_none().then(|| self.shown(sending.notice, id));
        let sent = |how: String| SendOutcome::Delivered { status: ACCEPTED, how, posted: posted.clone() };
        let error = match self.transmit(mail, &addresses, all, &bytes).await {
            Ok(()) => return Ok(sent(String::new())),
            Err(error) => error,
        };
        if !error.is_permanent() || all.len() == 1 {
            return Err(self.mail_failure(&error));
        }
        // A nonexistent recipient must not prevent the others from receiving the notice.
        let (mut refused, mut last) = (Vec::new(), error);
        for one in all {
            if let Err(error) = self.transmit(mail, &addresses, std::slice::from_ref(one), &bytes).await {
                refused.push(format!("{}: {}", one.email, self.masked(&error_chain(&error))));
                // A permanent rejection of one recipient does not end the attempts for a postponed one.
                if last.is_permanent() {
                    last = error;
                }
            }
        }
        if refused.len() == all.len() {
            return Err(self.mail_failure(&last));
        }
        tracing::warn!(channel = self.name(), refused = refused.join("; "), "recipients were refused");
        Ok(sent(if refused.is_empty() { String::new() } else { format!("refused: {}", refused.join("; ")) }))
    }

    pub(super) fn mail_message(
        &self,
        mail: &Mail,
        sending: NoticeDelivery<'_>,
        id: &str,
        now: Timestamp,
    ) -> Result<Message, lettre::error::Error> {
        let body = self.message(sending.notice, sending).into_value();
        let part = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let mut subject: String = part("subject").chars().filter(|c| !c.is_control()).collect();
        let seconds = u64::try_from(now.0.div_euclid(1_000)).unwrap_or_default();
        let mut builder = Message::builder()
            .from(mail.from.clone())
            .date(UNIX_EPOCH + Duration::from_secs(seconds))
            .message_id(Some(id.to_owned()))
            .raw_header(HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".into()));
        for to in &mail.to {
            builder = builder.to(to.clone());
        }
        if let Some(first) = sending.posted.filter(|first| first.id != id) {
            // Some programs build threads from subjects.
            subject = format!("Re: {}", subject.replacen("Reminder: ", "", 1));
            builder = builder.in_reply_to(first.id.clone()).references(first.id.clone());
        }
        builder.subject(subject).multipart(MultiPart::alternative_plain_html(part("text"), part("html")))
    }

    /// Sends a message to recipients through the first address that accepts the connection.
    async fn transmit(&self, mail: &Mail, addresses: &[IpAddr], to: &[Mailbox], bytes: &[u8]) -> Result<(), SmtpError> {
        let Ok(envelope) = mail.envelope(to) else { return Ok(()) };
        let (last, before) =
            addresses.split_last().map_or((None, [].as_slice()), |(last, before)| (Some(last), before));
        for address in before {
            match mail.transport(*address).send_raw(&envelope, bytes).await {
                Err(error) if did_not_connect(&error) => {}
                other => return other.map(drop),
            }
        }
        match last {
            Some(address) => mail.transport(*address).send_raw(&envelope, bytes).await.map(drop),
            None => Ok(()),
        }
    }

    async fn mail_addresses(&self) -> Result<Vec<IpAddr>, SendOutcome> {
        self.addresses().await.map_err(|failure| match failure.to_string() {
            why if why.starts_with("refused") => SendOutcome::Rejected { why },
            why => SendOutcome::Retry { after_ms: None, why },
        })
    }

    /// Connects, starts TLS, logs in, and disconnects.
    pub(super) async fn probe_mail(&self) -> Result<String, SendOutcome> {
        let Some(mail) = &self.mail else { return Ok(String::new()) };
        let addresses = self.mail_addresses().await?;
        let Some(address) = addresses.first() else { return Ok(String::new()) };
        mail.transport(*address).test_connection().await.map_err(|error| self.mail_failure(&error))?;
        let login = mail.user.as_ref().map_or("no login".to_owned(), |user| format!("logged in as `{user}`"));
        let to: Vec<_> = mail.to.iter().map(|mailbox| mailbox.email.to_string()).collect();
        Ok(format!("{login}, to {}", to.join(", ")))
    }

    /// Returns the outcome of an error. A permanent rejection by the server is not retried.
    fn mail_failure(&self, error: &SmtpError) -> SendOutcome {
        let said = self.masked(&error_chain(error));
        let why: String = super::one_line(&said).chars().take(super::DETAIL_CHARS).collect();
        if error.is_permanent() || error.is_client() {
            SendOutcome::Rejected { why }
        } else {
            SendOutcome::Retry { after_ms: None, why }
        }
    }
}

/// Whether an error occurred before the server responded.
fn did_not_connect(error: &SmtpError) -> bool {
    let said = error.status().is_some() || error.is_response() || error.is_transient() || error.is_permanent();
    !said && !error.is_tls() && !error.is_client()
}
