//! The connector that is measured, as the product's file and as the product reads it.

use std::path::{Path, PathBuf};

use oncely_connectors::file::{Check, NothingSet, compile};
use oncely_core::connector::Connector;

use crate::error::{BenchError, Result};
use crate::workload::{KIND, SCOPE};

/// Calls in flight at once. A slot is taken from the claim, so over a commit and the wait for a processor,
/// too: with 256 and 25 ms of that, Little's law ends at 10,000 a second however short the calls are.
pub(crate) const IN_FLIGHT: u32 = 1_000;

/// The text of the file. `provider`: one HTTP call for each new event goes there.
fn text(topic: &str, provider: Option<&str>) -> String {
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
    if let Some(provider) = provider {
        text.push_str(&format!(
            "effects:
  - id: settle
    type: http
    key: event.id
    request:
      method: POST
      url: {provider}/keyed/settlements
      json: {{ invoice: \"{{{{ event.data.invoice }}}}\", cents: \"{{{{ event.data.amount_cents }}}}\" }}
    idempotency: {{ header: Idempotency-Key, window: 24h }}
    on_unknown: retry_same_key
    limits: {{ concurrency: {IN_FLIGHT} }}
"
        ));
    }
    text
}

/// Writes the file into `dir`.
pub(crate) fn write(dir: &Path, topic: &str, provider: Option<&str>) -> Result<PathBuf> {
    let path = dir.join(format!("{topic}.yaml"));
    std::fs::write(&path, text(topic, provider)).map_err(BenchError::io("write the connector"))?;
    Ok(path)
}

/// The connector as the product has it in memory.
pub(crate) fn compiled(topic: &str, provider: Option<&str>) -> Result<Connector> {
    let compiled = compile("bench.yaml", &text(topic, provider), &NothingSet, Check::Live);
    let compiled = compiled.map_err(|found| {
        BenchError::wrong(format!("the connector of the benchmark has errors: {found:?}"))
    })?;
    Ok(compiled.connector)
}
