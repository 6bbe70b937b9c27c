//! What the database knows of the files before: names, identities, and the keys of what is undone.

use std::collections::BTreeSet;

use oncely_connectors::file::{self, Check, Code, Compiled, NothingSet};
use oncely_core::decide::Known;

use super::*;
use crate::store::{PgConnection, Settings, batch, register};

/// A world with the schema, and nothing in it.
fn empty() -> World {
    let world = World::new();
    assert_eq!(world.text(&["migrate", "up"]), "applied 1 spine\n");
    world
}

const SHOP: &str = "version: 1
connector: NAME
source: { topics: [orders] }
identity: { id: event.id, fingerprint: [event.amount] }
state:
  entity: order
  key: event.order
  version: { from: event.version }
  initial: open
  transitions:
    - { from: open, to: paid, if: 'event.type == \"paid\"' }
    - { from: [open, paid], to: cancelled, if: 'event.type == \"cancelled\"' }
effects:
  - { id: charge, type: http, when: entered(\"paid\"), key: event.order, request: { url: 'https://x.test/c' } }
  - { id: refund, type: http, when: entered(\"cancelled\"), compensate: charge, key: event.order,
      request: { url: 'https://x.test/r' } }
";

fn shop(name: &str, changes: &[(&str, &str)]) -> Compiled {
    let mut text = SHOP.replace("NAME", name);
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    file::compile("shop.yaml", &text, &NothingSet, Check::Live).unwrap()
}

async fn connect(world: &World) -> PgConnection {
    let settings = Settings::parse(&world.cluster.url("postgres")).unwrap();
    settings.connect("test").await.unwrap()
}

/// As if a worker had run it, and read its topic.
fn ran(world: &World, one: &Compiled) -> i32 {
    world.runtime.block_on(async {
        let mut connection = connect(world).await;
        let id = register::connector(&mut connection, &one.connector).await.unwrap();
        register::source(&mut connection, id, "k", "t", "orders").await.unwrap();
        id
    })
}

fn findings(world: &World, compiled: &[Compiled]) -> Vec<(Code, String)> {
    let found = world.runtime.block_on(async {
        let mut connection = connect(world).await;
        record::findings(&mut connection, compiled).await.unwrap()
    });
    found.into_iter().map(|one| (one.code, one.to_string())).collect()
}

fn codes(world: &World, compiled: &[Compiled]) -> Vec<Code> {
    findings(world, compiled).into_iter().map(|(code, _)| code).collect()
}

#[test]
fn a_connector_by_a_new_name_is_found_and_one_of_its_own_is_not() {
    let world = empty();
    let gone = || world.sql("UPDATE oncely.connector SET seen_at = seen_at - interval '1 hour'");
    assert_eq!(codes(&world, &[shop("shop", &[])]), [], "nothing ever ran here");
    ran(&world, &shop("shop", &[]));
    assert_eq!(codes(&world, &[shop("shop", &[])]), []);
    // In the middle of a deploy, and after it.
    let renamed = || [shop("store", &[])];
    assert_eq!(codes(&world, &renamed()), [], "all begin here: it has done nothing yet");
    world.sql("UPDATE oncely.connector SET registered_at = now() - interval '1 day'");
    assert_eq!(codes(&world, &renamed()), [Code::Renamed]);
    gone();
    let (code, said) = findings(&world, &renamed()).remove(0);
    assert_eq!(code, Code::Renamed);
    assert!(said.contains("--> shop.yaml:2:12 (connector)"), "{said}");
    assert!(
        said.contains("write `scope: shop`, and `group: oncely.shop` under `source`"),
        "{said}"
    );
    assert!(said.contains("where it is a connector of its own, write `scope: store`"), "{said}");
    // One with fewer of its effects that ran later is less like it.
    ran(&world, &shop("mails", &[("charge", "capture")]));
    world.sql(
        "UPDATE oncely.connector
         SET registered_at = now() - interval '1 day', seen_at = now() - interval '5 minutes'
         WHERE name = 'mails'",
    );
    assert!(findings(&world, &renamed())[0].1.contains("write `scope: shop`"));
    world.sql(
        "UPDATE oncely.connector SET seen_at = now() - interval '91 days' WHERE name = 'mails'",
    );
    // Some of its effects are enough once it is gone; while it runs, others may have one of a name.
    let fewer = || [shop("store", &[("charge", "capture")])];
    assert_eq!(codes(&world, &fewer()), [Code::Renamed]);
    ran(&world, &shop("shop", &[]));
    assert_eq!(codes(&world, &fewer()), []);
    // Its group is nobody else's, whatever the effects.
    let group = ("topics: [orders]", "topics: [orders], group: oncely.shop");
    let grouped = shop("store", &[("charge", "receipt"), ("refund", "regret"), group]);
    assert_eq!(codes(&world, &[grouped]), [Code::Renamed]);
    // Whoever says its scope has said which it is; whoever runs beside it is another one; another topic is no matter.
    for own in ["scope: shop", "scope: store"] {
        let stated = shop("store", &[("connector: store", &format!("connector: store\n{own}"))]);
        assert_eq!(codes(&world, &[stated]), [], "{own}");
    }
    assert_eq!(codes(&world, &[shop("shop", &[]), shop("store", &[])]), []);
    assert_eq!(codes(&world, &[shop("store", &[("[orders]", "[returns]")])]), []);
    // Another purpose, on the same topic, in a group of its own.
    let mails = shop("order-mails", &[("charge", "receipt"), ("refund", "regret")]);
    assert_eq!(codes(&world, std::slice::from_ref(&mails)), []);
    gone();
    assert_eq!(codes(&world, &[mails]), []);
    // What ran longer ago than ids are remembered comes again no more.
    world.sql("UPDATE oncely.connector SET seen_at = now() - interval '91 days'");
    assert_eq!(codes(&world, &renamed()), []);
}

#[test]
fn a_file_that_gives_events_other_ids_is_warned_of() {
    let world = empty();
    ran(&world, &shop("shop", &[]));
    let tenant = ("identity: { id", "identity: { tenant: event.shop, id");
    let changed = || shop("shop", &[tenant]);
    let (code, said) = findings(&world, &[changed()]).remove(0);
    assert_eq!(code, Code::IdentityChanged);
    assert!(said.contains("they were made by scope `shop`, id `event.id`"), "{said}");
    assert!(said.contains("by scope `shop`, tenant `event.shop`, id `event.id`"), "{said}");
    assert_eq!(codes(&world, &[shop("shop", &[("id: event.id,", "id: 'event[\"id\"]',")])]), []);
    // Once it runs it is what is there, and the one before is the change.
    world.sql("UPDATE oncely.key_rule SET seen_at = seen_at - interval '1 hour'");
    ran(&world, &changed());
    assert_eq!(codes(&world, &[changed()]), []);
    assert_eq!(codes(&world, &[shop("shop", &[])]), [Code::IdentityChanged]);
}

/// The lanes of these entities of which a charge may be on record under another key.
fn rekeyed(world: &World, id: i32, one: &Compiled, entities: &[Key]) -> BTreeSet<(Key, usize)> {
    world.runtime.block_on(async {
        let mut connection = connect(world).await;
        let mut known = Known::default();
        let with_id = (&one.connector, id);
        batch::doubt_undone(&mut connection, with_id, entities, &mut known).await.unwrap();
        assert!(known.forgetful.is_empty());
        known.rekeyed
    })
}

#[test]
fn r39_what_a_compensation_undoes_may_be_known_by_the_words_of_an_older_file() {
    let world = empty();
    let (old, young) = (effect_key(1), effect_key(2));
    let of = |id, one: &Compiled| -> Vec<Key> {
        let found = rekeyed(&world, id, one, &[old, young]);
        assert!(found.iter().all(|(_, undone)| *undone == 0));
        found.into_iter().map(|(entity, _)| entity).collect()
    };
    let later = || {
        world.sql("UPDATE oncely.key_rule SET first_at = first_at - interval '1 day',
        seen_at = seen_at - interval '1 day'; UPDATE oncely.connector SET seen_at = seen_at - interval '1 day'")
    };
    let note =
        "  - { id: note, type: http, key: event.id, request: { url: 'https://x.test/n' } }\n";
    let noted = |text: &str| format!("{text}{note}");
    let first = noted(SHOP).replace("NAME", "shop");
    let first = file::compile("shop.yaml", &first, &NothingSet, Check::Live).unwrap();
    let id = ran(&world, &first);
    world.sql(&format!(
        "INSERT INTO oncely.entity (key, event, version, tenant, state, created_at)
         VALUES ('{old}', '{old}', 1, '', 'paid', now() - interval '1 day'), ('{young}', '{young}', 1, '', 'paid', now())"
    ));
    assert_eq!(of(id, &first), [], "no other file ever ran");
    // An effect that goes is none that has come.
    later();
    let without = shop("shop", &[]);
    assert_eq!(ran(&world, &without), id);
    assert_eq!(of(id, &without), []);
    // Another key: whatever lived by the one of before.
    let rekeyed = shop(
        "shop",
        &[("entered(\"paid\"), key: event.order", "entered(\"paid\"), key: event.payment")],
    );
    ran(&world, &rekeyed);
    assert_eq!(of(id, &rekeyed), [old, young]);
    later();
    ran(&world, &rekeyed);
    assert_eq!(of(id, &rekeyed), [old], "what came after the change has the key of now");
    // Another id, and the one of before is gone.
    let renamed = shop("shop", &[("charge", "debit")]);
    ran(&world, &renamed);
    assert_eq!(of(id, &renamed), [old, young]);
    // And back: what was done as `debit` meanwhile is not found either.
    later();
    world.sql("UPDATE oncely.entity SET created_at = created_at - interval '1 day'");
    world.sql("DELETE FROM oncely.key_rule WHERE words = '`event.payment`'");
    ran(&world, &first);
    assert_eq!(of(id, &first), [old, young]);
    // A connector of the same scope that runs has keys of its own; once it is gone, they were this one's by another name.
    world.sql("DELETE FROM oncely.key_rule");
    let scoped = ("connector: other", "connector: other\nscope: shop");
    ran(&world, &shop("other", &[scoped]));
    ran(&world, &renamed);
    assert_eq!(of(id, &renamed), []);
    world.sql(
        "UPDATE oncely.connector SET seen_at = now() - interval '3 minutes' WHERE name = 'other'",
    );
    assert_eq!(of(id, &renamed), [old, young]);
}
