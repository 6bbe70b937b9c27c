//! `oncely dlq` and `oncely quarantine`: records that were set aside, as they are seen.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oncely_core::expr::spelling::nearest;
use serde_json::{Value, json};

use super::answer::{
    Answer, Shown, bytes_as_written, bytes_json, bytes_text, counted, fields, is_full, shown,
    table, time,
};
use super::beside::beside;
use super::context::Context;
use super::effects::id;
use super::exit::CliError;
use super::known;
use crate::store::admin::parked::{self, Filter, First, ParkedRow, ParkedWhole, Place};
use crate::worker::{is_unreadable, read_headers, reasons};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct List {
    /// Only of this connector
    #[arg(long, value_name = "NAME")]
    connector: Option<String>,
    /// Only those that were parked for this cause, as `list` shows it
    #[arg(long, alias = "reason", value_name = "CAUSE", value_parser = cause)]
    cause: Option<String>,
    /// Only of this business id
    #[arg(long = "id", value_name = "BUSINESS ID")]
    business_id: Option<String>,
    /// Closed ones as well: redriven, released, discarded
    #[arg(long)]
    closed: bool,
    /// Rows at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
}

/// A cause of the closed list: a mistyped one would find nothing, which looks like good news.
pub(super) fn cause(text: &str) -> Result<String, String> {
    let known = reasons();
    if known.contains(&text) {
        return Ok(text.to_owned());
    }
    let near = nearest(text, known.iter().copied());
    let near = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
    Err(format!("{near}the causes are {}", known.join(", ")))
}

impl List {
    pub(super) async fn run(self, context: &Context, place: Place) -> Result<Answer, CliError> {
        let Self { connector, cause, business_id, closed, limit } = self;
        let filter = Filter { connector, reason: cause, business_id, closed, limit };
        let mut connection = context.connect("parked").await?;
        known::connector(&mut connection, filter.connector.as_deref()).await?;
        let rows = parked::list(&mut connection, place, &filter).await?;
        let shown = if is_full(rows.len(), limit) {
            Shown::of(rows.len(), parked::count(&mut connection, place, &filter).await?)
        } else {
            Shown::all(rows.len())
        };
        Ok(listed(place, &rows, shown))
    }
}

/// Shows one of them, by its number.
pub(super) async fn show(context: &Context, place: Place, number: i64) -> Result<Answer, CliError> {
    let mut connection = context.connect("parked").await?;
    match parked::show(&mut connection, place, number).await? {
        Some(whole) => Ok(shown_whole(&whole)),
        None => Err(CliError::Failed(format!("there is no {} {number}", word(place)))),
    }
}

pub(super) const fn word(place: Place) -> &'static str {
    match place {
        Place::DeadLetters => "dead letter",
        Place::Quarantine => "quarantined record",
    }
}

fn listed(place: Place, rows: &[ParkedRow], shown: Shown) -> Answer {
    let header =
        ["number", "parked at", "connector", "cause", "id", "from", "redriven", "stands", "detail"];
    let cells = rows.iter().map(|row| {
        vec![
            row.id.to_string(),
            time(row.at),
            row.connector.clone().unwrap_or_else(|| "(gone)".to_owned()),
            row.reason.clone(),
            row.business_id.as_deref().map(|known| id(&row.tenant, known)).unwrap_or_default(),
            from(row),
            row.redrives.to_string(),
            stands(row),
            row.detail.clone(),
        ]
    });
    let text = format!("{}{}\n", table(&header, cells.collect()), shown.text(word(place)));
    let rows: Vec<Value> = rows.iter().map(row_json).collect();
    Answer::new(text, shown.add_to(json!({ "parked": rows })))
}

/// Whether somebody has to look at it, and what became of it otherwise.
fn stands(row: &ParkedRow) -> String {
    let open = match (&row.closed, row.wanted) {
        (Some((_, how)), _) => return format!("closed: {how}"),
        (None, true) => "to be decided again",
        (None, false) => "open",
    };
    if row.suspect { format!("{open} (suspect)") } else { open.to_owned() }
}

/// What is in doubt about an open row.
fn suspicion(row: &ParkedRow) -> &'static str {
    match (row.closed.is_none() && row.suspect, row.effect) {
        (false, _) => "",
        (true, None) => {
            "a failover of the database may have lost that it was run: what it owes may have been done"
        }
        (true, Some(_)) => "an attempt of it may have been applied",
    }
}

fn from(row: &ParkedRow) -> String {
    let origin = row.origin.as_ref().map(ToString::to_string);
    origin.or_else(|| row.effect.map(|key| key.wire())).unwrap_or_default()
}

fn row_json(row: &ParkedRow) -> Value {
    json!({
        "number": row.id,
        "parked_at": time(row.at),
        "connector": row.connector,
        "reason": row.reason,
        "cause": row.reason,
        "tenant": row.tenant,
        "business_id": row.business_id,
        "detail": row.detail,
        "topic": row.origin.as_ref().map(|origin| &origin.topic),
        "partition": row.origin.as_ref().map(|origin| origin.partition),
        "offset": row.origin.as_ref().map(|origin| origin.offset),
        "effect": row.effect.map(|key| key.wire()),
        "redrives": row.redrives,
        "stands": stands(row),
        "suspect": row.closed.is_none() && row.suspect,
        "closed_at": row.closed.as_ref().map(|(at, _)| time(*at)),
    })
}

fn shown_whole(whole: &ParkedWhole) -> Answer {
    let (row, first) = (&whole.row, &whole.first);
    let fingerprint =
        |key: &Option<oncely_core::key::Key>| key.map(|key| key.to_string()).unwrap_or_default();
    let timestamp = whole.timestamp_ms.and_then(chrono::DateTime::from_timestamp_millis);
    let mut text = fields(&[
        ("number", row.id.to_string()),
        ("parked at", time(row.at)),
        ("connector", row.connector.clone().unwrap_or_else(|| "(gone)".to_owned())),
        ("cause", row.reason.clone()),
        ("detail", shown(&row.detail)),
        (
            "id",
            shown(
                &row.business_id.as_deref().map(|known| id(&row.tenant, known)).unwrap_or_default(),
            ),
        ),
        ("from", from(row)),
        ("redriven", if row.redrives > 0 { row.redrives.to_string() } else { String::new() }),
        ("first", first.as_ref().map(first_text).unwrap_or_default()),
        ("stands", stands(row)),
        ("suspect", suspicion(row).to_owned()),
        ("record time", timestamp.map(time).unwrap_or_default()),
        ("fingerprint", fingerprint(&whole.fingerprint)),
    ]);
    if let Some(known) = &whole.known_fingerprint {
        text.push_str(&side_by_side(whole, known));
    }
    let headers = headers(whole.headers.as_deref());
    let part = |name: &str, bytes: &Option<Vec<u8>>| {
        let Some(bytes) = bytes else { return String::new() };
        // Reading it as JSON would hide why it was set aside, such as a member that stands twice.
        let shown =
            if is_unreadable(&row.reason) { bytes_as_written(bytes) } else { bytes_text(bytes) };
        format!("\n{name} ({})\n{shown}\n", counted(bytes.len(), "byte"))
    };
    text.push_str(&part("key", &whole.record_key));
    if !headers.is_empty() {
        text.push_str("\nheaders\n");
        text.extend(headers.iter().map(|header| format!("{}\n", header_text(header))));
    }
    match both(whole) {
        Some(both) => text.push_str(&format!("\nvalues\n{both}")),
        None => {
            text.push_str(&part("value", &whole.value));
            text.push_str(&part("value of the known event", &whole.known_value));
        }
    }
    if whole.known_fingerprint.is_some() && whole.known_value.is_none() {
        text.push_str(&format!("\n{}\n", not_kept(whole)));
    }
    let mut json = row_json(row);
    if let Some(json) = json.as_object_mut() {
        let first = whole.first.as_ref().map(|first| {
            json!({ "parked_at": time(first.at), "reason": first.reason, "detail": first.detail })
        });
        json.insert("first".to_owned(), json!(first));
        json.insert("event".to_owned(), json!(whole.event.map(|key| key.to_string())));
        json.insert("fingerprint".to_owned(), json!(whole.fingerprint.map(|key| key.to_string())));
        let from = whole.known.as_ref().map(|(origin, _)| origin.to_string());
        json.insert("known_from".to_owned(), json!(from));
        let since = whole.known.as_ref().map(|(_, since)| time(*since));
        json.insert("known_since".to_owned(), json!(since));
        let value = whole.known_value.as_deref().map_or(Value::Null, bytes_json);
        json.insert("known_value".to_owned(), value);
        let known = whole.known_fingerprint.map(|key| key.to_string());
        json.insert("known_fingerprint".to_owned(), json!(known));
        json.insert("record_timestamp".to_owned(), json!(timestamp.map(time)));
        for (name, bytes) in [("key", &whole.record_key), ("value", &whole.value)] {
            json.insert(name.to_owned(), bytes.as_deref().map_or(Value::Null, bytes_json));
        }
        json.insert("headers".to_owned(), headers.iter().map(header_json).collect());
    }
    Answer::new(text, json)
}

fn first_text(first: &First) -> String {
    format!("{} {}: {}", time(first.at), first.reason, shown(&first.detail))
}

/// The two contents that have one business id.
fn side_by_side(whole: &ParkedWhole, known: &oncely_core::key::Key) -> String {
    let this = whole.fingerprint.map(|key| key.to_string()).unwrap_or_default();
    let (from_, since) = match &whole.known {
        Some((origin, since)) => (origin.to_string(), time(*since)),
        None => ("(forgotten)".to_owned(), String::new()),
    };
    let rows = vec![
        vec!["fingerprint".to_owned(), this, known.to_string()],
        vec!["from".to_owned(), from(&whole.row), from_],
        vec!["since".to_owned(), time(whole.row.at), since],
    ];
    format!("\n{}", table(&["", "this record", "known event"], rows))
}

/// Both values, line by line, where both are kept and are text.
fn both(whole: &ParkedWhole) -> Option<String> {
    let (this, known) = (whole.value.as_deref()?, whole.known_value.as_deref()?);
    std::str::from_utf8(this).ok().and(std::str::from_utf8(known).ok())?;
    beside(("this record", "known event"), (&bytes_text(this), &bytes_text(known)))
}

/// Where the other content is to be looked for.
fn not_kept(whole: &ParkedWhole) -> String {
    let at = whole.known.as_ref().map(|(origin, _)| origin.to_string());
    let at = at.map_or_else(|| "forgotten".to_owned(), |at| format!("read from {at}"));
    format!(
        "the value of the known event is not kept: that is done only until its effects are rendered; it was {at}"
    )
}

/// A record header; without a value where the producer gave none.
type Header = (String, Option<Vec<u8>>);

fn headers(stored: Option<&[u8]>) -> Vec<Header> {
    stored.and_then(read_headers).unwrap_or_default()
}

fn header_text((name, value): &Header) -> String {
    let value = match value.as_deref().map(|value| (value, std::str::from_utf8(value))) {
        None => "(null)".to_owned(),
        Some((_, Ok(text))) => shown(text),
        Some((value, Err(_))) => format!("(base64) {}", STANDARD.encode(value)),
    };
    format!("{}: {value}", shown(name)).trim_end().to_owned()
}

fn header_json((name, value): &Header) -> Value {
    match value.as_deref().map(|value| (value, std::str::from_utf8(value))) {
        None => json!({ "key": name, "text": null }),
        Some((_, Ok(text))) => json!({ "key": name, "text": text }),
        Some((value, Err(_))) => json!({ "key": name, "base64": STANDARD.encode(value) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_conflict_both_contents_stand_beside_each_other() {
        let known = crate::store::origin::Origin { topic: "t".to_owned(), partition: 0, offset: 4 };
        let whole = |known_value: Option<&[u8]>| ParkedWhole {
            row: ParkedRow {
                id: 4,
                at: chrono::DateTime::UNIX_EPOCH,
                connector: Some("invoice-paid".to_owned()),
                reason: "conflict".to_owned(),
                tenant: String::new(),
                business_id: Some("in_1".to_owned()),
                detail: String::new(),
                origin: None,
                effect: None,
                redrives: 0,
                wanted: false,
                suspect: false,
                closed: None,
            },
            first: None,
            event: None,
            fingerprint: Some(oncely_core::key::Key::from_bytes([1; 16])),
            known_fingerprint: Some(oncely_core::key::Key::from_bytes([2; 16])),
            known: Some((known.clone(), chrono::DateTime::UNIX_EPOCH)),
            known_value: known_value.map(<[u8]>::to_vec),
            timestamp_ms: None,
            record_key: None,
            value: Some(b"{\"id\":1,\"amount\":2}".to_vec()),
            headers: None,
        };
        let both = shown_whole(&whole(Some(b"{\"id\":1,\"amount\":1}"))).text;
        for line in ["this record", "\"amount\": 2, |", "0202", "0101"] {
            assert!(both.contains(line), "{line} is missing in\n{both}");
        }
        let one = shown_whole(&whole(None)).text;
        assert!(one.contains("value (") && one.contains("not kept"), "{one}");
        assert!(one.contains("t[0]@4"), "{one}");
    }

    #[test]
    fn what_could_not_be_read_is_shown_as_it_was_written() {
        let row = ParkedRow {
            id: 4,
            at: chrono::DateTime::UNIX_EPOCH,
            connector: Some("invoice-paid".to_owned()),
            reason: "duplicate_key".to_owned(),
            tenant: String::new(),
            business_id: None,
            detail: "`a` stands twice".to_owned(),
            origin: None,
            effect: None,
            redrives: 0,
            wanted: false,
            suspect: false,
            closed: None,
        };
        let whole = ParkedWhole {
            row,
            first: None,
            event: None,
            fingerprint: None,
            known_fingerprint: None,
            known: None,
            known_value: None,
            timestamp_ms: None,
            record_key: Some(b"k".to_vec()),
            value: Some(b"{\"a\":1,\n \"a\":\x1b2}".to_vec()),
            headers: Some(br#"[["trace","YWJj"],["raw","/wA="],["none",null]]"#.to_vec()),
        };
        let shown = shown_whole(&whole);
        insta::assert_snapshot!(shown.text, @r#"
        number       4
        parked at    1970-01-01T00:00:00.000Z
        connector    invoice-paid
        cause        duplicate_key
        detail       `a` stands twice
        stands       open

        key (1 byte)
        k

        headers
        trace: abc
        raw: (base64) /wA=
        none: (null)

        value (16 bytes)
        {"a":1,
         "a":\u{1b}2}
        "#);
        let headers = json!([
            { "key": "trace", "text": "abc" },
            { "key": "raw", "base64": "/wA=" },
            { "key": "none", "text": null },
        ]);
        assert_eq!(shown.json["headers"], headers);
        let none = ParkedWhole { headers: Some(b"[]".to_vec()), ..whole };
        assert!(!shown_whole(&none).text.contains("headers"));
    }
}
