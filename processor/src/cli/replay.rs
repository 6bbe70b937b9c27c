//! `oncely replay`: events that are on record, once more through the rules of their connector.

mod event;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use oncely_connectors::file::{Check, Compiled};
use oncely_core::key::{Hasher, Key};
use serde_json::json;

use self::event::{Came, Mode, Played, Rules};
use super::answer::{Answer, counted, whole_table};
use super::bar::Bar;
use super::context::{ChangeArgs, Context};
use super::exit::{CliError, Exit};
use super::load::load;
use super::moment;
use crate::kafka::{Admin, Fetched, TopicPartition};
use crate::store::admin::Change;
use crate::store::admin::replay::{self, Filter, Selected};
use crate::store::{self, PgConnection, StoreError, claim};

/// Events that one replay takes at most; more are taken in parts, by time.
const EVENTS_MAX: i64 = 100_000;
/// Events whose records are read together.
const CHUNK: usize = 200;

#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub(super) struct Replay {
    /// The connector's name
    connector: String,
    /// One event, by the id that `identity.id` gives
    #[arg(long, group = "which", conflicts_with_all = ["from", "to", "all"])]
    id: Option<String>,
    /// The tenant that `identity.tenant` gives
    #[arg(long)]
    tenant: Option<String>,
    /// Events that were first seen then or later
    #[arg(long, group = "which", value_name = "TIME", value_parser = moment::parse)]
    from: Option<DateTime<Utc>>,
    /// Events that were first seen before
    #[arg(long, group = "which", value_name = "TIME", value_parser = moment::parse)]
    to: Option<DateTime<Utc>>,
    /// Every event that is on record
    #[arg(long, group = "which", conflicts_with_all = ["from", "to"])]
    all: bool,
    /// Events of one entity, by what `state.key` gives
    #[arg(long, group = "which", value_name = "KEY")]
    entity: Option<String>,
    /// Events that ended so
    #[arg(long, group = "which", value_parser = ["applied", "stale"])]
    outcome: Option<String>,
    /// Events that were first read from this topic
    #[arg(long, group = "which")]
    topic: Option<String>,
    /// Of that topic, events of one partition
    #[arg(long, requires = "topic")]
    partition: Option<i32>,
    /// What becomes of effects: skip, missing, or rerun=ID[,ID]
    #[arg(long, value_name = "WHAT", default_value = "skip", value_parser = wanted)]
    effects: Wanted,
    /// Names this replay: an effect is run again once for each name [default: a new one]
    #[arg(long, value_name = "NAME")]
    request: Option<String>,
    /// Connector files or directories [setting: ONCELY_CONNECTORS]
    #[arg(long, value_name = "PATH")]
    connectors: Vec<PathBuf>,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Skip,
    Missing,
    Rerun(Vec<String>),
}

fn wanted(text: &str) -> Result<Wanted, String> {
    match text.split_once('=') {
        None if text == "skip" => Ok(Wanted::Skip),
        None if text == "missing" => Ok(Wanted::Missing),
        Some(("rerun", ids)) if !ids.is_empty() => {
            Ok(Wanted::Rerun(ids.split(',').map(|id| id.trim().to_owned()).collect()))
        }
        _ => Err("write skip, missing, or rerun=ID".to_owned()),
    }
}

impl Replay {
    pub(super) async fn run(self, context: &Context) -> Result<Answer, CliError> {
        let change = context.change(&self.change)?;
        let compiled = self.compiled(context)?;
        let mode = self.mode(&compiled)?;
        let mut connection = context.connect("replay").await?;
        let filter = self.filter(&compiled)?;
        let events = replay::select(&mut connection, &filter).await?;
        if i64::try_from(events.len()).unwrap_or(i64::MAX) >= EVENTS_MAX {
            return Err(CliError::Usage(format!(
                "these are {EVENTS_MAX} events or more: take them in parts, with --from and --to"
            )));
        }
        if events.is_empty() {
            return Ok(self.nothing());
        }
        let request = self.request.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let rules = Rules {
            compiled: &compiled,
            mode: &mode,
            request: &request,
            is_named: self.request.is_some(),
            file: file_of(&compiled),
        };
        let mut player = Player { context, rules, change: &change, admin: None };
        if mode == Mode::Skip {
            let came = events.iter().map(|_| Played::of(Came::Absorbed)).collect::<Vec<_>>();
            return Ok(answer(&mode, &events, &came, None, &request));
        }
        if change.dry_run {
            let came = player.play(&mut connection, &events, true).await?;
            return Ok(answer(&mode, &events, &came, Some(false), &request));
        }
        if !context.yes {
            // Counts come first.
            let came = player.play(&mut connection, &events, true).await?;
            let would = answer(&mode, &events, &came, Some(false), &request);
            context.confirm(&format!("{}Do it?", would.text))?;
        }
        let came = player.play(&mut connection, &events, false).await?;
        Ok(answer(&mode, &events, &came, Some(true), &request))
    }

    fn compiled(&self, context: &Context) -> Result<Compiled, CliError> {
        let all = load(context, &self.connectors, Check::Offline)?.connectors()?;
        let named = all.into_iter().find(|one| *one.connector.name == *self.connector);
        named.ok_or_else(|| {
            let name = &self.connector;
            CliError::Usage(format!(
                "no file here has connector {name}: name it with --connectors, as it runs"
            ))
        })
    }

    fn mode(&self, compiled: &Compiled) -> Result<Mode, CliError> {
        let rerun = match &self.effects {
            Wanted::Skip => return Ok(Mode::Skip),
            Wanted::Missing => return Ok(Mode::Missing),
            Wanted::Rerun(ids) => ids,
        };
        let index = |id: &String| {
            let found = compiled.connector.effects.iter().position(|rule| *rule.id == **id);
            found.ok_or_else(|| {
                CliError::Usage(format!("connector {} has no effect {id}", self.connector))
            })
        };
        Ok(Mode::Rerun(rerun.iter().map(index).collect::<Result<_, _>>()?))
    }

    fn filter(&self, compiled: &Compiled) -> Result<Filter, CliError> {
        let tenant = self.tenant.as_deref().unwrap_or_default();
        let scope = &compiled.connector.scope;
        let event = self.id.as_ref().map(|id| Key::event(scope, tenant, id));
        let entity = match (&self.entity, &compiled.connector.state) {
            (None, _) => None,
            (Some(id), Some(state)) => Some(Key::entity(scope, tenant, &state.entity, id)),
            (Some(_), None) => {
                let text =
                    format!("connector {} has no entities: it has no `state`", self.connector);
                return Err(CliError::Usage(text));
            }
        };
        Ok(Filter {
            connector: self.connector.clone(),
            event,
            tenant: self.tenant.clone(),
            from: self.from,
            to: self.to,
            outcome: self.outcome.clone(),
            entity,
            topic: self.topic.clone(),
            partition: self.partition,
            limit: EVENTS_MAX,
        })
    }

    fn nothing(&self) -> Answer {
        let tenant = match (self.id.as_ref().or(self.entity.as_ref()), &self.tenant) {
            (Some(_), None) => "; with `identity.tenant`, name the --tenant",
            _ => "",
        };
        let text = format!(
            "nothing like that has run for {}: what is deferred or parked has not run yet, and what retention \
             has removed is not run again{tenant}",
            self.connector
        );
        Answer { exit: Exit::Failed, ..Answer::new(text, json!({ "selected": 0 })) }
    }
}

/// The file that decides, as it was read: what an audit row says of it.
fn file_of(compiled: &Compiled) -> String {
    let text = std::fs::read(&compiled.file).unwrap_or_default();
    let hash = Hasher::new("connector file").bytes(&text).finish().to_string();
    format!("{} ({})", compiled.file, hash.get(..12).unwrap_or(&hash))
}

/// Plays events, chunk by chunk.
struct Player<'a> {
    context: &'a Context,
    rules: Rules<'a>,
    change: &'a Change,
    admin: Option<Admin>,
}

/// A record as it is kept, or as Kafka has it.
type Records = BTreeMap<Key, Fetched>;

impl Player<'_> {
    /// What became of each event, in order. `dry`: what would become of it.
    async fn play(
        &mut self,
        connection: &mut PgConnection,
        events: &[Selected],
        dry: bool,
    ) -> Result<Vec<Played>, CliError> {
        let mut came = Vec::with_capacity(events.len());
        let many = |events: usize| u64::try_from(events).unwrap_or(u64::MAX);
        let bar = Bar::of(many(events.len()), "events");
        for chunk in events.chunks(CHUNK) {
            bar.at(many(came.len()));
            let records = self.records(connection, chunk).await?;
            for event in chunk {
                let record = records.get(&event.key);
                let mut tx = store::begin(connection).await?;
                let played = event::play(&mut tx, &self.rules, event, record, self.change).await?;
                let ended = if dry { tx.rollback().await } else { tx.commit().await };
                ended.map_err(StoreError::from)?;
                came.push(played);
            }
        }
        Ok(came)
    }

    /// The records of events: their kept bytes, or what the topic still has.
    async fn records(
        &mut self,
        connection: &mut PgConnection,
        events: &[Selected],
    ) -> Result<Records, CliError> {
        let keys: Vec<Key> = events.iter().map(|event| event.key).collect();
        let mut records = Records::new();
        for (key, payload) in claim::payloads(connection, &keys).await? {
            records.extend(event::kept(&payload).map(|record| (key, record)));
        }
        let mut wanted: BTreeMap<(&str, &str, i32), BTreeMap<i64, Key>> = BTreeMap::new();
        for event in events.iter().filter(|event| !records.contains_key(&event.key)) {
            let place = (event.topic.as_str(), event.topic_id.as_str(), event.partition);
            wanted.entry(place).or_default().insert(event.offset, event.key);
        }
        for ((topic, topic_id, partition), offsets) in wanted {
            let sorted: Vec<i64> = offsets.keys().copied().collect();
            let found = self.fetch(topic, topic_id, partition, &sorted).await?;
            let keyed = found.into_iter();
            records.extend(keyed.filter_map(|(at, record)| Some((*offsets.get(&at)?, record))));
        }
        Ok(records)
    }

    async fn fetch(
        &mut self,
        topic: &str,
        topic_id: &str,
        partition: i32,
        sorted: &[i64],
    ) -> Result<BTreeMap<i64, Fetched>, CliError> {
        let group = &*self.rules.compiled.connector.source.group;
        let admin = match self.admin.take() {
            Some(admin) => admin,
            None => self.context.kafka(group)?,
        };
        let admin = self.admin.insert(admin);
        let failed = |source| self.context.kafka_failed(source);
        // Another topic of the same name has other records at these offsets.
        let ids = admin.topic_ids(&[topic.to_owned()]).await.map_err(failed)?;
        let is_same =
            ids.get(topic).is_none_or(|id| topic_id.is_empty() || id.to_string() == topic_id);
        if !is_same {
            return Ok(BTreeMap::new());
        }
        let partition = TopicPartition::new(topic, partition);
        admin.records(&partition, sorted).await.map_err(failed)
    }
}

fn answer(
    mode: &Mode,
    events: &[Selected],
    came: &[Played],
    done: Option<bool>,
    request: &str,
) -> Answer {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut effects: BTreeMap<String, usize> = BTreeMap::new();
    // Of events that share an effect the first adds it.
    let mut added_keys: BTreeSet<Key> = BTreeSet::new();
    let mut reasons: Vec<String> = Vec::new();
    for (event, played) in events.iter().zip(came) {
        let count = counts.entry(played.came.as_str()).or_insert(0);
        *count = count.saturating_add(1);
        for (_, effect) in played.effects.iter().filter(|(key, _)| added_keys.insert(*key)) {
            let count = effects.entry(effect.clone()).or_insert(0);
            *count = count.saturating_add(1);
        }
        if let Some(why) = played.why.as_ref().filter(|_| reasons.len() < 20) {
            reasons.push(format!("{}[{}]@{}: {why}", event.topic, event.partition, event.offset));
        }
    }
    let cells = counts.iter().map(|(what, count)| vec![(*what).to_owned(), count.to_string()]);
    let mut text = whole_table(&["events", "count"], cells.collect());
    if !effects.is_empty() {
        let cells = effects.iter().map(|(what, count)| vec![what.clone(), count.to_string()]);
        let head = if done == Some(true) { "effects added" } else { "effects to be added" };
        text.push_str(&whole_table(&[head, "count"], cells.collect()));
    }
    reasons.iter().for_each(|reason| text.push_str(&format!("{}\n", super::answer::shown(reason))));
    let selected = counted(events.len(), "event");
    let added: usize = effects.values().sum();
    let adding = came.iter().filter(|played| played.came == Came::Added).count();
    let (added_text, adding_text) = (counted(added, "effect"), counted(adding, "event"));
    text.push_str(&match (mode, done) {
        (Mode::Skip, _) => format!(
            "{selected} on record: each would be absorbed as a repeat, and nothing run; --effects missing adds \
             what the file owes and is not on record\n"
        ),
        (_, Some(true)) => {
            format!("replayed {selected}: {added_text} added, by {adding_text}; request {request}\n")
        }
        (_, _) => format!(
            "would replay {selected}: {added_text} would be added, by {adding_text}; nothing was \
             changed\n"
        ),
    });
    let suspect: usize = came.iter().map(|played| played.suspect).sum();
    if suspect > 0 {
        text.push_str(&format!(
            "{suspect} of them may have been done before, in what the failover of the database has lost: they are \
             repeated by their key, asked for, or held\n"
        ));
    }
    let json = json!({
        "selected": events.len(),
        "outcomes": counts,
        "effects": effects,
        "effects_added": added,
        "effects_suspect": suspect,
        "events_with_effects_added": adding,
        "reasons": reasons,
        "request": request,
        "done": done.unwrap_or(false),
    });
    let failed =
        |came: &Came| matches!(came, Came::Gone | Came::Differs | Came::Refused | Came::Open);
    let exit = if came.iter().any(|played| failed(&played.came)) { Exit::Failed } else { Exit::Ok };
    Answer { exit, ..Answer::new(text, json) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_says_how_many_events_and_how_many_effects() {
        let event = |n: u8| Selected {
            key: Key::from_bytes([n; 16]),
            fingerprint: oncely_core::fingerprint::Fingerprint(Key::from_bytes([n; 16])),
            entity: None,
            version: 0,
            is_stale: false,
            tenant: String::new(),
            from_state: None,
            to_state: None,
            first_seen_at: DateTime::UNIX_EPOCH,
            age_ms: 0,
            source: 1,
            topic: "t".to_owned(),
            topic_id: String::new(),
            cluster_id: String::new(),
            partition: 0,
            offset: n.into(),
            connector_id: 1,
        };
        let added = |effects: &[(u8, &str)]| Played {
            effects: (effects.iter())
                .map(|(n, name)| (Key::from_bytes([*n; 16]), (*name).to_owned()))
                .collect(),
            ..Played::of(Came::Added)
        };
        let events = [event(1), event(2), event(3)];
        // The last one owes the same `crm` as the first.
        let last = added(&[(1, "crm"), (3, "receipt")]);
        let came = [added(&[(2, "receipt"), (1, "crm")]), Played::of(Came::Absorbed), last];
        let would = answer(&Mode::Missing, &events, &came, Some(false), "r");
        insta::assert_snapshot!(would.text, @r"
        EVENTS    COUNT
        absorbed  1
        added     2
        EFFECTS TO BE ADDED  COUNT
        crm                  1
        receipt              2
        would replay 3 events: 3 effects would be added, by 2 events; nothing was changed
        ");
        assert_eq!(would.json["effects_added"], 3);
        assert_eq!(would.json["events_with_effects_added"], 2);
        let done = answer(&Mode::Missing, &events, &came, Some(true), "r").text;
        assert!(done.contains("replayed 3 events: 3 effects added, by 2 events"), "{done}");
    }

    #[test]
    fn effects_are_named_one_by_one_to_run_again() {
        assert_eq!(wanted("skip"), Ok(Wanted::Skip));
        assert_eq!(wanted("missing"), Ok(Wanted::Missing));
        assert_eq!(wanted("rerun=a, b"), Ok(Wanted::Rerun(vec!["a".to_owned(), "b".to_owned()])));
        for text in ["rerun", "rerun=", "all", ""] {
            assert!(wanted(text).is_err(), "{text}");
        }
    }
}
