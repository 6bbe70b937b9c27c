//! One effect as it is written, whatever its type.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::read::{Entries, Field, Later};
use super::super::words::{Backoff, Millis, OneOrMany, PerTime, Window};
use super::{RawChat, RawCompensate, RawLookup, RawMessage, RawTree};

/// One outside action.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Effect")]
pub(crate) struct RawEffect {
    /// Name of the effect: lower-case letters, digits and underscores.
    #[schemars(regex(pattern = r"^[a-z][a-z0-9_]{0,62}$"))]
    pub(crate) id: Field<String>,
    #[serde(rename = "type")]
    pub(crate) kind: Field<RawEffectType>,
    /// Expression; the effect is owed when it is true, and always when it is not set.
    pub(crate) when: Option<Field<String>>,
    /// Expressions; with scope, tenant and effect id they make the effect key.
    pub(crate) key: Field<OneOrMany>,
    /// Effects of the same event that must be done first.
    pub(crate) after: Option<Field<Vec<Field<String>>>>,
    /// The effect of an earlier event of the entity that this one undoes: done only when that one was, and
    /// skipped when it was not. Its id, or `{ effect: id, key: expression }` where its key reads otherwise of
    /// this event.
    pub(crate) compensate: Option<Field<RawCompensate>>,
    /// Whether events older than the entity run it, too; `skip` unless set.
    pub(crate) on_stale: Option<Field<RawStale>>,
    /// For `http` and `billing`.
    pub(crate) request: Option<Field<RawRequest>>,
    /// For `email`: the recipient.
    pub(crate) to: Option<Field<String>>,
    /// For `email`: the sender, when `provider` does not have it.
    pub(crate) from: Option<Field<String>>,
    /// For `email`.
    pub(crate) subject: Option<Field<String>>,
    /// For `email`: a template of plain text.
    pub(crate) text: Option<Field<String>>,
    /// For `email`: a template of HTML.
    pub(crate) html: Option<Field<String>>,
    /// For `email`: a file with the template, `*.html.j2` or `*.txt.j2`.
    pub(crate) template: Option<Field<String>>,
    /// For `email`: who sends it.
    pub(crate) provider: Option<Field<RawProvider>>,
    /// What the provider does with our requests: a profile that comes with the program or is declared
    /// under `profiles`; the type's own unless set.
    pub(crate) profile: Option<Field<String>>,
    /// For `llm`: which model is asked what.
    pub(crate) chat: Option<Field<RawChat>>,
    /// For `webhook`: who is called, and with which secrets it is signed.
    pub(crate) endpoint: Option<Field<RawEndpoint>>,
    /// For `webhook`: a template; with it the body is `{ type, timestamp, data }`.
    pub(crate) event_type: Option<Field<String>>,
    /// For `webhook`: a template; when the event took place.
    pub(crate) at: Option<Field<String>>,
    /// For `webhook`: the data of its body; a text that is one `{{ expression }}` keeps its type.
    pub(crate) json: Option<Field<RawTree>>,
    /// For `publish`: the record.
    pub(crate) message: Option<Field<RawMessage>>,
    /// For `ledger`: the row.
    pub(crate) entry: Option<Field<RawEntry>>,
    /// What the provider does with our key.
    pub(crate) idempotency: Option<Field<RawIdempotency>>,
    pub(crate) timeout: Option<Field<RawTimeout>>,
    pub(crate) retry: Option<Field<RawRetry>>,
    /// What follows when it cannot be known whether the provider acted; `hold` unless set.
    pub(crate) on_unknown: Option<Field<RawUnknown>>,
    /// How the provider is asked whether the effect took place, for `reconcile` and, past the key's
    /// window, for `retry_same_key`.
    pub(crate) lookup: Option<Field<RawLookup>>,
    /// What is kept of the answer: names and expressions over `response`.
    pub(crate) record: Option<Field<Entries<String>>>,
    pub(crate) limits: Option<Field<RawLimits>>,
    #[schemars(skip)]
    pub(crate) on_status: Option<Later>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawEffectType {
    Http,
    Email,
    Billing,
    Ledger,
    Webhook,
    Llm,
    Publish,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawStale {
    Skip,
    Run,
}

/// The call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Request")]
pub(crate) struct RawRequest {
    /// `POST` unless set.
    pub(crate) method: Option<Field<RawMethod>>,
    /// Template; scheme and host stand in the file, inserted values are percent-encoded.
    pub(crate) url: Field<String>,
    pub(crate) headers: Option<Field<Entries<String>>>,
    pub(crate) auth: Option<Field<RawAuth>>,
    /// JSON body; a text that is one `{{ expression }}` keeps its type.
    pub(crate) json: Option<Field<RawTree>>,
    /// Form body; maps become `a[b]=c`, lists `a[0]=b`.
    pub(crate) form: Option<Field<RawTree>>,
}

/// Somebody else's endpoint.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Endpoint")]
pub(crate) struct RawEndpoint {
    /// Template: `https`, port 443, and an address that is public; an event may name all of it.
    pub(crate) url: Field<String>,
    /// References to secrets that are written `whsec_…`, shared (`${secret:webhook}`) or each tenant's own
    /// (`${secret:webhook-{{ tenant }}}`); each gives a signature, so that a new one can stand beside the one
    /// that it replaces.
    pub(crate) secrets: Field<Vec<Field<String>>>,
    /// Hosts (`host` or `host:port`) that are called although they are not public or not `https`.
    pub(crate) allow: Option<Field<Vec<Field<String>>>>,
    pub(crate) headers: Option<Field<Entries<String>>>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
pub(crate) enum RawMethod {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// Credentials: one of the three, by reference.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Auth")]
pub(crate) struct RawAuth {
    /// `"${secret:name}"`.
    pub(crate) bearer: Option<Field<String>>,
    pub(crate) basic: Option<Field<RawBasic>>,
    pub(crate) header: Option<Field<RawAuthHeader>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct RawBasic {
    pub(crate) user: Field<String>,
    pub(crate) password: Option<Field<String>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct RawAuthHeader {
    pub(crate) name: Field<String>,
    pub(crate) value: Field<String>,
}

/// Who sends mail.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Provider")]
pub(crate) struct RawProvider {
    pub(crate) kind: Field<RawProviderKind>,
    /// The sender.
    pub(crate) from: Option<Field<String>>,
    /// For `smtp`: `smtp://host:25`, `smtps://host:465` or `smtp+starttls://host:587`.
    pub(crate) server: Option<Field<String>>,
    /// For `smtp`.
    pub(crate) auth: Option<Field<RawAuth>>,
    /// For `resend`: where its API is; its own address unless set.
    pub(crate) url: Option<Field<String>>,
    /// For `resend`.
    pub(crate) token: Option<Field<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawProviderKind {
    Smtp,
    Resend,
}

/// A row of the usage ledger.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Entry")]
pub(crate) struct RawEntry {
    /// Expression.
    pub(crate) account: Field<String>,
    /// Template.
    pub(crate) metric: Field<String>,
    /// Expression; a number, kept exact.
    pub(crate) quantity: Field<String>,
    /// Expression; when it happened.
    pub(crate) at: Option<Field<String>>,
}

/// What the provider does with our key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Idempotency")]
pub(crate) struct RawIdempotency {
    /// The header that carries the effect key.
    pub(crate) header: Option<Field<String>>,
    /// How long the provider remembers a key: `24h`; `forever` if it never forgets one; `none` if no
    /// window is promised, so that the receiver decides.
    pub(crate) window: Option<Field<Window>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Timeout")]
pub(crate) struct RawTimeout {
    /// `2s` unless set.
    pub(crate) connect: Option<Field<Millis>>,
    /// From the start to the end of the answer; `15s` unless set.
    pub(crate) total: Option<Field<Millis>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Retry")]
pub(crate) struct RawRetry {
    /// The first one counts; throttled ones and those with refused credentials do not. Unless set,
    /// only `max_elapsed` ends them.
    pub(crate) attempts: Option<Field<u32>>,
    /// Each wait is a random part of a bound that begins at the first, doubles, and ends at the second; `1s..10m`
    /// unless set.
    pub(crate) backoff: Option<Field<Backoff>>,
    /// How long attempts may fail on end, without a throttle between them; `20h` unless set, or as
    /// much as the key's window leaves.
    pub(crate) max_elapsed: Option<Field<Millis>>,
    #[schemars(skip)]
    pub(crate) schedule: Option<Later>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum RawUnknown {
    Hold,
    RetrySameKey,
    Reconcile,
    AssumeDone,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "a map", deny_unknown_fields)]
#[schemars(rename = "Limits")]
pub(crate) struct RawLimits {
    /// Calls in flight in one process; 16 unless set.
    pub(crate) concurrency: Option<Field<u32>>,
    /// Calls that may start in one process.
    pub(crate) rate: Option<Field<PerTime>>,
    #[schemars(skip)]
    pub(crate) per_tenant: Option<Later>,
    #[schemars(skip)]
    pub(crate) per_endpoint: Option<Later>,
    #[schemars(skip)]
    pub(crate) in_flight_per_tenant: Option<Later>,
}
