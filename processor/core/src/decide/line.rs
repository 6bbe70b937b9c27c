//! Lines of the usage ledger.
//!
//! Reads: a rule and a scope. Gives: a line with its exact quantity, or the reason why there is none.

use super::owed::{Refusal, chain};
use super::plan::LedgerNew;
use crate::connector::{EffectRule, LedgerRule};
use crate::expr::{Expr, Scope};
use crate::key::{Hasher, Key, PART_BYTES_MAX};
use crate::value::{Decimal, Value};

/// Digits of a quantity; beyond it lies a mistake, and the database would refuse the row.
const QUANTITY_DIGITS_MAX: usize = 1_000;
/// The years 1 to 9999, which the database can hold.
const TIMES_MS: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// The line that `rule`, the one at `index`, makes of an event; `scope` has the results that it waits for.
///
/// # Errors
/// [`Refusal`] names the field that has no usable value.
pub fn ledger_line(
    rule: &EffectRule,
    index: usize,
    body: &LedgerRule,
    (event, tenant): (Key, &str),
    scope: &Scope<'_>,
) -> Result<LedgerNew, Refusal> {
    let at = |place, expr: &Expr| {
        expr.eval(scope).map_err(|error| Refusal::expression(rule, place, error))
    };
    let account = at("entry.account", &body.account)?;
    let fits = |text: &String| (1..=PART_BYTES_MAX).contains(&text.len());
    let account = account.as_key_part().filter(fits);
    let account = account.ok_or_else(|| {
        let what = "is no text or integer of 1 to 512 bytes";
        Refusal::expression(rule, "entry.account", what)
    })?;
    let metric = body.metric.render(scope);
    let metric =
        metric.map_err(|error| Refusal::expression(rule, "entry.metric", chain(&error)))?;
    if !fits(&metric) {
        let what = "is no text of 1 to 512 bytes";
        return Err(Refusal::expression(rule, "entry.metric", what));
    }
    let quantity = match at("entry.quantity", &body.quantity)? {
        Value::Int(number) => number.to_string(),
        Value::Decimal(number) => number.normalized(),
        Value::Text(text) => match Decimal::parse(&text) {
            Some(number) => number.normalized(),
            None => return Err(Refusal::expression(rule, "entry.quantity", "is no number")),
        },
        other @ (Value::Null | Value::Bool(_) | Value::List(_) | Value::Object(_)) => {
            let what = format!("is {}, not a number", other.kind());
            return Err(Refusal::expression(rule, "entry.quantity", what));
        }
    };
    if quantity.len() > QUANTITY_DIGITS_MAX {
        let what = format!("has {} digits, more than {QUANTITY_DIGITS_MAX}", quantity.len());
        return Err(Refusal::expression(rule, "entry.quantity", what));
    }
    let at_ms = match &body.at {
        None => None,
        Some(expr) => {
            let value = at("entry.at", expr)?;
            let time = crate::time::millis(&value).filter(|ms| TIMES_MS.contains(ms));
            Some(time.ok_or_else(|| {
                let what = "is neither an RFC 3339 time nor integer milliseconds since 1970";
                Refusal::expression(rule, "entry.at", what)
            })?)
        }
    };
    let content = Hasher::new("ledger line")
        .part(&account)
        .part(&metric)
        .part(&quantity)
        .part(&at_ms.map_or_else(String::new, |ms| ms.to_string()))
        .finish();
    Ok(LedgerNew {
        event,
        content,
        rule: index,
        tenant: tenant.into(),
        account: account.into(),
        metric: metric.into(),
        quantity: quantity.into(),
        at_ms,
    })
}
