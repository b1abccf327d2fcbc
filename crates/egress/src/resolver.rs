//! Finds the addresses behind a name, the way every program of this host does.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// Who is asked for addresses.
#[derive(Debug, Clone)]
pub(crate) enum Resolver {
    /// The host's own look-up.
    Host,
    #[cfg(test)]
    Table(std::rc::Rc<dyn TestTable>),
}

#[cfg(test)]
pub(crate) trait TestTable: std::fmt::Debug {
    fn look_up(&self, name: &str) -> Vec<IpAddr>;
}

impl Resolver {
    /// Every address of a name, none of them looked at yet.
    pub(crate) async fn look_up(
        &self,
        name: &str,
        port: u16,
        patience: Duration,
    ) -> Result<Vec<IpAddr>, String> {
        let found: Vec<IpAddr> = match self {
            Self::Host => {
                let asked = tokio::time::timeout(patience, tokio::net::lookup_host((name, port)));
                let answer: io::Result<_> = asked
                    .await
                    .map_err(|_| "the look-up took too long".to_owned())?;
                let answer = answer.map_err(|_| "there is no such name".to_owned())?;
                answer.map(|address| address.ip()).collect()
            }
            #[cfg(test)]
            Self::Table(table) => {
                let _ = (port, patience);
                table.look_up(name)
            }
        };
        match found.is_empty() {
            true => Err("there is no such name".to_owned()),
            false => Ok(found),
        }
    }
}
