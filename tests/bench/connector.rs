//! The connector that is measured, as the product's file and as the product reads it.

use std::path::{Path, PathBuf};

use oncely_connectors::file::{Check, NothingSet, compile};
use oncely_core::connector::Connector;

use crate::error::{BenchError, Result};
use crate::workload::{KIND, SCOPE};

/// Calls in flight at once. A slot is taken from the claim, so over a commit and the wait for a processor,
/// too: with 256 and 25 ms of that, Little's law ends at 10,000 a second however short the calls are.
pub(crate) const IN_FLIGHT: u32 = 1_000;

/// Whom each new event makes a call to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Calls<'a> {
    Nobody,
    /// The provider at this address.
    Provider(&'a str),
    /// The same, and nothing is sent twice of what it may have applied: that is held.
    Holding(&'a str),
}

/// The text of the file.
fn text(topic: &str, calls: Calls<'_>) -> String {
    let mut text = format!(
        "version: 1
connector: {SCOPE}
source: {{ topics: [{topic}], group: {topic}, start: earliest }}
decode: {{ format: json }}
identity:
  id: event.id
  fingerprint: [event.data.amount_cents, event.data.currency]
state:
  entity: {KIND}
  key: event.data.invoice
  version: {{ from: event.data.version }}
  initial: open
  transitions:
    - {{ from: [open], to: paid, if: event.data.paid }}
    - {{ from: [open], to: open }}
"
    );
    let calls = match calls {
        Calls::Nobody => None,
        Calls::Provider(provider) => Some((provider, "retry_same_key")),
        Calls::Holding(provider) => Some((provider, "hold")),
    };
    if let Some((provider, on_unknown)) = calls {
        text.push_str(&format!(
            "effects:
  - id: settle
    type: http
    key: event.id
    request:
      method: POST
      url: \"{provider}/keyed/{{{{ event.data.desk }}}}\"
      json: {{ invoice: \"{{{{ event.data.invoice }}}}\", cents: \"{{{{ event.data.amount_cents }}}}\" }}
    idempotency: {{ header: Idempotency-Key, window: 24h }}
    on_unknown: {on_unknown}
    limits: {{ concurrency: {IN_FLIGHT} }}
"
        ));
    }
    text
}

/// Writes the file into `dir`.
pub(crate) fn write(dir: &Path, topic: &str, calls: Calls<'_>) -> Result<PathBuf> {
    let path = dir.join(format!("{topic}.yaml"));
    std::fs::write(&path, text(topic, calls)).map_err(BenchError::io("write the connector"))?;
    Ok(path)
}

/// The connector as the product has it in memory.
pub(crate) fn compiled(topic: &str, calls: Calls<'_>) -> Result<Connector> {
    let compiled = compile("bench.yaml", &text(topic, calls), &NothingSet, Check::Live);
    let compiled = compiled.map_err(|found| {
        BenchError::wrong(format!("the connector of the benchmark has errors: {found:?}"))
    })?;
    Ok(compiled.connector)
}
