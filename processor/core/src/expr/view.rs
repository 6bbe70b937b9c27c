//! Lets CEL look at values where they stand, and brings its answers back.
//!
//! Objects are looked into on demand; nothing is converted that an expression does not read.
//! Integers are CEL's `int`, never `uint`. Decimals become `double`, but only those that survive
//! it unchanged: a number that would lose digits stays as it is and can be passed on and compared
//! for equality, while computing with it is an error.

use std::sync::{Arc, OnceLock};

use cel::ExecutionError;
use cel::common::traits::{Container, Indexer, Iterable, Iterator as CelIterator, Sizer};
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt, MAP_TYPE,
    Type,
};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::context::VariableResolver;

use super::EvalError;
use super::path::Root;
use super::scope::Scope;
use super::steps;
use crate::value::{Decimal, Object, Value};

type Boxed<'v> = Box<dyn Val + 'v>;

/// Name under which an expression finds the state that this event moved the entity into. Nobody
/// can write it: `$` begins no CEL name.
pub(super) const ENTERED: &str = "$entered";

/// Answers CEL's questions for variables from a scope.
pub(super) struct Roots<'a> {
    pub(super) scope: &'a Scope<'a>,
    /// Whether objects are converted as a whole, which comparing with a map literal needs.
    pub(super) whole: bool,
}

impl VariableResolver for Roots<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        if variable == ENTERED {
            let entered = self.scope.state.filter(|state| state.entered(state.current));
            return Some(match entered {
                Some(state) => CowVal::owned(CelString::from(state.current)),
                None => CowVal::owned(CelNull),
            });
        }
        let borrowed = match Root::parse(variable)? {
            Root::Event => self.scope.event,
            Root::Effects => self.scope.effects,
            Root::Response => self.scope.response,
            Root::Tenant => {
                return self.scope.tenant.map(|tenant| CowVal::owned(CelString::from(tenant)));
            }
            root @ (Root::Headers | Root::Meta | Root::State | Root::Effect) => {
                let made = self.scope.root(root)?;
                return Some(CowVal::Owned(copied(&made)));
            }
        };
        let value = borrowed?;
        Some(CowVal::Owned(if self.whole { copied(value) } else { viewed(value) }))
    }
}

// --------------------------------------------------------------------------------------------- //

/// An object of an event, looked into where it stands.
struct View<'v> {
    members: &'v Object,
    keys: OnceLock<Vec<CelString<'v>>>,
}

impl std::fmt::Debug for View<'_> {
    /// Never shows what is inside.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("object")
    }
}

fn viewed(value: &Value) -> Boxed<'_> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::Int(number) => Box::new(CelInt::from(*number)),
        Value::Decimal(number) => decimal(number),
        Value::Text(text) => Box::new(CelString::from(&**text)),
        Value::List(items) => Box::new(CelList::from(made(items, viewed))),
        Value::Object(members) => Box::new(View { members, keys: OnceLock::new() }),
    }
}

/// A list is made each time that it is read, in a loop for each of its steps; none once these are spent.
fn made<'i, 'v>(items: &'i [Value], make: impl Fn(&'i Value) -> Boxed<'v>) -> Vec<Boxed<'v>> {
    if steps::spend(items.len()) { items.iter().map(make).collect() } else { Vec::new() }
}

fn copied(value: &Value) -> Boxed<'static> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::Int(number) => Box::new(CelInt::from(*number)),
        Value::Decimal(number) => decimal(number),
        Value::Text(text) => Box::new(CelString::from(text.to_string())),
        Value::List(items) => Box::new(CelList::from(made(items, copied))),
        Value::Object(members) => {
            let pair = |(name, value): (&Arc<str>, &Value)| {
                (CelMapKey::from(name.to_string()), copied(value))
            };
            let mut map = CelMap::default().into_inner();
            map.extend(members.iter().map(pair));
            Box::new(CelMap::from(map))
        }
    }
}

/// As a double when that is the same number, else as itself.
fn decimal(number: &Decimal) -> Boxed<'static> {
    let double = number.as_str().parse::<f64>().ok().filter(|_| !number.is_integer());
    let same = double.filter(|double| {
        let back = Decimal::parse(&format!("{double:?}"));
        back.is_some_and(|back| back.normalized() == number.normalized())
    });
    match same {
        Some(double) => Box::new(CelDouble::from(double)),
        None => Box::new(Exact(number.clone())),
    }
}

/// A number that CEL has no type for.
#[derive(Debug)]
struct Exact(Decimal);

static EXACT: Type = Type::new_unspecified_type("number beyond CEL's range");

impl Val for Exact {
    fn get_type(&self) -> &Type {
        &EXACT
    }

    fn cel_type() -> &'static Type {
        &EXACT
    }

    fn equals(&self, other: &dyn Val) -> bool {
        let other = other.downcast_ref::<Self>();
        other.is_some_and(|other| other.0.normalized() == self.0.normalized())
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(Self(self.0.clone()))
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}

impl StaticVal for Exact {}

// --------------------------------------------------------------------------------------------- //

impl Val for View<'_> {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_iterable<'b, 'w>(&'b self) -> Option<&'b (dyn Iterable + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        let same_size = other.as_sizer().is_some_and(|sizer| sizer.size() == self.size());
        let Some(other) = other.as_indexer().filter(|_| same_size) else { return false };
        self.members.iter().all(|(name, value)| {
            let theirs = other.get(&CelString::from(&**name));
            theirs.is_ok_and(|theirs| viewed(value).equals(theirs.as_ref()))
        })
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(View { members: self.members, keys: OnceLock::new() })
    }
}

impl Container for View<'_> {
    fn contains(&self, value: &dyn Val) -> Result<bool, ExecutionError> {
        let name = value.downcast_ref::<CelString<'_>>();
        Ok(name.is_some_and(|name| self.members.get(name.inner()).is_some()))
    }
}

impl Indexer for View<'_> {
    fn get<'b, 'w>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let Some(name) = index.downcast_ref::<CelString<'_>>() else {
            return Err(ExecutionError::no_such_key("(not a text)"));
        };
        let member = self.members.get(name.inner());
        let member = member.ok_or_else(|| ExecutionError::no_such_key(name.inner()))?;
        Ok(CowVal::Owned(viewed(member)))
    }

    fn steal<'w>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(index).map(CowVal::into_owned)
    }
}

impl Sizer for View<'_> {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.members.len()).unwrap_or(i64::MAX))
    }
}

impl<'v> Iterable for View<'v> {
    fn iter<'b, 'w>(&'b self) -> Box<dyn CelIterator<'b, 'w> + 'b>
    where
        Self: 'w,
    {
        let names = || self.members.iter().map(|(name, _)| CelString::from(&**name)).collect();
        Box::new(Keys(self.keys.get_or_init(names).iter()))
    }
}

struct Keys<'b, 'v>(std::slice::Iter<'b, CelString<'v>>);

impl<'b, 'v: 'w, 'w> CelIterator<'b, 'w> for Keys<'b, 'v> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'w)> {
        let name: &'b CelString<'v> = self.0.next()?;
        Some(name)
    }
}

// --------------------------------------------------------------------------------------------- //

/// What CEL answered, as a value.
pub(super) fn answer(val: &dyn Val) -> Result<Value, EvalError> {
    if let Some(text) = val.downcast_ref::<CelString<'_>>() {
        return Ok(Value::text(text.inner()));
    }
    if let Some(value) = val.downcast_ref::<CelBool>() {
        return Ok(Value::Bool(*value.inner()));
    }
    if let Some(number) = val.downcast_ref::<CelInt>() {
        return Ok(Value::Int(*number.inner()));
    }
    if let Some(number) = val.downcast_ref::<CelUInt>() {
        return i64::try_from(*number.inner()).map(Value::Int).map_err(|_| EvalError::NoNumber);
    }
    if let Some(number) = val.downcast_ref::<CelDouble>() {
        // Debug always writes a fraction or an exponent: a double never turns into an integer.
        let text = format!("{:?}", number.inner());
        return Decimal::parse(&text).map(Value::Decimal).ok_or(EvalError::NoNumber);
    }
    if let Some(number) = val.downcast_ref::<Exact>() {
        return Ok(Value::Decimal(number.0.clone()));
    }
    if val.downcast_ref::<CelNull>().is_some() {
        return Ok(Value::Null);
    }
    if let Some(items) = val.downcast_ref::<CelList<'_>>() {
        let items: Result<Vec<_>, _> = items.inner().iter().map(|item| answer(&**item)).collect();
        return items.map(Value::list);
    }
    object(val)
}

fn object(val: &dyn Val) -> Result<Value, EvalError> {
    let shape = || EvalError::NoValue { kind: val.get_type().name().into() };
    let keys = val.as_iterable().ok_or_else(shape)?;
    let members = val.as_indexer().ok_or_else(shape)?;
    let mut object = Vec::new();
    let mut keys = keys.iter();
    while let Some(key) = keys.next() {
        let name = key.downcast_ref::<CelString<'_>>().ok_or_else(shape)?;
        let member = members.get(key).map_err(|error| EvalError::from_cel(&error))?;
        object.push((Arc::from(name.inner()), answer(member.as_ref())?));
    }
    Ok(Value::object::<Arc<str>>(object))
}
