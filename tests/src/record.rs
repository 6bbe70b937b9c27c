//! Records as producers write them, and the business event that most stories use.

use serde_json::{Value, json};

/// A record to produce.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub key: Option<Vec<u8>>,
    /// `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Milliseconds since 1970; `None` is now.
    pub timestamp_ms: Option<i64>,
    pub partition: i32,
}

impl Record {
    /// A value without a key, for partition 0.
    pub fn of(value: impl Into<Vec<u8>>) -> Self {
        Self { value: Some(value.into()), ..Self::default() }
    }

    /// A null value with a key.
    pub fn tombstone(key: &str) -> Self {
        Self { key: Some(key.into()), ..Self::default() }
    }

    #[must_use]
    pub fn to(mut self, partition: i32) -> Self {
        self.partition = partition;
        self
    }

    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.into());
        self
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), Some(value.into())));
        self
    }
}

/// What happened to an invoice, in the manner of Stripe's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub id: String,
    pub kind: String,
    pub account: String,
    pub invoice: String,
    pub version: i64,
    pub amount: i64,
}

impl Event {
    /// The invoice was paid.
    pub fn paid(invoice: &str, version: i64) -> Self {
        Self::new("invoice.paid", invoice, version)
    }

    /// The invoice was not paid in time.
    pub fn past_due(invoice: &str, version: i64) -> Self {
        Self::new("invoice.past_due", invoice, version)
    }

    pub fn new(kind: &str, invoice: &str, version: i64) -> Self {
        Self {
            id: format!("evt-{invoice}-{version:03}"),
            kind: kind.to_owned(),
            account: "acct_7".to_owned(),
            invoice: invoice.to_owned(),
            version,
            amount: 1200,
        }
    }

    #[must_use]
    pub fn amount(mut self, amount: i64) -> Self {
        self.amount = amount;
        self
    }

    #[must_use]
    pub fn account(mut self, account: &str) -> Self {
        account.clone_into(&mut self.account);
        self
    }

    pub fn json(&self) -> Value {
        json!({
            "id": self.id,
            "type": self.kind,
            "account": self.account,
            "version": self.version,
            "data": {
                "invoice": self.invoice,
                "amount": self.amount,
                "currency": "eur",
                "email": format!("{}@example.com", self.invoice),
            },
        })
    }

    /// As plain JSON, keyed by its invoice.
    pub fn record(&self, partition: i32) -> Record {
        Record::of(self.json().to_string()).key(&self.invoice).to(partition)
    }
}
