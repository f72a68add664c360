//! What the server says of itself.
//!
//! The rule: only what every user may ask (`hello`, `buildInfo`), and of the primary.

use async_trait::async_trait;
use bson::{Document, doc};
use chrono::{DateTime, Utc};

use super::Mongo;
use crate::store::{Diagnostics, Engine, Error, Result, Schema, Topology};

impl Mongo {
    async fn tell(&self, doing: &str, command: &str) -> Result<Document> {
        self.patiently(doing, || {
            let db = self.0.client.database("admin");
            let command = doc! {command: 1};
            async move { Ok(db.run_command(command).await?) }
        })
        .await
    }
}

#[async_trait]
impl Diagnostics for Mongo {
    async fn engine(&self) -> Result<Engine> {
        let hello = self.tell("greeting the server", "hello").await?;
        let built = self.tell("asking for the version", "buildInfo").await?;
        let version = built.get_str("version").unwrap_or("unknown").to_owned();
        Ok(Engine::Mongo {
            version,
            topology: topology(&hello),
        })
    }

    async fn schema(&self) -> Result<Schema> {
        Mongo::schema(self).await
    }

    async fn missing_indexes(&self) -> Result<Vec<String>> {
        self.missing().await
    }

    async fn server_time(&self) -> Result<Option<DateTime<Utc>>> {
        let doing = "asking for the time";
        let hello = self.tell(doing, "hello").await?;
        let at = hello.get_datetime("localTime").ok();
        let at = at.and_then(|at| DateTime::from_timestamp_millis(at.timestamp_millis()));
        let unread = || Error::corrupt("the server's answer to hello", "it has no localTime");
        at.map(Some).ok_or_else(unread)
    }
}

fn topology(hello: &Document) -> Topology {
    if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        return Topology::Sharded;
    }
    match (hello.get_str("setName"), hello.get_array("hosts")) {
        (Ok(_), Ok(hosts)) => Topology::ReplicaSet {
            members: hosts.len(),
        },
        (Ok(_), Err(_)) => Topology::ReplicaSet { members: 1 },
        (Err(_), _) => Topology::Standalone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_how_it_is_laid_out() {
        for (hello, expected) in [
            (doc! {"ok": 1}, Topology::Standalone),
            (
                doc! {"setName": "rs0", "hosts": ["a:27017", "b:27017", "c:27017"]},
                Topology::ReplicaSet { members: 3 },
            ),
            (doc! {"msg": "isdbgrid"}, Topology::Sharded),
        ] {
            assert_eq!(topology(&hello), expected, "{hello}");
        }
    }
}
