-- The spine: what Oncely remembers so that each business event has its effect once.
--
-- * Every rule that SQL can state is a constraint. There are no foreign keys between the tables that
--   a batch writes: their check costs one look-up a row and only repeats what one transaction
--   writes together anyway.
-- * Times are the database's own; a worker's clock decides nothing.
-- * Payloads are bytea: JSON may hold NUL, which text and jsonb refuse.
-- * Columns are ordered by size, so that rows carry no padding.

-- Wired files, by name. Rows stay when a connector leaves, so that what it owed can still be read.
-- `effects` are the ids of its effects as a worker loaded them last; workers that run it renew `seen_at`.
CREATE TABLE oncely.connector (
    id         integer     NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seen_at    timestamptz NOT NULL DEFAULT now(),
    registered_at timestamptz NOT NULL DEFAULT now(),
    name       text        NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 100),
    scope      text        NOT NULL CHECK (length(scope) BETWEEN 1 AND 100),
    group_name text        NOT NULL CHECK (length(group_name) BETWEEN 1 AND 249),
    effects    text[]      COLLATE "C" NOT NULL,
    -- Those of them whose provider can be asked.
    lookups    text[]      COLLATE "C" NOT NULL DEFAULT '{}',
    -- The topic that gets its dead letters, and how often one is redriven at most.
    dead_letter   text     CHECK (length(dead_letter) BETWEEN 1 AND 249),
    redrives_max  integer  NOT NULL DEFAULT 5 CHECK (redrives_max >= 0)
);

-- By which words of its file a connector's keys are made, and were made before: what is on record under the keys of
-- other words is not found by those of now. `effect` is empty for the ids of events, with the scope and tenant that are part of every key. Workers that
-- run such a file renew `seen_at`, so keys of these words were made until then; since `first_at` no file of the connector was
-- without the effect.
CREATE TABLE oncely.key_rule (
    digest    uuid        NOT NULL,
    first_at  timestamptz NOT NULL DEFAULT now(),
    seen_at   timestamptz NOT NULL DEFAULT now(),
    connector integer     NOT NULL REFERENCES oncely.connector,
    effect    text        COLLATE "C" NOT NULL CHECK (length(effect) <= 100),
    words     text        NOT NULL CHECK (length(words) <= 500),
    PRIMARY KEY (connector, effect, digest)
);

-- A topic as one connector reads it; a recreated topic is another source.
CREATE TABLE oncely.source (
    id         integer NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    connector  integer NOT NULL REFERENCES oncely.connector,
    cluster_id text    NOT NULL,
    topic_id   text    NOT NULL,
    topic      text    NOT NULL,
    UNIQUE (connector, cluster_id, topic_id, topic)
);

-- One row a running process. A row that is dead never lives again.
CREATE TABLE oncely.worker (
    id           uuid        NOT NULL PRIMARY KEY,
    started_at   timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    dead_at      timestamptz,
    ended_at     timestamptz,
    lease_ms     integer     NOT NULL CHECK (lease_ms BETWEEN 300 AND 600000),
    host         text        NOT NULL,
    CHECK (dead_at IS NULL OR ended_at IS NULL)
);
CREATE INDEX worker_living ON oncely.worker (heartbeat_at) WHERE dead_at IS NULL AND ended_at IS NULL;

-- Where this database is: a row for each time that it was found on another timeline or system than before; the
-- last one is the present. `history` names what is written from then on. Unless it is known to be `lossless`,
-- commits may have been lost that were acknowledged: what was done after `lost_since` may be forgotten, and
-- whoever had a lease then sends nothing any more from `quiet_at` on. `positions` are those that were taken
-- back, `effects` those that may have been sent since.
CREATE TABLE oncely.failover (
    system_identifier bigint      NOT NULL,
    timeline          bigint      NOT NULL CHECK (timeline > 0),
    system_before     bigint,
    timeline_before   bigint,
    at                timestamptz NOT NULL DEFAULT now(),
    lost_since        timestamptz NOT NULL,
    quiet_at          timestamptz NOT NULL,
    history           uuid        NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    number            integer     NOT NULL PRIMARY KEY CHECK (number > 0),
    positions         integer     NOT NULL DEFAULT 0 CHECK (positions >= 0),
    effects           integer     NOT NULL DEFAULT 0 CHECK (effects >= 0),
    lossless          boolean     NOT NULL,
    CHECK ((number = 1) = (system_before IS NULL)),
    CHECK ((number = 1) = (timeline_before IS NULL)),
    CHECK (NOT lossless OR (positions = 0 AND effects = 0))
);

-- Whether the server is the system and writes the timeline that are on record. Behind a pooler a connection
-- outlives its server: until the failover is on record nothing is owed or claimed, and no position rises.
CREATE FUNCTION oncely.is_here() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT system_identifier = (SELECT s.system_identifier FROM pg_control_system() AS s)
            AND timeline = ('x' || lpad(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), 16, '0'))::bit(64)::bigint
        FROM oncely.failover ORDER BY number DESC LIMIT 1), true)
$$;

-- Whether what was decided for this database as of a failover, by its number, holds here and now. NULL: it was
-- decided by somebody who does not mind.
CREATE FUNCTION oncely.stands_at(number integer) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT $1 IS NULL OR (oncely.is_here() AND $1 = (SELECT max(f.number) FROM oncely.failover AS f))
$$;

-- The failover since which something may be forgotten, by its number: the first one that the last one that may have lost
-- something makes up for. NULL: there was none.
CREATE FUNCTION oncely.failover_in_doubt() RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT min(f.number) FROM oncely.failover AS f
    WHERE NOT f.lossless AND f.lost_since >= (SELECT l.lost_since FROM oncely.failover AS l WHERE NOT l.lossless
                                              ORDER BY l.number DESC LIMIT 1)
$$;

-- Whether a worker may claim: it is not on record as dead. It may have been declared dead by a failover, before its
-- lease was over.
CREATE FUNCTION oncely.may_claim(worker uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM oncely.worker WHERE id = $1 AND dead_at IS NULL AND ended_at IS NULL)
        AND oncely.is_here()
$$;

-- Effects that somebody performs. One that is owed and not here is orphaned: its connector or its id is
-- gone. While no worker lives nobody can say that a connector has left.
CREATE VIEW oncely.wired AS
    SELECT c.id AS connector, unnest(c.effects) AS effect
    FROM oncely.connector AS c
    WHERE c.seen_at > now() - interval '2 minutes'
       OR NOT EXISTS (SELECT FROM oncely.worker AS w
                      WHERE w.dead_at IS NULL AND w.ended_at IS NULL
                        AND w.started_at < now() - interval '2 minutes'
                        AND w.heartbeat_at > now() - make_interval(secs => w.lease_ms / 1000.0));

-- One row a business id: the dedupe key and, at once, the history of its entity. Insert-only; that of an event
-- that waits (`deferred`) is replaced by what it came to.
-- `effects` names what the event owes, shared effects included.
CREATE TABLE oncely.inbox (
    key             uuid        NOT NULL PRIMARY KEY,
    fingerprint     uuid        NOT NULL,
    entity          uuid,
    version         bigint      CHECK (version >= 0),
    first_offset    bigint      NOT NULL CHECK (first_offset >= 0),
    first_seen_at   timestamptz NOT NULL DEFAULT now(),
    first_partition integer     NOT NULL CHECK (first_partition >= 0),
    source          integer     NOT NULL,
    outcome         text        COLLATE "C" NOT NULL
        CHECK (outcome IN ('applied', 'stale', 'ignored', 'quarantined', 'dead_lettered', 'deferred')),
    tenant          text        COLLATE "C" NOT NULL,
    from_state      text        COLLATE "C",
    to_state        text        COLLATE "C",
    effects         uuid[],
    CHECK ((entity IS NULL) = (version IS NULL)),
    CHECK ((from_state IS NULL) = (to_state IS NULL)),
    CHECK (effects IS NULL OR cardinality(effects) > 0)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);
-- Not a block range index: where rows have been removed, new ones take their place, and a range's oldest never changes.
CREATE INDEX inbox_age ON oncely.inbox (first_seen_at);

-- Every transition is on record: the inbox row is that record.
CREATE VIEW oncely.transition AS
    SELECT entity, version, key AS event, from_state, to_state, first_seen_at AS at, tenant
    FROM oncely.inbox
    WHERE outcome = 'applied' AND entity IS NOT NULL;

-- How often a known business id came again: for each partition that it came by, up to which offset its
-- copies are counted. So each copy counts once, however often it is read.
CREATE TABLE oncely.repeat (
    key          uuid        NOT NULL,
    last_seen_at timestamptz NOT NULL DEFAULT now(),
    last_offset  bigint      NOT NULL CHECK (last_offset >= 0),
    times        bigint      NOT NULL CHECK (times > 0),
    partition    integer     NOT NULL CHECK (partition >= 0),
    source       integer     NOT NULL,
    PRIMARY KEY (key, source, partition)
) WITH (fillfactor = 80);

-- The current state of an entity; never moves to a lower version.
CREATE TABLE oncely.entity (
    key        uuid        NOT NULL PRIMARY KEY,
    event      uuid        NOT NULL,
    version    bigint      NOT NULL CHECK (version >= 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    tenant     text        COLLATE "C" NOT NULL,
    state      text        COLLATE "C" NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

CREATE FUNCTION oncely.entity_never_falls() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'entity % would move from version % to %', OLD.key, OLD.version, NEW.version
        USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER entity_never_falls BEFORE UPDATE ON oncely.entity
    FOR EACH ROW WHEN (NEW.version < OLD.version) EXECUTE FUNCTION oncely.entity_never_falls();

-- Fencing tokens survive release and expiry; they only rise.
CREATE SEQUENCE oncely.fence AS bigint;

-- The effect ledger. `lane` orders effects: the entity's key, or the event's where there is no
-- entity. A waiting row without a due time is blocked by an earlier effect. `owners` counts the inbox
-- rows that name it: the last one that is removed takes it along. `due_at` is `infinity` while its record is in
-- the outbox. `failures` are the attempts that the
-- retry plan counts, `failing_since` when their unbroken row began. `unknown_at` is when the last attempt
-- began that may have been applied, or when the worker of one was found dead: "not found" is believed so
-- long after it. `asks`: the provider is to be asked before anything is sent again; `lookups` counts how
-- often it was, since the last send. `suspect`: a failover may have lost that it was sent.
CREATE TABLE oncely.effect (
    key           uuid        NOT NULL PRIMARY KEY,
    event         uuid        NOT NULL,
    lane          uuid        NOT NULL,
    worker        uuid,
    request_hash  uuid        NOT NULL,
    fence         bigint,
    version       bigint      NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT now(),
    due_at        timestamptz,
    first_sent_at timestamptz,
    last_sent_at  timestamptz,
    settled_at    timestamptz,
    failing_since timestamptz,
    unknown_at    timestamptz,
    connector     integer     NOT NULL,
    attempts      integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    failures      integer     NOT NULL DEFAULT 0 CHECK (failures >= 0),
    lookups       integer     NOT NULL DEFAULT 0 CHECK (lookups >= 0),
    owners        integer     NOT NULL DEFAULT 1 CHECK (owners > 0),
    takeovers     smallint    NOT NULL DEFAULT 0 CHECK (takeovers >= 0),
    ordinal       smallint    NOT NULL,
    status_code   smallint,
    was_unknown   boolean     NOT NULL DEFAULT false,
    asks          boolean     NOT NULL DEFAULT false,
    suspect       boolean     NOT NULL DEFAULT false,
    status        text        COLLATE "C" NOT NULL
        CHECK (status IN ('waiting', 'claimed', 'unknown', 'held', 'done', 'rejected', 'skipped')),
    name          text        COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
    tenant        text        COLLATE "C" NOT NULL,
    business_id   text        COLLATE "C" NOT NULL CHECK (length(business_id) BETWEEN 1 AND 512),
    note          text        CHECK (length(note) <= 500),
    after_keys    uuid[]      CHECK (cardinality(after_keys) > 0),
    request       bytea,
    result        bytea,
    CHECK ((status = 'claimed') = (worker IS NOT NULL)),
    CHECK (status <> 'claimed' OR fence IS NOT NULL),
    CHECK ((status IN ('done', 'rejected', 'skipped')) = (settled_at IS NOT NULL)),
    CHECK (due_at IS NULL OR status IN ('waiting', 'unknown')),
    CHECK (status <> 'unknown' OR due_at IS NOT NULL),
    CHECK (result IS NULL OR status = 'done'),
    CHECK (NOT was_unknown OR attempts > 0 OR takeovers > 0 OR suspect),
    CHECK (NOT was_unknown OR unknown_at IS NOT NULL),
    CHECK (NOT asks OR was_unknown),
    CHECK (failures <= attempts),
    CHECK (failing_since IS NULL OR failures > 0)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX effect_open ON oncely.effect (lane, version) WHERE settled_at IS NULL;
CREATE INDEX effect_due ON oncely.effect (connector, name, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX effect_claimed ON oncely.effect (worker) WHERE worker IS NOT NULL;
CREATE INDEX effect_blocked ON oncely.effect (connector, name) INCLUDE (lane)
    WHERE status = 'waiting' AND due_at IS NULL;
CREATE INDEX effect_held ON oncely.effect (lane) WHERE status = 'held';
CREATE INDEX effect_skipped ON oncely.effect USING gin (after_keys) WHERE status = 'skipped';
CREATE INDEX effect_follows ON oncely.effect (key) WHERE settled_at IS NULL AND after_keys IS NOT NULL;
CREATE INDEX effect_age ON oncely.effect USING brin (created_at);

-- Effects that undo others, whether there was something to undo or not.
CREATE TABLE oncely.compensation (
    effect uuid NOT NULL PRIMARY KEY,
    undoes uuid NOT NULL,
    CHECK (effect <> undoes)
);
CREATE INDEX compensation_undoes ON oncely.compensation (undoes);

-- Attempts and look-ups; a first attempt that succeeds lives in its effect's own row alone. Also the
-- place of evidence: what a stale owner saw. `refused`: by the brokers, a record that is held since.
CREATE TABLE oncely.attempt (
    effect      uuid        NOT NULL,
    fence       bigint      NOT NULL,
    worker      uuid        NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    status_code smallint,
    evidence    boolean     NOT NULL DEFAULT false,
    outcome     text        COLLATE "C" NOT NULL
        CHECK (outcome IN ('done', 'not_applied', 'throttled', 'rejected', 'halted', 'unknown',
                           'found', 'not_found', 'undecided', 'unanswered', 'refused')),
    note        text        CHECK (length(note) <= 500),
    PRIMARY KEY (effect, fence, evidence)
);

-- Usage lines, unique each: a second consumer cannot bill twice.
CREATE TABLE oncely.ledger (
    key        uuid           NOT NULL PRIMARY KEY,
    event      uuid           NOT NULL,
    content    uuid           NOT NULL,
    created_at timestamptz    NOT NULL DEFAULT now(),
    at         timestamptz,
    connector  integer        NOT NULL,
    name       text           COLLATE "C" NOT NULL,
    tenant     text           COLLATE "C" NOT NULL,
    account    text           COLLATE "C" NOT NULL CHECK (length(account) BETWEEN 1 AND 512),
    metric     text           COLLATE "C" NOT NULL CHECK (length(metric) BETWEEN 1 AND 512),
    quantity   numeric        NOT NULL
);
CREATE INDEX ledger_account ON oncely.ledger (tenant, account, metric, created_at);

-- Event bytes that a later effect is still rendered from.
CREATE TABLE oncely.payload (
    event            uuid        NOT NULL PRIMARY KEY,
    record_offset    bigint      NOT NULL,
    record_timestamp bigint,
    created_at       timestamptz NOT NULL DEFAULT now(),
    record_partition integer     NOT NULL,
    source           integer     NOT NULL,
    previous_state   text        COLLATE "C",
    current_state    text        COLLATE "C",
    record_key       bytea,
    value            bytea,
    headers          bytea       NOT NULL
);
CREATE INDEX payload_age ON oncely.payload (created_at);

-- Dead letters and quarantine. Keyed by coordinates, or by the effect that was rejected. One that is closed needs
-- nobody any more; `closed_as` is the outcome that it had in the end, or what a person said. `redrive_at`: a person
-- wants the record decided again, and `release` that it is run although it is in quarantine. `letter`: it is to go to
-- its connector's topic, and is not in the outbox yet. `holds`: the entity whose events above `held_version` wait
-- until it is closed. `entity`: the one that it is about, where it was identified.
-- `failover`: the number of the one that may have lost that it was decided again. `first_*`: why and when it was parked first, where it
-- was parked anew since.
CREATE TABLE oncely.parked (
    id                bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event             uuid,
    effect            uuid,
    -- Under which key a second content of `event` runs, once a person has released it.
    released          uuid,
    known_fingerprint uuid,
    fingerprint       uuid,
    record_offset     bigint      CHECK (record_offset >= 0),
    record_timestamp  bigint,
    parked_at         timestamptz NOT NULL DEFAULT now(),
    first_at          timestamptz,
    entity            uuid,
    holds             uuid,
    held_version      bigint      CHECK (held_version >= 0),
    record_partition  integer     CHECK (record_partition >= 0),
    source            integer,
    connector         integer     NOT NULL,
    redrives          integer     NOT NULL DEFAULT 0 CHECK (redrives >= 0),
    failover          integer,
    redrive_at        timestamptz,
    closed_at         timestamptz,
    release           boolean     NOT NULL DEFAULT false,
    letter            boolean     NOT NULL DEFAULT false,
    closed_as         text        COLLATE "C",
    kind              text        COLLATE "C" NOT NULL CHECK (kind IN ('dead_letter', 'quarantine')),
    reason            text        COLLATE "C" NOT NULL CHECK (length(reason) BETWEEN 1 AND 60),
    tenant            text        COLLATE "C" NOT NULL DEFAULT '',
    business_id       text        COLLATE "C" CHECK (length(business_id) <= 512),
    detail            text        NOT NULL CHECK (length(detail) <= 2000),
    first_reason      text        COLLATE "C",
    first_detail      text,
    record_key        bytea,
    value             bytea,
    headers           bytea,
    CHECK ((first_at IS NULL) = (first_reason IS NULL)),
    CHECK ((first_at IS NULL) = (first_detail IS NULL)),
    CHECK ((effect IS NULL) = (source IS NOT NULL)),
    CHECK ((source IS NULL) = (record_offset IS NULL)),
    CHECK ((source IS NULL) = (record_partition IS NULL)),
    CHECK ((closed_at IS NULL) = (closed_as IS NULL)),
    CHECK (redrive_at IS NULL OR (closed_at IS NULL AND effect IS NULL)),
    CHECK (NOT release OR redrive_at IS NOT NULL),
    CHECK ((holds IS NULL) = (held_version IS NULL))
);
-- A log that was cut off has other records at the same places: they are told apart by their time and content.
CREATE UNIQUE INDEX parked_record ON oncely.parked
    (source, record_partition, record_offset, coalesce(record_timestamp, -1), md5(coalesce(value, '')))
    WHERE effect IS NULL;
CREATE UNIQUE INDEX parked_effect ON oncely.parked (effect) WHERE effect IS NOT NULL;
CREATE INDEX parked_newest ON oncely.parked (kind, connector, parked_at);
CREATE INDEX parked_event ON oncely.parked (event) WHERE event IS NOT NULL;
CREATE INDEX parked_open ON oncely.parked (connector, kind) WHERE closed_at IS NULL;
CREATE INDEX parked_age ON oncely.parked (connector, closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX parked_wanted ON oncely.parked (connector, redrive_at) WHERE redrive_at IS NOT NULL;
CREATE INDEX parked_letters ON oncely.parked (connector, id) WHERE letter;
-- With the order by which it is asked for: in a young table any other index of open rows would look as cheap.
CREATE INDEX parked_holds ON oncely.parked (holds, held_version) WHERE holds IS NOT NULL AND closed_at IS NULL;
CREATE INDEX parked_entity ON oncely.parked (entity) WHERE entity IS NOT NULL AND closed_at IS NULL;
CREATE INDEX parked_let_go ON oncely.parked (connector, closed_at) WHERE holds IS NOT NULL;

-- Events that wait for others of their entity: for a version that is missing (`gap`, until `due_at`), or behind one
-- that is parked (`parked`, until a person has closed that; `due_at` is `infinity`). They go in the order of their
-- versions, by the transaction that brings what they waited for, or one of their connector's workers. A row that is
-- closed has lost its bytes and says as what its event ended; `escalated`, that what it waited for did not come;
-- `suspect`, that a failover may have lost that it went.
CREATE TABLE oncely.deferred (
    id               bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event            uuid        NOT NULL,
    entity           uuid        NOT NULL,
    fingerprint      uuid        NOT NULL,
    version          bigint      NOT NULL CHECK (version >= 0),
    record_offset    bigint      NOT NULL CHECK (record_offset >= 0),
    record_timestamp bigint,
    deferred_at      timestamptz NOT NULL DEFAULT now(),
    due_at           timestamptz NOT NULL,
    closed_at        timestamptz,
    record_partition integer     NOT NULL CHECK (record_partition >= 0),
    source           integer     NOT NULL,
    connector        integer     NOT NULL,
    escalated        boolean     NOT NULL DEFAULT false,
    suspect          boolean     NOT NULL DEFAULT false,
    cause            text        COLLATE "C" NOT NULL CHECK (cause IN ('gap', 'parked')),
    closed_as        text        COLLATE "C",
    tenant           text        COLLATE "C" NOT NULL,
    business_id      text        COLLATE "C" NOT NULL CHECK (length(business_id) BETWEEN 1 AND 512),
    record_key       bytea,
    value            bytea,
    headers          bytea       NOT NULL,
    CHECK ((closed_at IS NULL) = (closed_as IS NULL)),
    CHECK (NOT escalated OR closed_at IS NOT NULL)
);
CREATE UNIQUE INDEX deferred_event ON oncely.deferred (event) WHERE closed_at IS NULL;
CREATE INDEX deferred_open ON oncely.deferred (connector, due_at) WHERE closed_at IS NULL;
CREATE INDEX deferred_entity ON oncely.deferred (entity, version, id) WHERE closed_at IS NULL;
CREATE INDEX deferred_history ON oncely.deferred (event);
CREATE INDEX deferred_age ON oncely.deferred (connector, closed_at) WHERE closed_at IS NOT NULL;

-- How far the versions of an entity were decided, where that is beyond the one that it stands at: by events that
-- were ignored or parked. They are not missing, so nothing waits for them. A row goes when its entity has come as far, or
-- with the inbox rows of one that never came to be.
CREATE TABLE oncely.passed (
    entity    uuid        NOT NULL PRIMARY KEY,
    version   bigint      NOT NULL CHECK (version >= 0),
    noted_at  timestamptz NOT NULL DEFAULT now(),
    connector integer     NOT NULL
) WITH (fillfactor = 80);

-- Versions of an entity that were decided while one before them was missing, and that left it where it is: they were
-- ignored, parked, or given up by a person. Once that one has come, nothing waits for them either.
CREATE TABLE oncely.ahead (
    entity    uuid        NOT NULL,
    version   bigint      NOT NULL CHECK (version >= 0),
    noted_at  timestamptz NOT NULL DEFAULT now(),
    connector integer     NOT NULL,
    PRIMARY KEY (entity, version)
);
CREATE INDEX ahead_new ON oncely.ahead (noted_at);

-- The version up to which an entity's events were decided.
CREATE FUNCTION oncely.reached(entity uuid) RETURNS bigint LANGUAGE sql STABLE AS $$
    WITH RECURSIVE step (version) AS (
        SELECT greatest((SELECT e.version FROM oncely.entity AS e WHERE e.key = $1),
                        (SELECT p.version FROM oncely.passed AS p WHERE p.entity = $1))
        UNION ALL
        SELECT a.version FROM step JOIN oncely.ahead AS a ON a.entity = $1 AND a.version = step.version + 1
    )
    SELECT max(version) FROM step
$$;

-- Records that are to be published: those of `publish` effects, whose key is the message id, and dead
-- letters for their topic. What is sent is rendered from the effect's request or from the parked row. Rows
-- of one `sequence` (topic and key) are sent in the order of their ids, one after the other; a held one holds
-- those behind it. An effect whose record is here waits, due at `infinity`.
CREATE TABLE oncely.outbox (
    id             bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message        uuid        NOT NULL UNIQUE,
    sequence       uuid        NOT NULL,
    parked         bigint,
    created_at     timestamptz NOT NULL DEFAULT now(),
    finished_at    timestamptz,
    sent_offset    bigint,
    connector      integer     NOT NULL,
    sent_partition integer,
    attempts       integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    slice          smallint    NOT NULL CHECK (slice BETWEEN 0 AND 31),
    status         text        COLLATE "C" NOT NULL DEFAULT 'waiting'
        CHECK (status IN ('waiting', 'held', 'done', 'skipped')),
    topic          text        COLLATE "C" NOT NULL CHECK (length(topic) BETWEEN 1 AND 249),
    note           text        CHECK (length(note) <= 500),
    CHECK ((status IN ('done', 'skipped')) = (finished_at IS NOT NULL)),
    CHECK ((sent_offset IS NULL) = (sent_partition IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX outbox_waiting ON oncely.outbox (connector, slice, id) WHERE status = 'waiting';
CREATE INDEX outbox_held ON oncely.outbox (sequence, id) WHERE status = 'held';
CREATE INDEX outbox_age ON oncely.outbox (connector, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX outbox_parked ON oncely.outbox (parked) WHERE status IN ('waiting', 'held');

-- Relays: which workers send what is in the outbox of a connector, and which slices of its sequences each
-- of them has. A slice goes to another when its worker is on record as dead or ended, or lets go of it.
CREATE TABLE oncely.relay (
    worker    uuid    NOT NULL,
    connector integer NOT NULL,
    PRIMARY KEY (connector, worker)
);
CREATE TABLE oncely.slice (
    worker    uuid,
    connector integer  NOT NULL,
    slice     smallint NOT NULL CHECK (slice BETWEEN 0 AND 31),
    PRIMARY KEY (connector, slice)
) WITH (fillfactor = 50);

-- How far a group is: everything below `position` is finished. The witness is the last record
-- before the position. Records below `suspect` may be done although nothing is on record of them, since a
-- failover may have lost it; the largest number until the topic's end was looked up. While it stands, so may
-- every event of the scope of which nothing is on record: it may be a copy of one of them. NULL once all of them
-- are decided.
CREATE TABLE oncely.progress (
    epoch             bigint      NOT NULL DEFAULT 1 CHECK (epoch > 0),
    position          bigint      NOT NULL CHECK (position >= 0),
    witness_offset    bigint,
    witness_timestamp bigint,
    suspect           bigint,
    -- Below it all is decided, though effects may be open; NULL: nothing is known beyond the position. Counts for
    -- events that wait for a time, and for nothing else.
    decided           bigint,
    witness_hash      uuid,
    -- The worker that took the partition up last, for people; nothing is decided by it.
    holder            uuid,
    updated_at        timestamptz NOT NULL DEFAULT now(),
    partition         integer     NOT NULL CHECK (partition >= 0),
    group_name        text        COLLATE "C" NOT NULL,
    cluster_id        text        COLLATE "C" NOT NULL,
    topic_id          text        COLLATE "C" NOT NULL,
    topic             text        COLLATE "C" NOT NULL,
    stopped           text        CHECK (length(stopped) <= 500),
    PRIMARY KEY (group_name, cluster_id, topic, topic_id, partition),
    CHECK ((witness_offset IS NULL) = (witness_hash IS NULL)),
    CHECK (witness_offset < position)
) WITH (fillfactor = 50);

-- Circuits that a worker has found open: its provider does not answer, or refuses credentials. Shown to people;
-- nothing is decided by it.
CREATE TABLE oncely.circuit (
    worker    uuid        NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT now(),
    connector integer     NOT NULL REFERENCES oncely.connector,
    effect    text        COLLATE "C" NOT NULL CHECK (length(effect) BETWEEN 1 AND 100),
    cause     text        COLLATE "C" NOT NULL CHECK (cause IN ('outage', 'refusal')),
    PRIMARY KEY (connector, effect, worker)
);

-- Positions that are not read again so far as something may have been done and forgotten, by the connectors that
-- read them. A topic counts as it is now: what was in it before it was made anew is not read again.
CREATE VIEW oncely.in_doubt AS
    SELECT c.scope, c.id AS connector, c.seen_at, p.cluster_id, p.topic, p.topic_id, p.partition
    FROM oncely.progress AS p
    JOIN oncely.connector AS c ON c.group_name = p.group_name
    JOIN oncely.source AS s ON s.connector = c.id AND s.cluster_id = p.cluster_id AND s.topic = p.topic
        AND s.topic_id = p.topic_id
    WHERE p.suspect > p.position
      AND NOT EXISTS (SELECT FROM oncely.source AS later
                      WHERE later.connector = s.connector AND later.cluster_id = s.cluster_id
                        AND later.topic = s.topic AND later.id > s.id);

-- Endpoints of webhooks that said that they are gone (410). While a row is here nothing is sent there.
CREATE TABLE oncely.endpoint (
    id          bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    disabled_at timestamptz NOT NULL DEFAULT now(),
    connector   integer     NOT NULL REFERENCES oncely.connector,
    name        text        COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
    url         text        COLLATE "C" NOT NULL CHECK (length(url) BETWEEN 1 AND 8192)
);
-- An entry of an index may not be as long as a url.
CREATE UNIQUE INDEX endpoint_url ON oncely.endpoint (connector, name, md5(url));

-- Every override by a person.
CREATE TABLE oncely.audit (
    id      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT now(),
    subject uuid,
    actor   text        NOT NULL CHECK (length(actor) BETWEEN 1 AND 200),
    action  text        NOT NULL CHECK (length(action) BETWEEN 1 AND 100),
    reason  text        NOT NULL CHECK (length(reason) BETWEEN 1 AND 1000),
    detail  text        NOT NULL DEFAULT ''
);
