//! The commands on a real database of their own.

use std::ffi::OsString;

use clap::Parser;
use oncely_core::key::Key;
use oncely_rig::postgres::{Cluster, PostgresOptions};
use serde_json::Value;

use super::answer::{Answer, Output};
use super::*;

mod key_rules;
mod names;

/// A cluster with the schema in it, and a runtime to talk to it.
struct World {
    runtime: tokio::runtime::Runtime,
    cluster: Cluster,
}

impl World {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let cluster = runtime.block_on(Cluster::start(&PostgresOptions::quick())).unwrap();
        Self { runtime, cluster }
    }

    fn sql(&self, statements: &str) -> Vec<oncely_rig::postgres::Row> {
        self.runtime.block_on(async {
            let mut wire = self.cluster.connect("postgres").await.unwrap();
            wire.run(statements).await.unwrap()
        })
    }

    fn context(&self, args: &[&str]) -> (Context, Command) {
        let args = ["oncely"].iter().chain(args).map(OsString::from);
        let cli = Cli::try_parse_from(args).unwrap();
        let url = self.cluster.url("postgres");
        let pairs = [("ONCELY_DATABASE_URL", url.as_str()), ("ONCELY_ACTOR", "ana")];
        let context = cli.global.context(Environment::of_pairs(pairs)).unwrap();
        assert_eq!(context.output, Output::Table);
        (context, cli.command)
    }

    fn try_oncely(&self, args: &[&str]) -> Result<Answer, CliError> {
        let (context, command) = self.context(args);
        started(command, &context)
    }

    fn oncely(&self, args: &[&str]) -> Answer {
        self.try_oncely(args).unwrap()
    }

    /// The answer for people, and that it could be given to machines as well.
    fn text(&self, args: &[&str]) -> String {
        let answer = self.oncely(args);
        assert!(answer.json.is_object());
        answer.text
    }

    fn effect(&self, key: Key) -> Value {
        self.oncely(&["effects", "show", &key.wire()]).json
    }
}

fn effect_key(n: u8) -> Key {
    Key::from_bytes([n; 16])
}

/// One event with a held effect and one that comes after it, a quarantined record, a stopped
/// partition.
fn seed() -> String {
    let event = Key::event("invoices", "acct_7", "in_1");
    let entity = Key::entity("invoices", "acct_7", "invoice", "1");
    let (first, second) = (effect_key(1), effect_key(2));
    let at = "'2026-11-29T10:02:11Z'";
    format!(
        "INSERT INTO oncely.connector (name, scope, group_name, effects)
            VALUES ('other', 'other', 'g0', '{{}}'),
                ('invoice-paid', 'invoices', 'g', '{{settle,receipt}}');
        INSERT INTO oncely.source (connector, cluster_id, topic_id, topic)
            VALUES (2, 'c', 't', 'billing.invoices.v1');
        INSERT INTO oncely.inbox (key, fingerprint, entity, version, first_offset, first_seen_at,
                first_partition, source, outcome, tenant, from_state, to_state, effects)
            VALUES ('{event}', '{event}', '{entity}', 7, 88121, {at}, 3, 1, 'applied', 'acct_7',
                'open', 'paid', '{{{first},{second}}}');
        INSERT INTO oncely.entity (key, event, version, tenant, state)
            VALUES ('{entity}', '{event}', 7, 'acct_7', 'paid');
        INSERT INTO oncely.repeat (key, last_seen_at, last_offset, times, partition, source)
            VALUES ('{event}', '2026-11-29T10:05:40Z', 88990, 2, 3, 1);
        INSERT INTO oncely.effect (key, event, lane, request_hash, fence, version, created_at,
                first_sent_at, last_sent_at, unknown_at, connector, attempts, ordinal, was_unknown, status,
                name, tenant, business_id, note, request)
            VALUES ('{first}', '{event}', '{entity}', '{event}', 5, 7, {at}, {at}, {at}, {at}, 2, 1, 0,
                true, 'held', 'settle', 'acct_7', 'in_1', 'it may have been applied',
                '{{\"kind\":\"http\"}}');
        INSERT INTO oncely.effect (key, event, lane, request_hash, version, created_at, connector,
                ordinal, status, name, tenant, business_id, after_keys)
            VALUES ('{second}', '{event}', '{entity}', '{event}', 7, {at}, 2, 1, 'waiting',
                'receipt', 'acct_7', 'in_1', '{{{first}}}');
        INSERT INTO oncely.attempt (effect, fence, worker, at, outcome, note)
            VALUES ('{first}', 5, '{event}', '2026-11-29T10:02:26Z', 'unknown', 'timed out');
        INSERT INTO oncely.parked (event, record_offset, parked_at, record_partition, source,
                connector, kind, reason, tenant, business_id, detail, record_key, value, headers)
            VALUES ('{event}', 4, '2026-11-29T10:06:00Z', 0, 1, 2, 'quarantine', 'conflict',
                'acct_7', 'in_1', 'same id, other content', '\\x6b', '\\xff00', '[]');
        INSERT INTO oncely.progress (group_name, cluster_id, topic, topic_id, partition, position,
                updated_at, stopped)
            VALUES ('g', 'c', 'billing.invoices.v1', 't', 3, 88000, {at}, 'the topic was recreated'),
                ('g', 'c', 'billing.invoices.v1', 't', 4, 10, {at}, NULL);"
    )
}

#[test]
fn the_commands_on_a_real_database() {
    let world = World::new();
    assert_eq!(world.oncely(&["migrate", "status"]).exit, Exit::Failed);
    assert!(world.try_oncely(&["effects", "list"]).is_err());
    assert_eq!(world.text(&["migrate", "up"]), "applied 1 spine\n");
    assert_eq!(world.text(&["migrate", "up"]), "up to date\n");
    assert_eq!(world.oncely(&["migrate", "status"]).exit, Exit::Ok);
    world.sql(&seed());

    let mut said = String::new();
    for args in [
        &["explain", "in_1", "--tenant", "acct_7"][..],
        &["explain", "in_1"],
        &["effects", "list", "--status", "held", "--status", "waiting"],
        &["effects", "list", "--connector", "other"],
        &["effects", "show", &effect_key(1).wire()],
        &["quarantine", "list"],
        &["quarantine", "show", "1"],
        &["dlq", "list"],
        &["progress", "list"],
    ] {
        said.push_str(&format!("$ oncely {}\n{}\n", args.join(" "), world.text(args)));
    }
    insta::assert_snapshot!("answers", said);
    assert_eq!(world.oncely(&["explain", "in_2", "--tenant", "acct_7"]).exit, Exit::Failed);

    every_tenant(&world);
    names::cut_lists(&world);
    resolving(&world);
    resolving_many(&world);
    names::that_nobody_has(&world);
    accepting(&world);
    counting(&world);
    orphaned(&world);
}

/// One id under three tenants and two connectors.
fn every_tenant(world: &World) {
    for (scope, tenant, offset) in
        [("invoices", "acct_8", 5), ("invoices", "", 6), ("other", "", 7)]
    {
        let event = Key::event(scope, tenant, "in_1");
        world.sql(&format!(
            "INSERT INTO oncely.inbox (key, fingerprint, first_offset, first_partition, source, outcome,
                tenant, effects) VALUES ('{event}', '{event}', {offset}, 3, 1, 'applied', '{tenant}', NULL)"
        ));
    }
    let found = |args: &[&str]| {
        let json = world.oncely(&[&["explain", "in_1"][..], args].concat()).json;
        let text = |found: &Value, name: &str| found[name].as_str().unwrap().to_owned();
        let found = json["found"].as_array().unwrap().iter();
        let mut found: Vec<String> = found
            .map(|found| format!("{}/{}", text(found, "connector"), text(found, "tenant")))
            .collect();
        found.sort();
        found.join(" ")
    };
    assert_eq!(found(&[]), "invoice-paid/ invoice-paid/acct_7 invoice-paid/acct_8 other/");
    assert_eq!(found(&["--tenant", "acct_8"]), "invoice-paid/acct_8");
    assert_eq!(found(&["--connector", "other"]), "other/");
    world.sql("DELETE FROM oncely.inbox WHERE tenant <> 'acct_7'");
}

fn resolving(world: &World) {
    let (first, second) = (effect_key(1).wire(), effect_key(2).wire());
    let resolve = |key: &str, word: &str, more: &[&str]| {
        let args = ["effects", "resolve", key, "--as", word, "--reason", "INC-7", "--yes"];
        world.oncely(&[&args[..], more].concat())
    };
    let blocked = resolve(&second, "skipped", &[]);
    assert_eq!(blocked.exit, Exit::Failed);
    assert!(blocked.text.contains("waits for an earlier effect"), "{}", blocked.text);

    let nobody = resolve(&first, "lookup", &[]);
    assert_eq!(nobody.exit, Exit::Failed);
    assert!(nobody.text.contains("has no `lookup`"), "{}", nobody.text);

    let dry = resolve(&first, "done", &["--dry-run"]);
    assert!(dry.text.contains("nothing was changed"), "{}", dry.text);
    assert_eq!(world.effect(effect_key(1))["status"], "held");

    resolve(&first, "retry", &["--by", "ben"]);
    let retried = world.effect(effect_key(1));
    assert_eq!(retried["status"], "waiting");
    assert_eq!(retried["was_unknown"], false);
    assert!(retried["due_at"].is_string());
    assert!(world.effect(effect_key(2))["due_at"].is_null());

    let args = ["effects", "resolve", &first, "--as", "done", "--reason", "x", "--yes"];
    let twice = [&args[..], &["--result", r#"{"id":1,"id":2}"#]].concat();
    let twice = world.try_oncely(&twice).unwrap_err().to_string();
    assert!(twice.contains("--result is refused") && twice.contains("twice"), "{twice}");
    resolve(&first, "done", &["--result", r#"{"id": "st_55"}"#]);
    let done = world.effect(effect_key(1));
    assert_eq!(done["status"], "done");
    assert_eq!(done["result"]["text"], r#"{"id":"st_55"}"#);
    assert!(world.effect(effect_key(2))["due_at"].is_string(), "the successor was woken");

    let twice = resolve(&first, "retry", &[]);
    assert_eq!(twice.exit, Exit::Failed);
    assert!(twice.text.contains("it is final"), "{}", twice.text);

    let json = world.oncely(&["explain", "in_1", "--tenant", "acct_7"]).json;
    let states = json["found"][0]["timeline"].as_array().unwrap();
    let by_hand = states.iter().filter(|entry| entry["state"] == "BY HAND");
    assert_eq!(by_hand.count(), 2, "every override has an audit row: {json:#}");
    // Whoever is named, else whoever the environment knows.
    let text = world.text(&["explain", "in_1", "--tenant", "acct_7"]);
    assert!(text.contains("by ben: INC-7") && text.contains("by ana: INC-7"), "{text}");
}

/// By filters: only what is held, each with an audit row, and nothing that is not meant.
fn resolving_many(world: &World) {
    let lane = Key::from_bytes([0x55; 16]);
    let insert = |n: u8, connector: u8, name: &str, status: &str, days: u8| {
        let (key, due) = (effect_key(n), if status == "waiting" { "now()" } else { "NULL" });
        world.sql(&format!(
            "INSERT INTO oncely.effect (key, event, lane, request_hash, connector, ordinal, status,
                name, tenant, business_id, created_at, due_at)
             VALUES ('{key}', '{key}', '{key}', '{lane}', {connector}, 0, '{status}', '{name}', '',
                'many_{n}', now() - interval '{days} days', {due})"
        ));
    };
    insert(20, 2, "settle", "held", 9);
    insert(21, 2, "settle", "held", 5);
    insert(22, 2, "settle", "held", 1);
    insert(23, 2, "settle", "waiting", 5);
    insert(24, 2, "receipt", "held", 5);
    let filters =
        ["--connector", "invoice-paid", "--effect", "settle", "--from", "7d", "--to", "2d"];
    let resolve = |filters: &[&str], more: &[&str]| {
        let args = ["effects", "resolve", "--as", "skipped", "--reason", "INC-9", "--yes"];
        world.oncely(&[&args[..], filters, more].concat())
    };
    let dry = resolve(&filters, &["--dry-run"]);
    assert_eq!(dry.json["changed"], 1, "{}", dry.text);
    assert_eq!(world.effect(effect_key(21))["status"], "held");
    let audited = || world.sql("SELECT id FROM oncely.audit WHERE reason = 'INC-9'").len();
    assert_eq!(audited(), 0);
    world.sql(&format!(
        "UPDATE oncely.effect SET last_sent_at = now() - interval '1 hour' WHERE key = '{}'",
        effect_key(22)
    ));
    let sent = |from: &str, to: &str| {
        let filters = ["--sent-from", from, "--sent-to", to, "--dry-run"];
        let args = ["effects", "resolve", "--as", "skipped", "--reason", "INC-9", "--yes"];
        world.oncely(&[&args[..], &filters].concat()).json["rows"][0]["key"].clone()
    };
    assert_eq!(sent("2h", "30m"), effect_key(22).wire(), "when it was sent, not owed");
    assert_eq!(resolve(&filters, &[]).json["changed"], 1);
    assert_eq!(world.effect(effect_key(21))["status"], "skipped");
    assert_eq!(world.effect(effect_key(20))["status"], "held");
    assert_eq!(world.effect(effect_key(23))["status"], "waiting", "not held");
    assert_eq!(audited(), 1);
    let rest = resolve(&["--all", "--state", "held"], &[]);
    assert_eq!(rest.json["changed"], 3, "{}", rest.text);
    assert_eq!(audited(), 4, "one audit row each");
    insert(25, 2, "settle", "held", 5);
    insert(26, 2, "settle", "held", 4);
    let cut = resolve(&["--connector", "invoice-paid", "--limit", "1"], &["--dry-run"]);
    assert!(cut.text.contains("1 more are meant, and were not looked at"), "{}", cut.text);
    assert_eq!((&cut.json["changed"], &cut.json["more"]), (&1.into(), &1.into()));
    let all = resolve(&["--connector", "invoice-paid"], &["--dry-run"]);
    assert_eq!((&all.json["changed"], &all.json["more"]), (&2.into(), &0.into()), "{}", all.text);
    // Never sent: no attempt was begun, and none of its records may be on its way.
    world.sql(&format!(
        "UPDATE oncely.effect SET first_sent_at = now() WHERE key = '{}';
         UPDATE oncely.effect SET status = 'waiting', due_at = 'infinity' WHERE key = '{}'",
        effect_key(25),
        effect_key(26)
    ));
    let never = resolve(&["--never-sent", "--effect", "settle"], &["--dry-run"]);
    let keys =
        never.json["rows"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap());
    assert_eq!(keys.collect::<Vec<_>>(), [effect_key(23).wire()], "{}", never.text);
    let listed = world.oncely(&["effects", "list", "--never-sent", "--effect", "settle"]);
    assert_eq!(listed.json["total"], 1, "{}", listed.text);
    // What is to be sent now goes when its lane lets it through.
    world.sql(&format!(
        "INSERT INTO oncely.attempt (effect, fence, worker, outcome)
            VALUES ('{0}', 1, '{0}', 'halted');
         UPDATE oncely.effect SET attempts = 1 WHERE key = '{0}'",
        effect_key(25)
    ));
    let key = effect_key(25).wire();
    let retry = ["effects", "resolve", &key, "--as", "retry", "--reason", "key mended", "--yes"];
    let retried = world.oncely(&retry).text;
    assert!(
        retried.contains("the lane of settle is halted") && retried.contains("30 s"),
        "{retried}"
    );
    let waiting = effect_key(23).wire();
    let two = resolve(&[&waiting, &effect_key(20).wire()], &[]);
    assert_eq!(
        (&two.json["changed"], &two.json["rows"][0]["left"]),
        (&1.into(), &"it is final".into())
    );
    let none = ["effects", "resolve", "--as", "done", "--reason", "x", "--yes", "--all"];
    assert!(world.try_oncely(&none).unwrap_err().to_string().contains("no effect is meant"));
    world.sql("DELETE FROM oncely.effect WHERE business_id LIKE 'many%'");
}

fn accepting(world: &World) {
    let accept = ["progress", "accept", "--group", "g", "--topic", "billing.invoices.v1"];
    let rest = ["--all", "--at", "118", "--reason", "INC-8", "--yes"];
    let dry = world.text(&[&accept[..], &rest, &["--dry-run"]].concat());
    assert!(dry.contains("would accept 1 partition"), "{dry}");
    let answer = world.oncely(&[&accept[..], &rest].concat());
    assert_eq!(answer.json["accepted"][0]["was_at"], 88_000);
    let again = world.try_oncely(&[&accept[..], &rest].concat()).unwrap_err();
    assert!(again.to_string().contains("nothing of billing.invoices.v1 is stopped"), "{again}");
    let listed = world.oncely(&["progress", "list"]).json;
    assert_eq!(listed["progress"][0]["position"], 118);
    assert_eq!(listed["progress"][0]["epoch"], 2);
    assert_eq!(listed["progress"][1]["epoch"], 1);
}

fn open_things(world: &World, me: uuid::Uuid) -> Option<crate::telemetry::OpenThings> {
    world.runtime.block_on(async {
        let settings = crate::store::Settings::parse(&world.cluster.url("postgres")).unwrap();
        let mut connection = settings.connect("test").await.unwrap();
        crate::store::admin::open::count(&mut connection, me).await.unwrap()
    })
}

/// One worker counts what is open, the others stay silent.
fn counting(world: &World) {
    let (eldest, second) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
    world.sql(&format!(
        "INSERT INTO oncely.worker (id, started_at, lease_ms, host)
         VALUES ('{eldest}', now() - interval '1 hour', 5000, 'a'), ('{second}', now(), 5000, 'b')"
    ));
    let count = |me| open_things(world, me);
    assert_eq!(count(second), None);
    let open = count(eldest).unwrap();
    assert_eq!(open.effects.len(), 1);
    assert_eq!(open.effects[0].effect, "receipt");
    assert_eq!(open.parked[0].quarantined, 1);
}

/// Effects whose id or connector is gone from the files that run.
fn orphaned(world: &World) {
    let (dying, lane) = (uuid::Uuid::from_u128(9), Key::from_bytes([0x77; 16]));
    let (claimed, after) = (effect_key(3), effect_key(4));
    // The file was changed while one worker had a claim: `receipt` and `notify` are gone.
    world.sql(&format!(
        "UPDATE oncely.connector SET effects = '{{settle}}' WHERE name = 'invoice-paid';
         UPDATE oncely.worker SET heartbeat_at = now() + interval '1 hour';
         INSERT INTO oncely.worker (id, heartbeat_at, lease_ms, host)
            VALUES ('{dying}', now() + interval '1 hour', 5000, 'c');
         INSERT INTO oncely.effect (key, event, lane, worker, request_hash, fence, connector, ordinal,
                status, name, tenant, business_id)
            VALUES ('{claimed}', '{lane}', '{lane}', '{dying}', '{lane}', 8, 2, 0, 'claimed', 'notify',
                'acct_7', 'in_9');
         INSERT INTO oncely.effect (key, event, lane, request_hash, connector, ordinal, status, name,
                tenant, business_id, after_keys)
            VALUES ('{after}', '{lane}', '{lane}', '{lane}', 2, 1, 'waiting', 'settle', 'acct_7',
                'in_9', '{{{claimed}}}')"
    ));
    let orphans = || {
        let found = world.oncely(&["effects", "list", "--orphaned"]).json;
        let names = found["effects"].as_array().unwrap().iter();
        let mut names: Vec<String> =
            names.map(|one| one["effect"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(orphans(), "notify receipt");
    let open = open_things(world, uuid::Uuid::from_u128(1)).unwrap().effects;
    let counted = open.iter().filter(|one| one.orphaned).map(|one| (&*one.effect, one.count));
    assert_eq!(counted.collect::<Vec<_>>(), [("notify", 1), ("receipt", 1)]);
    let text = world.text(&["effects", "list", "--orphaned"]);
    assert!(text.contains("claimed (orphaned)") && text.contains("waiting (orphaned)"), "{text}");
    assert!(world.text(&["effects", "show", &claimed.wire()]).contains("bring it back"));
    assert_eq!(world.effect(claimed)["orphaned"], true);
    assert_eq!(world.effect(effect_key(1))["orphaned"], false, "what is final is owed by nobody");
    let text = world.text(&["explain", "in_1", "--tenant", "acct_7"]);
    assert!(text.contains("orphaned: no connector file that runs has it"), "{text}");

    // A file that is about to run is asked beforehand.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../connectors/examples/invoice-paid.yaml");
    let context = world.context(&["validate", file]).0;
    let check = oncely_connectors::file::Check::Offline;
    let compiled = load::load(&context, &[file.into()], check).unwrap().connectors().unwrap();
    let looked = world.runtime.block_on(validate::orphans(&context, &compiled, false));
    let said: Vec<_> = looked.iter().map(|looked| looked.wrong.clone().unwrap()).collect();
    assert!(looked.iter().all(|looked| looked.warns));
    assert!(said.len() == 1 && said[0].starts_with("1 notify would be orphaned"), "{said:?}");
    // Of a connector that other files may have: what is orphaned already is wrong, and nothing else.
    let looked = world.runtime.block_on(validate::orphans(&context, &[], false));
    assert!(looked.len() == 1 && looked[0].warns, "{:?}", looked[0].wrong);
    let has = |effects: &str| {
        let set = format!("UPDATE oncely.connector SET effects = '{effects}'");
        world.sql(&format!("{set} WHERE name = 'invoice-paid'"));
    };
    has("{settle,receipt,notify}");
    let looked = world.runtime.block_on(validate::orphans(&context, &[], false));
    let what = &looked[0].what;
    assert!(looked[0].wrong.is_none() && what.contains("1 settle, which none"), "{what}");
    has("{settle}");
    let looked = world.runtime.block_on(validate::orphans(&context, &[], true));
    let said = looked[0].wrong.clone().unwrap();
    assert!(said.starts_with("1 notify, 1 receipt, 1 settle would be orphaned"), "{said}");

    let resolve = |key: Key, word: &str, more: &[&str]| {
        let key = key.wire();
        let args = ["effects", "resolve", &key, "--as", word, "--reason", "INC-9", "--yes"];
        world.oncely(&[&args[..], more].concat())
    };
    let living = resolve(claimed, "done", &[]);
    assert!(living.text.contains("a worker is sending it now"), "{}", living.text);
    world.sql(&format!("UPDATE oncely.worker SET dead_at = now() WHERE id = '{dying}'"));
    for (key, word) in [(claimed, "retry"), (claimed, "lookup"), (effect_key(2), "retry")] {
        let refused = resolve(key, word, &[]);
        assert_eq!(refused.exit, Exit::Failed);
        assert!(refused.text.contains("nobody would try it"), "{}", refused.text);
    }
    let dry = resolve(claimed, "done", &["--dry-run"]);
    assert!(dry.text.contains("claimed by a worker that is dead"), "{}", dry.text);
    assert_eq!(world.effect(claimed)["status"], "claimed");
    assert!(world.effect(after)["due_at"].is_null());
    let done = resolve(claimed, "done", &[]);
    assert_eq!(done.json["of_the_dead"], true);
    assert!(done.text.contains("it was claimed by a worker that is dead"), "{}", done.text);
    let shown = world.effect(claimed);
    assert_eq!(shown["status"], "done");
    assert_eq!(shown["attempts_on_record"][0]["outcome"], "unknown", "{shown:#}");
    assert!(world.effect(after)["due_at"].is_string(), "its successor goes on");

    // A connector that no worker has said for long that it runs, while workers live.
    world.sql("UPDATE oncely.connector SET seen_at = now() - interval '1 hour'");
    assert_eq!(orphans(), "receipt settle");
    world.sql("UPDATE oncely.worker SET ended_at = now() WHERE dead_at IS NULL");
    assert_eq!(orphans(), "receipt", "while nobody runs, nobody can say that it has left");
}
