//! An object's members in one piece of memory: objects of events have few members, are made once,
//! looked into a few times and thrown away.

use std::sync::Arc;

use super::Value;

/// One member.
pub type Member = (Arc<str>, Value);

/// Members, sorted by name, each name once. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object(Arc<[Member]>);

impl Object {
    /// From members in any order.
    ///
    /// # Errors
    /// A name that stands twice.
    pub fn new(mut members: Vec<Member>) -> Result<Self, Arc<str>> {
        members.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut pairs = members.windows(2);
        match pairs.find_map(|pair| match pair {
            [(one, _), (other, _)] if one == other => Some(Arc::clone(one)),
            _ => None,
        }) {
            Some(twice) => Err(twice),
            None => Ok(Self(members.into())),
        }
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        // Few members are found sooner by looking at all of them: most names differ in length.
        const FEW: usize = 8;
        if self.0.len() <= FEW {
            return self.0.iter().find(|(own, _)| **own == *name).map(|(_, value)| value);
        }
        let index = self.0.binary_search_by(|(own, _)| (**own).cmp(name)).ok()?;
        self.0.get(index).map(|(_, value)| value)
    }

    /// In the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Value)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same with one member changed: replaced or added by `Some`, removed by `None`.
    #[must_use]
    pub fn with(&self, name: &str, value: Option<Value>) -> Self {
        let others = self.0.iter().filter(|(own, _)| **own != *name).cloned();
        others.chain(value.map(|value| (Arc::from(name), value))).collect()
    }
}

/// The last of equal names wins.
impl FromIterator<Member> for Object {
    fn from_iter<I: IntoIterator<Item = Member>>(members: I) -> Self {
        let mut members: Vec<Member> = members.into_iter().collect();
        members.reverse();
        members.sort_by(|(one, _), (other, _)| one.cmp(other));
        members.dedup_by(|(later, _), (first, _)| later == first);
        Self(members.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, number: i64) -> Member {
        (name.into(), Value::Int(number))
    }

    #[test]
    fn members_are_found_among_few_and_many() {
        for count in [0, 1, 8, 9, 100] {
            let members = (0..count).rev().map(|number| member(&format!("m{number}"), number));
            let object = Object::new(members.collect()).unwrap();
            for number in 0..count {
                assert_eq!(object.get(&format!("m{number}")), Some(&Value::Int(number)));
            }
            assert_eq!(object.get("m"), None);
            assert!(object.iter().map(|(name, _)| name).is_sorted());
        }
    }

    #[test]
    fn a_name_stands_once() {
        let twice = || vec![member("a", 1), member("b", 2), member("a", 3)];
        assert_eq!(Object::new(twice()), Err("a".into()));
        let last: Object = twice().into_iter().collect();
        assert_eq!((last.len(), last.get("a")), (2, Some(&Value::Int(3))));
    }

    #[test]
    fn one_member_changes_and_the_others_stay() {
        let object = Object::new(vec![member("a", 1), member("c", 3)]).unwrap();
        let more = object.with("b", Some(Value::Int(2))).with("a", None);
        assert_eq!(more, Object::new(vec![member("b", 2), member("c", 3)]).unwrap());
    }
}
