//! How the statements that are planned once are planned while their tables are empty: that plan stays
//! for the life of a connection, and has to be right for millions of rows.

use sqlx::{AssertSqlSafe, Row as _, raw_sql};

use super::Settings;
use super::database_tests::World;

macro_rules! statements {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("sql/", $name, ".sql")))),*]
    };
}

/// What writers and settlers look up in tables that grow. Inserts look nothing up, and living workers are
/// few.
const STATEMENTS: [(&str, &str); 21] = statements![
    "effect_behind",
    "effect_claim_due",
    "effect_done_by",
    "effect_evidence",
    "effect_give_back",
    "effect_load",
    "effect_open",
    "effect_request",
    "effect_results",
    "effect_settle",
    "effect_share",
    "effect_status",
    "effect_wake",
    "entity_advance",
    "entity_load",
    "entity_lock",
    "inbox_load",
    "inbox_lock",
    "ledger_load",
    "parked_effect_insert",
    "payload_load",
];

fn parameters(statement: &str) -> usize {
    (1..=20).rev().find(|number| statement.contains(&format!("${number}"))).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_planned_once_finds_rows_by_an_index_even_in_an_empty_database() {
    let world = World::new().await;
    let settings = Settings::parse(&world.url()).unwrap().planned_once();
    let mut connection = settings.connect("test").await.unwrap();
    for (name, statement) in STATEMENTS {
        let nulls = vec!["NULL"; parameters(statement)].join(", ");
        let prepare = format!("PREPARE {name} AS {statement}");
        raw_sql(AssertSqlSafe(prepare)).execute(&mut connection).await.unwrap();
        let explain = format!("EXPLAIN (COSTS off) EXECUTE {name}({nulls})");
        let rows = raw_sql(AssertSqlSafe(explain)).fetch_all(&mut connection).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let shown = plan.join("\n");
        assert!(!shown.contains("Seq Scan"), "{name}:\n{shown}");
        for (line, next) in plan.iter().zip(plan.iter().skip(1).map(String::as_str).chain([""])) {
            // Whether anything is held is asked of an index that is empty as a rule.
            let walks = line.contains("Index") && line.contains(" using ")
                || line.contains("Bitmap Index Scan");
            let asks_once = line.contains("Index Only Scan using effect_held");
            let narrow = next.contains("Index Cond");
            assert!(!walks || asks_once || narrow, "{name} walks through an index:\n{shown}");
        }
    }
}
