//! Where a record lies, as rows say it and people read it.

/// Where a record was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[{}]@{}", self.topic, self.partition, self.offset)
    }
}

impl Origin {
    pub(super) fn of(
        topic: Option<String>,
        partition: Option<i32>,
        offset: Option<i64>,
    ) -> Option<Self> {
        Some(Self { topic: topic?, partition: partition?, offset: offset? })
    }
}
