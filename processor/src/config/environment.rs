//! Where settings come from: flags, the process's environment, a settings file.
//!
//! The only place that reads the environment. `NAME_FILE` names a file that holds the value, as a
//! mounted secret is one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::error::{ConfigError, ConfigErrors};

/// Bytes that a file with one value may have.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// A snapshot of settings by name. Shows no values.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl Environment {
    /// The environment of this process. Names and values that are not UTF-8 are left out.
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn of_process() -> Self {
        let pairs = std::env::vars_os();
        Self(
            pairs
                .filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)))
                .collect(),
        )
    }

    /// For tests, which need no environment.
    pub fn of_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(pairs.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect())
    }

    /// Adds the lines `NAME=value` of a settings file under what is set already; `#` begins a
    /// comment line.
    ///
    /// # Errors
    /// [`ConfigError::Unreadable`], or every line that is no setting of ours.
    pub fn under_file(&mut self, path: &Path) -> Result<(), ConfigErrors> {
        let text = read(path)?;
        let mut errors = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = index.saturating_add(1);
            let Some((name, value)) = line.split_once('=') else {
                errors.push(ConfigError::NoSetting { path: path.to_owned(), line: at });
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            if !super::is_known(name) {
                let (name, meant) = (name.to_owned(), super::unknown::meant(name));
                let path = path.to_owned();
                errors.push(ConfigError::UnknownInFile { path, line: at, name, meant });
                continue;
            }
            self.0.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        if errors.is_empty() { Ok(()) } else { Err(ConfigErrors(errors)) }
    }

    /// A flag wins over what is set.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.remove(&format!("{name}_FILE"));
        self.0.insert(name.to_owned(), value.into());
    }

    /// The value as it is set; empty counts as not set.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The value of `name`, or the content of the file that `NAME_FILE` names, without the line end.
    ///
    /// # Errors
    /// [`ConfigError::SetTwice`] and [`ConfigError::Unreadable`].
    pub fn get(&self, name: &'static str) -> Result<Option<String>, ConfigError> {
        match (self.raw(name), self.raw(&format!("{name}_FILE"))) {
            (Some(_), Some(_)) => Err(ConfigError::SetTwice { name: name.to_owned() }),
            (Some(value), None) => Ok(Some(value.to_owned())),
            (None, Some(path)) => read_value(Path::new(path)).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Names and values that begin with `prefix`, without it.
    pub fn beginning<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
        let pairs = self.0.iter();
        pairs.filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }
}

/// The content of a file that holds one value, without the line end.
pub(super) fn read_value(path: &Path) -> Result<String, ConfigError> {
    let text = read(path)?;
    let value = text.strip_suffix('\n').unwrap_or(&text);
    Ok(value.strip_suffix('\r').unwrap_or(value).to_owned())
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: PathBuf::from(path), source };
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    if text.len() > VALUE_BYTES_MAX {
        return Err(ConfigError::TooLong { path: path.to_owned(), bytes_max: VALUE_BYTES_MAX });
    }
    Ok(text)
}
