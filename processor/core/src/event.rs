//! An event with its identity: what it is called, what it says, and which entity it is about.
//!
//! Reads: a connector and a record's scope. Gives: an [`Event`], or a [`Reject`] with a sentence
//! that names the field and its expression. Identity comes from the event alone; a record that has
//! none is parked, never guessed at.

use crate::connector::{Connector, FingerprintRule, StateRules};
use crate::expr::{EvalError, Expr, Scope, Step};
use crate::fingerprint::Fingerprint;
use crate::key::{Key, PART_BYTES_MAX};
use crate::value::{Kind, Value};

/// A record in business terms.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Empty when the connector declares no tenant.
    pub tenant: Box<str>,
    pub id: Box<str>,
    pub key: Key,
    pub fingerprint: Fingerprint,
    /// Present when the connector has a `state` block.
    pub entity: Option<EntityEvent>,
}

/// What an event says about its entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityEvent {
    pub key: Key,
    pub id: Box<str>,
    /// Zero or more.
    pub version: i64,
}

/// Why a record is no event of the connector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {cause} (`{expression}`)")]
pub struct Reject {
    pub reason: RejectReason,
    /// Where in the connector file: `identity.id`.
    pub field: &'static str,
    pub expression: Box<str>,
    pub cause: RejectCause,
    /// Whose it is, where that could be read before it went wrong.
    pub named: Option<Named>,
}

/// What an event is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Empty when the connector declares no tenant.
    pub tenant: Box<str>,
    pub id: Box<str>,
}

/// The closed list of reasons, for metrics and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectReason {
    MissingTenant,
    BadTenant,
    MissingId,
    BadId,
    MissingEntity,
    BadEntity,
    MissingVersion,
    BadVersion,
    ExpressionFailed,
}

impl RejectReason {
    pub const ALL: [Self; 9] = [
        Self::MissingTenant,
        Self::BadTenant,
        Self::MissingId,
        Self::BadId,
        Self::MissingEntity,
        Self::BadEntity,
        Self::MissingVersion,
        Self::BadVersion,
        Self::ExpressionFailed,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissingTenant => "missing_tenant",
            Self::BadTenant => "bad_tenant",
            Self::MissingId => "missing_id",
            Self::BadId => "bad_id",
            Self::MissingEntity => "missing_entity",
            Self::BadEntity => "bad_entity",
            Self::MissingVersion => "missing_version",
            Self::BadVersion => "bad_version",
            Self::ExpressionFailed => "expression_failed",
        }
    }
}

/// What is wrong with the value, without showing it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectCause {
    #[error("nothing is there")]
    Missing,
    #[error("is {kind}, not a text or an integer")]
    Kind { kind: Kind },
    #[error("has {bytes} bytes, not 1 to {PART_BYTES_MAX}")]
    Length { bytes: usize },
    #[error("contains NUL")]
    Nul,
    #[error("is no integer from 0 to 9223372036854775807")]
    NoVersion,
    #[error("{0}")]
    Eval(EvalError),
}

// --------------------------------------------------------------------------------------------- //

/// Whether the connector wants the record at all; without `match` it does.
///
/// # Errors
/// [`RejectReason::ExpressionFailed`]: a record that cannot be judged is not ignored.
pub fn matches(connector: &Connector, scope: &Scope<'_>) -> Result<bool, Reject> {
    let Some(expr) = &connector.matches else { return Ok(true) };
    expr.is_true(scope).map_err(|error| failed("match", expr, error))
}

/// The identity of a record. `scope` has the roots that a record alone gives: event, headers, meta.
///
/// # Errors
/// [`Reject`] names the field and what is wrong with it.
pub fn identify(connector: &Connector, scope: &Scope<'_>) -> Result<Event, Reject> {
    let identity = &connector.identity;
    let tenant: Box<str> = match &identity.tenant {
        None => "".into(),
        Some(expr) => {
            let reasons = (RejectReason::MissingTenant, RejectReason::BadTenant);
            part("identity.tenant", expr, scope, reasons)?
        }
    };
    let scope = Scope { tenant: Some(&tenant), ..*scope };
    let reasons = (RejectReason::MissingId, RejectReason::BadId);
    let id = part("identity.id", &identity.id, &scope, reasons)?;
    let named =
        |reject| Reject { named: Some(Named { tenant: tenant.clone(), id: id.clone() }), ..reject };
    let fingerprint = fingerprint(&identity.fingerprint, &scope).map_err(named)?;
    let entity = connector.state.as_ref();
    let entity = entity.map(|state| entity_event(connector, state, &tenant, &scope));
    let entity = entity.transpose().map_err(named)?;
    let key = Key::event(&connector.scope, &tenant, &id);
    Ok(Event { key, id, fingerprint, entity, tenant })
}

fn entity_event(
    connector: &Connector,
    state: &StateRules,
    tenant: &str,
    scope: &Scope<'_>,
) -> Result<EntityEvent, Reject> {
    let reasons = (RejectReason::MissingEntity, RejectReason::BadEntity);
    let id = part("state.key", &state.key, scope, reasons)?;
    let version = version(&state.version, scope)?;
    Ok(EntityEvent { key: Key::entity(&connector.scope, tenant, &state.entity, &id), id, version })
}

/// The parts of an effect's own key.
///
/// # Errors
/// [`Reject`] as for an id.
pub fn key_parts(exprs: &[Expr], scope: &Scope<'_>) -> Result<Vec<String>, Reject> {
    let reasons = (RejectReason::MissingId, RejectReason::BadId);
    let each = exprs.iter().map(|expr| part("effects.key", expr, scope, reasons).map(Into::into));
    each.collect()
}

/// A text or an integer of 1 to [`PART_BYTES_MAX`] bytes without NUL.
fn part(
    field: &'static str,
    expr: &Expr,
    scope: &Scope<'_>,
    (missing, bad): (RejectReason, RejectReason),
) -> Result<Box<str>, Reject> {
    let reject = |reason, cause| rejected(reason, field, expr, cause);
    let value = match expr.eval(scope) {
        Ok(Value::Null) => return Err(reject(missing, RejectCause::Missing)),
        Err(error) if error.is_absent() => return Err(reject(missing, RejectCause::Missing)),
        Err(error) => return Err(failed(field, expr, error)),
        Ok(value) => value,
    };
    let Some(text) = value.as_key_part() else {
        return Err(reject(bad, RejectCause::Kind { kind: value.kind() }));
    };
    if text.is_empty() || text.len() > PART_BYTES_MAX {
        return Err(reject(bad, RejectCause::Length { bytes: text.len() }));
    }
    if text.contains('\0') {
        return Err(reject(bad, RejectCause::Nul));
    }
    Ok(text.into())
}

/// An integer, or the decimal digits of one as text, which some producers write to keep 64 bits.
fn version(expr: &Expr, scope: &Scope<'_>) -> Result<i64, Reject> {
    let field = "state.version.from";
    let reject = |reason, cause| rejected(reason, field, expr, cause);
    let value = match expr.eval(scope) {
        Ok(Value::Null) => {
            return Err(reject(RejectReason::MissingVersion, RejectCause::Missing));
        }
        Err(error) if error.is_absent() => {
            return Err(reject(RejectReason::MissingVersion, RejectCause::Missing));
        }
        Err(error) => return Err(failed(field, expr, error)),
        Ok(value) => value,
    };
    let number = match &value {
        Value::Int(number) => Some(*number),
        Value::Text(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        Value::Text(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Decimal(_)
        | Value::List(_)
        | Value::Object(_) => None,
    };
    let number = number.filter(|number| *number >= 0);
    number.ok_or_else(|| reject(RejectReason::BadVersion, RejectCause::NoVersion))
}

fn fingerprint(rule: &FingerprintRule, scope: &Scope<'_>) -> Result<Fingerprint, Reject> {
    match rule {
        FingerprintRule::Fields(exprs) => {
            let field = |expr: &Expr| match expr.eval(scope) {
                Ok(value) => Ok(value),
                // An optional field that is not there is a fact about the event, too.
                Err(error) if error.is_absent() => Ok(Value::Null),
                Err(error) => Err(failed("identity.fingerprint", expr, error)),
            };
            let values: Result<Vec<_>, _> = exprs.iter().map(field).collect();
            Ok(Fingerprint::of(&values?))
        }
        FingerprintRule::WholeWithout(paths) => {
            let event = scope.event.cloned().unwrap_or_default();
            Ok(Fingerprint::of([&paths.iter().fold(event, |event, path| without(&event, path))]))
        }
    }
}

/// The value without the member that `path` leads to.
fn without(value: &Value, path: &[Box<str>]) -> Value {
    let (Some((name, rest)), Value::Object(members)) = (path.split_first(), value) else {
        return value.clone();
    };
    let Some(member) = members.get(name) else { return value.clone() };
    let left = (!rest.is_empty()).then(|| without(member, rest));
    Value::Object(members.with(name, left))
}

fn failed(field: &'static str, expr: &Expr, error: EvalError) -> Reject {
    rejected(RejectReason::ExpressionFailed, field, expr, RejectCause::Eval(error))
}

fn rejected(reason: RejectReason, field: &'static str, expr: &Expr, cause: RejectCause) -> Reject {
    Reject { reason, field, expression: expr.text().into(), cause, named: None }
}

/// Member names of a path below `event`, when it has no list index.
pub fn member_names(steps: &[Step]) -> Option<Vec<Box<str>>> {
    let name = |step: &Step| match step {
        Step::Member(name) => Some(name.clone()),
        Step::Index(_) => None,
    };
    steps.iter().map(name).collect()
}

#[cfg(test)]
mod tests;
