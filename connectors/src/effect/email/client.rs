//! Speaks SMTP, and says what was seen.

use std::time::Duration;

use lettre::Message;
use lettre::message::header::HeaderName;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;
use oncely_core::cause::chain;
use oncely_core::connector::{Auth, CallRule, SmtpRule, Timeout};
use oncely_core::effect::outcome::Attempt;
use oncely_core::effect::request::EmailRequest;
use oncely_core::key::Key;
use tokio::time::{Instant, timeout, timeout_at};
use url::{Host, Url};

use super::message::message;
use super::outcome::{Phase, Seen, outcome};
use crate::effect::gate::{Gate, ShutOnDrop};
use crate::effect::performer::{Performed, PerformerError};
use crate::effect::record::Record;
use crate::effect::text::Redactor;
use crate::secret::{SecretSource, resolve, values};

/// How long the server may take to say good-bye after it has taken a message.
const QUIT_MS_MAX: u64 = 500;

/// Sends the mails of one effect.
#[derive(Debug)]
pub struct EmailPerformer {
    server: Server,
    credentials: Option<Credentials>,
    /// Some mail servers deduplicate by a header of the message.
    key_header: Option<HeaderName>,
    hello: ClientId,
    timeout: Timeout,
    record: Record,
    redactor: Redactor,
}

#[derive(Debug)]
struct Server {
    host: String,
    port: u16,
    security: Security,
}

enum Security {
    Plain,
    /// TLS from the first byte.
    Tls(TlsParameters),
    /// TLS before anything else is said; without it nothing is sent.
    StartTls(TlsParameters),
}

impl std::fmt::Debug for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain => "Plain",
            Self::Tls(_) => "Tls",
            Self::StartTls(_) => "StartTls",
        })
    }
}

impl EmailPerformer {
    pub(in crate::effect) fn new(
        rule: &CallRule,
        smtp: &SmtpRule,
        secrets: &dyn SecretSource,
    ) -> Result<Self, PerformerError> {
        let server = Server::parse(resolve(&smtp.server, secrets)?.expose())?;
        let (credentials, shown) = match &smtp.auth {
            None => (None, Vec::new()),
            Some(Auth::Basic { user, password: word }) => {
                let (user, password) = (resolve(user, secrets)?, resolve(word, secrets)?);
                let pair = Credentials::new(user.expose().into(), password.expose().into());
                let mut shown = values(word, secrets)?;
                shown.push(password);
                (Some(pair), shown)
            }
            Some(Auth::Bearer(_) | Auth::Header { .. }) => return Err(PerformerError::MailAuth),
        };
        if credentials.is_some() && !server.keeps_secrets() {
            return Err(PerformerError::PlainCredentials);
        }
        let key_header = rule.profile.key_header.as_deref().map(|name| {
            HeaderName::new_from_ascii(name.to_owned())
                .map_err(|_| PerformerError::HeaderName { name: name.to_owned() })
        });
        Ok(Self {
            server,
            credentials,
            key_header: key_header.transpose()?,
            hello: ClientId::default(),
            timeout: rule.timeout,
            record: Record::new(&rule.record)?,
            redactor: Redactor::new(shown),
        })
    }

    /// Sends one mail. See [`crate::effect::performer::Performer::perform`].
    pub async fn perform<F>(&self, key: &Key, request: &EmailRequest, may_send: F) -> Performed
    where
        F: Fn() -> bool + Send + Sync + 'static,
    {
        let gate = Gate::new(may_send);
        if !gate.may_send() {
            return Performed::NotSent;
        }
        let seen = match message(key, request, self.key_header.as_ref()) {
            Ok(message) => self.send(&message, &gate).await,
            Err(error) => Some(Seen::Unsendable { cause: error.to_string() }),
        };
        seen.map_or(Performed::NotSent, |seen| {
            let classified = outcome(&seen, &self.record);
            Performed::Attempted(Attempt {
                outcome: classified.outcome,
                status: classified.code,
                text: self.redactor.text(&classified.text),
            })
        })
    }

    /// `None`: held back by the gate.
    async fn send<F: Fn() -> bool>(&self, message: &Message, gate: &Gate<F>) -> Option<Seen> {
        let _shut = ShutOnDrop(gate);
        let deadline = Duration::from_millis(self.timeout.total_ms);
        let deadline = Instant::now().checked_add(deadline);
        let mut phase = Phase::Connect;
        let speaking = self.speak(message, gate, &mut phase);
        let seen = match deadline {
            Some(deadline) => timeout_at(deadline, speaking).await,
            None => Ok(speaking.await),
        };
        let late = || Some(Seen::Broken { phase, cause: "no answer in time".to_owned() });
        seen.unwrap_or_else(|_| late())
    }

    async fn speak<F: Fn() -> bool>(
        &self,
        message: &Message,
        gate: &Gate<F>,
        phase: &mut Phase,
    ) -> Option<Seen> {
        let mut connection = match self.open(phase).await {
            Ok(connection) => connection,
            Err(seen) => return Some(seen),
        };
        *phase = Phase::Envelope;
        let formatted = message.formatted();
        if let Err(seen) = envelope(&mut connection, message, &formatted).await {
            return Some(seen);
        }
        // The last moment: dropping the connection here ends the transaction without a message.
        if !gate.pass() {
            return None;
        }
        *phase = Phase::Content;
        let answer = connection.message(&formatted).await;
        let seen = match &answer {
            Ok(response) => replied(Phase::Content, response),
            Err(error) => failed(Phase::Content, error),
        };
        if answer.is_ok() {
            // The message is theirs; how they say good-bye changes nothing.
            drop(timeout(Duration::from_millis(QUIT_MS_MAX), connection.quit()).await);
        }
        Some(seen)
    }

    /// Connects, greets, encrypts, logs in.
    async fn open(&self, phase: &mut Phase) -> Result<AsyncSmtpConnection, Seen> {
        let address = (self.server.host.as_str(), self.server.port);
        let connect = Some(Duration::from_millis(self.timeout.connect_ms));
        let tls = match &self.server.security {
            Security::Tls(tls) => Some(tls.clone()),
            Security::Plain | Security::StartTls(_) => None,
        };
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(address, connect, &self.hello, tls, None)
                .await
                .map_err(|error| failed(*phase, &error))?;
        if let Security::StartTls(tls) = &self.server.security {
            if !connection.can_starttls() {
                let cause = "the mail server does not offer STARTTLS".into();
                return Err(Seen::Misconfigured { cause });
            }
            let upgraded = connection.starttls(tls.clone(), &self.hello).await;
            upgraded.map_err(|error| failed(*phase, &error))?;
        }
        if let Some(credentials) = &self.credentials {
            *phase = Phase::Auth;
            let offered = connection.server_info().get_auth_mechanism(DEFAULT_MECHANISMS);
            if offered.is_none() {
                let cause = "the mail server offers no login with user and password".into();
                return Err(Seen::Misconfigured { cause });
            }
            let login = connection.auth(DEFAULT_MECHANISMS, credentials).await;
            login.map_err(|error| failed(Phase::Auth, &error))?;
        }
        Ok(connection)
    }
}

/// MAIL, RCPT for every recipient, DATA. One refused recipient refuses the mail: a second attempt
/// for the others alone would be a mail of its own.
async fn envelope(
    connection: &mut AsyncSmtpConnection,
    message: &Message,
    formatted: &[u8],
) -> Result<(), Seen> {
    let ends = |error: lettre::transport::smtp::Error| failed(Phase::Envelope, &error);
    let envelope = message.envelope();
    let addresses = envelope.from().into_iter().chain(envelope.to());
    let international = addresses.into_iter().any(|address| !address.to_string().is_ascii());
    let mut parameters = Vec::new();
    if international {
        if !connection.server_info().supports_feature(Extension::SmtpUtfEight) {
            let cause = "the mail server takes no addresses beyond ASCII".to_owned();
            return Err(Seen::Unsendable { cause });
        }
        parameters.push(MailParameter::SmtpUtfEight);
    }
    if !formatted.is_ascii() {
        parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    connection.command(Mail::new(envelope.from().cloned(), parameters)).await.map_err(ends)?;
    for recipient in envelope.to() {
        connection.command(Rcpt::new(recipient.clone(), Vec::new())).await.map_err(ends)?;
    }
    let go_on = connection.command(Data).await.map_err(ends)?;
    // Anything else, and the text would be read as commands.
    if go_on.has_code(354) { Ok(()) } else { Err(replied(Phase::Envelope, &go_on)) }
}

fn replied(phase: Phase, response: &Response) -> Seen {
    let text = response.message().collect::<Vec<_>>().join(" ");
    Seen::Answered { phase, code: response.code().into(), text }
}

/// An error with a code is the server's answer; any other is a break.
fn failed(phase: Phase, error: &lettre::transport::smtp::Error) -> Seen {
    let cause = chain(error);
    match error.status() {
        Some(code) => Seen::Answered { phase, code: code.into(), text: cause },
        None => Seen::Broken { phase, cause },
    }
}

// --------------------------------------------------------------------------------------------- //

impl Server {
    fn parse(text: &str) -> Result<Self, PerformerError> {
        let url = Url::parse(text).map_err(|_| PerformerError::MailServer)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(PerformerError::UrlCredentials);
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or(PerformerError::MailServer)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = || TlsParameters::new(host.clone()).map_err(PerformerError::MailTls);
        let (security, port) = match url.scheme() {
            "smtp" => (Security::Plain, 25),
            "smtps" => (Security::Tls(tls()?), 465),
            "smtp+starttls" => (Security::StartTls(tls()?), 587),
            _ => return Err(PerformerError::MailServer),
        };
        Ok(Self { port: url.port().unwrap_or(port), security, host })
    }

    /// Whether a password may go there: encrypted, or not leaving this machine.
    fn keeps_secrets(&self) -> bool {
        match &self.security {
            Security::Tls(_) | Security::StartTls(_) => true,
            Security::Plain => match Host::parse(&self.host) {
                Ok(Host::Domain(name)) => name == "localhost",
                Ok(Host::Ipv4(address)) => address.is_loopback(),
                Ok(Host::Ipv6(address)) => address.is_loopback(),
                Err(_) => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_server_is_read_from_its_url() {
        let parsed = |text| Server::parse(text).map(|server| (server.host.clone(), server.port));
        assert_eq!(parsed("smtp://mail.local").unwrap(), ("mail.local".to_owned(), 25));
        assert_eq!(parsed("smtps://mail.local").unwrap(), ("mail.local".to_owned(), 465));
        assert_eq!(parsed("smtp+starttls://[::1]:2587").unwrap(), ("::1".to_owned(), 2587));
        for bad in ["mail.local", "http://mail.local", "smtp://", "smtp:mail"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(matches!(parsed("smtp://a:b@mail.local"), Err(PerformerError::UrlCredentials)));
    }

    #[test]
    fn s13_a_password_does_not_travel_unencrypted() {
        for (server, keeps) in [
            ("smtp://mail.local", false),
            ("smtp://127.0.0.1:25", true),
            ("smtp://localhost", true),
            ("smtps://mail.local", true),
        ] {
            assert_eq!(Server::parse(server).unwrap().keeps_secrets(), keeps, "{server}");
        }
    }
}
