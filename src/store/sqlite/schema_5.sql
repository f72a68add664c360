-- A file as schema number 5 made it, with one row of the ledger: what upgrades are tested with.
PRAGMA journal_mode = WAL;
CREATE TABLE users (
    id           TEXT PRIMARY KEY NOT NULL,
    email        TEXT,
    name         TEXT,
    confirmed    INTEGER NOT NULL,
    tz           TEXT,
    locale       TEXT,
    lng          REAL,
    lat          REAL,
    cell         INTEGER,           -- the square of the grid that holds (lng, lat): see near.rs
    cadence      TEXT,
    weekday      TEXT,
    hour         INTEGER,
    digest_since INTEGER,
    types        TEXT NOT NULL,     -- {type: [route, since] or [route, since, window]}
    suppressed   INTEGER,
    unsubscribed INTEGER,
    rev          INTEGER NOT NULL   -- how often the record was put
) WITHOUT ROWID;
CREATE INDEX users_by_cell ON users (cell, id, lng, lat) WHERE cell IS NOT NULL;

CREATE TABLE follows (
    k TEXT NOT NULL,
    u TEXT NOT NULL,
    PRIMARY KEY (k, u)
) WITHOUT ROWID;
CREATE INDEX follows_by_user ON follows (u);

CREATE TABLE objects (
    id         TEXT PRIMARY KEY NOT NULL,
    notifiable INTEGER NOT NULL,
    title      TEXT,
    url        TEXT,
    image      TEXT,
    by         TEXT,
    at         INTEGER,
    lng        REAL,
    lat        REAL,
    data       TEXT                 -- JSON
) WITHOUT ROWID;

CREATE TABLE fanouts (
    id        TEXT PRIMARY KEY NOT NULL,
    key       TEXT NOT NULL UNIQUE,
    type      TEXT NOT NULL,
    batch_key TEXT,                 -- where its writer chose one
    day       TEXT NOT NULL,
    at        INTEGER NOT NULL,
    state     TEXT NOT NULL,
    cursor    TEXT,
    people    INTEGER NOT NULL,
    pushed    INTEGER NOT NULL,
    capped    INTEGER NOT NULL,
    owner     TEXT,
    until     INTEGER
) WITHOUT ROWID;
CREATE INDEX fanouts_pending ON fanouts (at, id, until, day) WHERE state = 'pending';
CREATE INDEX fanouts_held ON fanouts (owner) WHERE owner IS NOT NULL;

-- Apart, as it may name 100,000 people, and saving a fan-out's progress rewrites its row.
CREATE TABLE audiences (
    fanout   TEXT PRIMARY KEY NOT NULL,
    objects  TEXT NOT NULL,         -- JSON
    audience TEXT NOT NULL          -- JSON
);

CREATE TABLE seats (
    user     TEXT NOT NULL,
    key      TEXT NOT NULL,
    stamp    TEXT NOT NULL,         -- as which it was put last
    due      INTEGER,
    owner    TEXT,
    until    INTEGER,
    turn     INTEGER,
    open     TEXT,                  -- JSON: see batch_json.rs
    ended    TEXT NOT NULL,         -- JSON
    memories TEXT NOT NULL,         -- JSON
    PRIMARY KEY (user, key)
) WITHOUT ROWID;
CREATE INDEX seats_due ON seats (due, until);

-- What seats are found by.
CREATE TABLE seat_batches (
    batch TEXT PRIMARY KEY NOT NULL,
    user  TEXT NOT NULL,
    key   TEXT NOT NULL,
    open  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX seat_batches_by_seat ON seat_batches (user, key, batch);
CREATE INDEX seat_batches_by_key ON seat_batches (key, batch);
CREATE INDEX seat_batches_open ON seat_batches (open, batch);
CREATE TABLE seat_objects (
    type   TEXT NOT NULL,
    object TEXT NOT NULL,
    user   TEXT NOT NULL,
    key    TEXT NOT NULL,
    PRIMARY KEY (type, object, user, key)
) WITHOUT ROWID;
CREATE INDEX seat_objects_by_seat ON seat_objects (user, key);

CREATE TABLE batches (
    id       TEXT PRIMARY KEY NOT NULL,
    user     TEXT NOT NULL,
    key      TEXT NOT NULL,
    state    TEXT NOT NULL,
    settled  INTEGER,
    gathered TEXT NOT NULL          -- JSON
) WITHOUT ROWID;
CREATE INDEX batches_by_user ON batches (user, id);
CREATE INDEX batches_by_key ON batches (key, id);
CREATE INDEX batches_by_state ON batches (state, id);
CREATE INDEX batches_settled ON batches (settled) WHERE settled IS NOT NULL;

CREATE TABLE deliveries (
    id          TEXT PRIMARY KEY NOT NULL,
    user        TEXT NOT NULL,
    cadence     TEXT,               -- of a digest
    period      TEXT,
    batch       TEXT,               -- of a batch
    turn        INTEGER,
    state       TEXT NOT NULL,
    open        INTEGER NOT NULL,
    slot        TEXT NOT NULL,
    covers      TEXT NOT NULL,      -- [[stack, n], …]
    marker      TEXT NOT NULL,
    owner       TEXT,
    until       INTEGER,
    attempts    INTEGER NOT NULL,
    items       INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    settled     INTEGER,
    provider_id TEXT,
    reason      TEXT,
    call        TEXT,
    tried       INTEGER,
    tag         TEXT NOT NULL,      -- what providers name the mail by in their reports
    feedback    TEXT,
    feedback_at INTEGER
) WITHOUT ROWID;
CREATE UNIQUE INDEX deliveries_open ON deliveries (slot) WHERE open;
CREATE INDEX deliveries_free ON deliveries (coalesce(until, 0), slot) WHERE open;
CREATE INDEX deliveries_by_user ON deliveries (user, created);
CREATE INDEX deliveries_by_state ON deliveries (state, created);
CREATE INDEX deliveries_by_call ON deliveries (call) WHERE open AND call IS NOT NULL;
CREATE INDEX deliveries_held ON deliveries (owner) WHERE open AND owner IS NOT NULL;

CREATE INDEX deliveries_by_tag ON deliveries (tag);
CREATE INDEX deliveries_by_provider_id ON deliveries (provider_id) WHERE provider_id IS NOT NULL;
CREATE INDEX deliveries_by_settled ON deliveries (settled, state, feedback) WHERE settled IS NOT NULL;

CREATE TABLE suppressions (
    address TEXT PRIMARY KEY NOT NULL,  -- in lower case
    reason  TEXT NOT NULL,
    at      INTEGER NOT NULL,
    source  TEXT NOT NULL,
    detail  TEXT
) WITHOUT ROWID;

CREATE TABLE soft_bounces (
    address  TEXT NOT NULL,
    delivery TEXT NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (address, delivery)
) WITHOUT ROWID;

CREATE TABLE sightings (
    key   TEXT PRIMARY KEY NOT NULL,
    mark  TEXT NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sightings_by_until ON sightings (until);

CREATE TABLE leases (
    name  TEXT PRIMARY KEY NOT NULL,
    owner TEXT NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE notes (
    name TEXT PRIMARY KEY NOT NULL,
    text TEXT NOT NULL
) WITHOUT ROWID;

INSERT INTO deliveries (id, user, cadence, period, state, open, slot, covers, marker, attempts, items, created, tag)
VALUES ('digest:ada:daily:2014-04-22', 'ada', 'daily', '2014-04-22', 'failed', 0, 'digest:ada', '[["20140422", 2]]',
    '5334647b139b2165160000d8', 8, 2, 1398124800000, 'tag');
PRAGMA application_id = 1952738919;
PRAGMA user_version = 5;
