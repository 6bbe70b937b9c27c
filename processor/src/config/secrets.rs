//! Values of the references in connector files.

use std::path::PathBuf;

use oncely_connectors::secret::{Reference, Secret, SecretSource};

use super::environment::{Environment, read_value};

/// `${env:NAME}` from the environment, `${secret:name}` from a file of the secrets directory.
#[derive(Clone, Debug)]
pub struct Secrets {
    environment: Environment,
    dir: Option<PathBuf>,
}

impl Secrets {
    pub fn new(environment: &Environment) -> Self {
        let dir = environment.raw("ONCELY_SECRETS_DIR").map(PathBuf::from);
        Self { environment: environment.clone(), dir }
    }
}

impl SecretSource for Secrets {
    fn lookup(&self, reference: &Reference) -> Option<Secret> {
        match reference {
            Reference::Env { name, default: _ } => self.environment.raw(name).map(Secret::new),
            Reference::Secret { name } => {
                let path = self.dir.as_ref()?.join(&**name);
                match read_value(&path) {
                    Ok(value) => Some(Secret::new(value)),
                    Err(cause) => {
                        tracing::warn!(secret = &**name, %cause, "secret cannot be read");
                        None
                    }
                }
            }
        }
    }

    fn remedy(&self, reference: &Reference) -> String {
        match (reference, &self.dir) {
            (Reference::Env { .. }, _) => reference.remedy(),
            (Reference::Secret { name }, Some(dir)) => format!(
                "put a file into the directory that ONCELY_SECRETS_DIR names: {}",
                dir.join(&**name).display()
            ),
            (Reference::Secret { name }, None) => format!(
                "set ONCELY_SECRETS_DIR, which is not set, to a directory that has a file `{name}`"
            ),
        }
    }
}
