//! Which addresses a call may go to when the event names the host, or when it is a webhook.
//!
//! Where a connector file writes the host, its author answers for it. Where the host comes out of
//! an event, whoever writes events could aim at our own network; and the endpoint of a webhook is
//! somebody else's, whose name may lead elsewhere tomorrow. Such a call needs `https` on port
//! 443 and a host all of whose addresses are public; the addresses that were checked are the ones
//! that are connected to. The operator may allow further hosts by name.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// The operator's word on where calls may go.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    allowed: Arc<[Box<str>]>,
}

/// Why an address may not be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    #[error("the url is not https")]
    Scheme,
    #[error("the url names port {0}, and that one is not open")]
    Port(u16),
    #[error("the url has credentials in it")]
    Credentials,
    #[error("the url has no host")]
    NoHost,
    #[error("`{host}` leads to an address that is not public")]
    NotPublic { host: String },
}

impl Egress {
    /// `hosts` are `host` (any port and scheme) or `host:port`, and may be called although an event
    /// names them and they are not public.
    pub fn allowing<H: Into<Box<str>>>(hosts: impl IntoIterator<Item = H>) -> Self {
        Self { allowed: hosts.into_iter().map(Into::into).collect() }
    }

    /// The same, and these hosts too.
    #[must_use]
    pub fn and(&self, hosts: &[Box<str>]) -> Self {
        if hosts.is_empty() {
            return self.clone();
        }
        Self::allowing(self.allowed.iter().chain(hosts).cloned())
    }

    /// Checks what can be seen in the url itself; names are checked by [`Egress::resolver`].
    pub(crate) fn check(&self, url: &Url) -> Result<(), EgressError> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EgressError::Credentials);
        }
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(EgressError::NoHost);
        };
        let named = host.to_string();
        if self.allows(&named, Some(port)) {
            return Ok(());
        }
        // Its name is not checked by the resolver any more.
        if self.allows(&named, None) {
            return Err(EgressError::Port(port));
        }
        if url.scheme() != "https" {
            return Err(EgressError::Scheme);
        }
        if port != 443 {
            return Err(EgressError::Port(port));
        }
        let public = match host {
            Host::Domain(_) => true,
            Host::Ipv4(address) => is_public_v4(address),
            Host::Ipv6(address) => is_public_v6(address),
        };
        if public { Ok(()) } else { Err(EgressError::NotPublic { host: host.to_string() }) }
    }

    /// Resolves names once, and refuses a name if any of its addresses is not public.
    pub(super) fn resolver(&self) -> Arc<PublicResolver> {
        Arc::new(PublicResolver { egress: self.clone() })
    }

    /// With a port: exactly that host and port, or the host with any. Without: any of the host's.
    fn allows(&self, host: &str, port: Option<u16>) -> bool {
        self.allowed.iter().any(|allowed| {
            let rest = allowed.strip_prefix(host);
            match (rest, port) {
                (Some(""), _) => true,
                (Some(rest), Some(port)) => {
                    rest.strip_prefix(':').is_some_and(|text| text.parse() == Ok(port))
                }
                (Some(rest), None) => rest.starts_with(':'),
                (None, _) => false,
            }
        })
    }
}

/// See [`Egress::resolver`].
#[derive(Debug)]
pub(super) struct PublicResolver {
    egress: Egress,
}

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        // The port was checked with the url.
        let anywhere = self.egress.allows(&host, None);
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((&*host, 0)).await?.collect();
            if found.is_empty() {
                return Err(io::Error::from(io::ErrorKind::NotFound).into());
            }
            if !anywhere && !found.iter().all(|address| is_public(address.ip())) {
                return Err(EgressError::NotPublic { host }.into());
            }
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// By the IANA registry of special-purpose addresses.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [0 | 10 | 127 | 224..=255, ..] => true,
        [100, second, ..] => (64..128).contains(&second),
        [169, 254, ..] => true,
        [172, second, ..] => (16..32).contains(&second),
        [192, 0, 0 | 2, _] => true,
        [192, 88, 99, _] => true,
        [192, 168, ..] => true,
        [198, 18 | 19, ..] => true,
        [198, 51, 100, _] => true,
        [203, 0, 113, _] => true,
        _ => false,
    };
    !special
}

/// Global unicast only, without the blocks in it that wrap or document other addresses. Mapped
/// addresses and NAT64 lie outside global unicast.
fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0x2001, second, ..] => second >= 0x200 && second != 0xdb8,
        [0x2002, ..] => false,
        [0x3fff, second, ..] => second >= 0x1000,
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(egress: &Egress, url: &str) -> Result<(), EgressError> {
        egress.check(&Url::parse(url).unwrap())
    }

    #[test]
    fn s7_an_event_cannot_aim_at_our_own_network() {
        let egress = Egress::default();
        for host in [
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "[::1]",
            "[::]",
            "[::ffff:10.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[64:ff9b::a00:1]",
            "[fd00::1]",
            "[fe80::1]",
            "[2002:a00:1::]",
            "[2001:db8::1]",
            "[2001::1]",
            "[ff02::1]",
        ] {
            let refused = check(&egress, &format!("https://{host}/hook"));
            assert!(matches!(refused, Err(EgressError::NotPublic { .. })), "{host}: {refused:?}");
        }
        for host in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "[2606:4700::1111]", "example.com"] {
            assert_eq!(check(&egress, &format!("https://{host}/hook")), Ok(()), "{host}");
        }
    }

    #[test]
    fn s7_only_https_on_443_and_no_credentials() {
        let egress = Egress::default();
        assert_eq!(check(&egress, "http://example.com/"), Err(EgressError::Scheme));
        assert_eq!(check(&egress, "https://example.com:22/"), Err(EgressError::Port(22)));
        assert_eq!(check(&egress, "https://a:b@example.com/"), Err(EgressError::Credentials));
    }

    #[test]
    fn the_operator_may_allow_a_host() {
        let egress = Egress::allowing(["hooks.local", "10.0.0.7:8080", "[::1]:9"]);
        for open in ["http://hooks.local:81/", "http://10.0.0.7:8080/", "http://[::1]:9/"] {
            assert_eq!(check(&egress, open), Ok(()), "{open}");
        }
        let of_port = Egress::allowing(["hooks.local:8080"]);
        for shut in ["https://hooks.local/", "http://hooks.local:81/"] {
            assert!(matches!(check(&of_port, shut), Err(EgressError::Port(_))), "{shut}");
        }
        for shut in
            ["http://10.0.0.7:8081/", "http://hooks.local.evil.com/", "http://10.0.0.70:8080/"]
        {
            assert!(check(&egress, shut).is_err(), "{shut}");
        }
    }

    #[tokio::test]
    async fn s7_a_name_that_leads_inside_is_refused() {
        let resolve = |egress: Egress| async move {
            egress.resolver().resolve("localhost".parse().unwrap()).await.map(|found| found.count())
        };
        let refused = resolve(Egress::default()).await.unwrap_err();
        assert!(refused.downcast_ref::<EgressError>().is_some(), "{refused:?}");
        assert!(resolve(Egress::allowing(["localhost:9"])).await.unwrap() > 0);
    }
}
