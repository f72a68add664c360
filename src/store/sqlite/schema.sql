-- All tables except day tables. Opening an older file adds missing tables, columns and indexes
-- (schema.rs). New columns need a default, or allow NULL.

CREATE TABLE IF NOT EXISTS users (
    id           TEXT PRIMARY KEY NOT NULL,
    email        TEXT,
    name         TEXT,
    confirmed    INTEGER NOT NULL,
    tz           TEXT,
    locale       TEXT,
    brand        TEXT,
    lng          REAL,
    lat          REAL,
    cell         INTEGER,           -- the grid cell that contains (lng, lat): see users.rs
    cadence      TEXT,
    weekday      TEXT,
    hour         INTEGER,
    digest_since INTEGER,
    types        TEXT NOT NULL,     -- [{t: type, route, since, window}]
    suppressed   INTEGER,
    unsubscribed INTEGER,
    mutes        TEXT,              -- [{s: subject, at, until, title}]
    quiet        TEXT,              -- {from, to}
    start        TEXT,              -- of a reused id: see domain/user_id_reuse.rs
    rev          INTEGER NOT NULL DEFAULT 1, -- the number of writes
    preferences  TEXT               -- JSON of the fields without a column
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS users_by_cell ON users (cell, id, lng, lat) WHERE cell IS NOT NULL;
CREATE INDEX IF NOT EXISTS users_by_email ON users (email COLLATE NOCASE, id);
CREATE INDEX IF NOT EXISTS users_by_schedule ON users (tz, hour, cadence, weekday);

CREATE TABLE IF NOT EXISTS follows (
    k TEXT NOT NULL,
    u TEXT NOT NULL,
    PRIMARY KEY (k, u)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS follows_by_user ON follows (u);

CREATE TABLE IF NOT EXISTS objects (
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

CREATE TABLE IF NOT EXISTS fanouts (
    id        TEXT PRIMARY KEY NOT NULL,
    key       TEXT NOT NULL UNIQUE,
    type      TEXT NOT NULL,
    batch_key TEXT,                 -- if the caller chose one
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
CREATE INDEX IF NOT EXISTS fanouts_pending ON fanouts (at, id, until, day) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS fanouts_leased ON fanouts (owner) WHERE owner IS NOT NULL;

-- A table of its own: an audience may name 100,000 users, and each save of a fan-out's progress
-- rewrites its row.
CREATE TABLE IF NOT EXISTS audiences (
    fanout   TEXT PRIMARY KEY NOT NULL,
    objects  TEXT NOT NULL,         -- JSON
    audience TEXT NOT NULL          -- JSON
);

-- The details of events that have any.
CREATE TABLE IF NOT EXISTS details (
    fanout  TEXT PRIMARY KEY NOT NULL,
    details TEXT NOT NULL           -- JSON
) WITHOUT ROWID;

-- The items that users have seen, read and archived in their feeds.
CREATE TABLE IF NOT EXISTS inboxes (
    user    TEXT PRIMARY KEY NOT NULL,
    stamp   TEXT NOT NULL,          -- its revision
    changed INTEGER NOT NULL,
    days    TEXT NOT NULL           -- {stack: {seen, read, archived}}, bits in hexadecimal digits
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS inboxes_by_changed ON inboxes (changed);

-- Retracted events.
CREATE TABLE IF NOT EXISTS retractions (
    type   TEXT NOT NULL,
    object TEXT NOT NULL,
    at     TEXT NOT NULL,           -- an id: all events up to it are retracted
    PRIMARY KEY (type, object)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS retractions_by_at ON retractions (at);

-- Users and objects whose feeds may have changed. The oldest rows are removed.
CREATE TABLE IF NOT EXISTS change_notices (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    about TEXT NOT NULL,
    keys  BLOB NOT NULL
);

CREATE TABLE IF NOT EXISTS accumulators (
    user     TEXT NOT NULL,
    key      TEXT NOT NULL,
    stamp    TEXT NOT NULL,         -- its revision
    due      INTEGER,
    owner    TEXT,
    until    INTEGER,
    turn     INTEGER,
    open     TEXT,                  -- JSON: see record/batch.rs
    ended    TEXT NOT NULL,         -- JSON
    memories TEXT NOT NULL,         -- JSON
    PRIMARY KEY (user, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS accumulators_due ON accumulators (due, until);

-- Tables to find accumulators by batch or object.
CREATE TABLE IF NOT EXISTS accumulator_batches (
    batch TEXT PRIMARY KEY NOT NULL,
    user  TEXT NOT NULL,
    key   TEXT NOT NULL,
    open  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS accumulator_batches_by_accumulator ON accumulator_batches (user, key, batch);
CREATE INDEX IF NOT EXISTS accumulator_batches_by_key ON accumulator_batches (key, batch);
CREATE INDEX IF NOT EXISTS accumulator_batches_open ON accumulator_batches (open, batch);
CREATE TABLE IF NOT EXISTS accumulator_objects (
    type   TEXT NOT NULL,
    object TEXT NOT NULL,
    user   TEXT NOT NULL,
    key    TEXT NOT NULL,
    PRIMARY KEY (type, object, user, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS accumulator_objects_by_accumulator ON accumulator_objects (user, key);

CREATE TABLE IF NOT EXISTS batches (
    id       TEXT PRIMARY KEY NOT NULL,
    user     TEXT NOT NULL,
    key      TEXT NOT NULL,
    state    TEXT NOT NULL,
    settled  INTEGER,
    gathered TEXT NOT NULL          -- JSON
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS batches_by_user ON batches (user, id);
CREATE INDEX IF NOT EXISTS batches_by_key ON batches (key, id);
CREATE INDEX IF NOT EXISTS batches_by_state ON batches (state, id);
CREATE INDEX IF NOT EXISTS batches_settled ON batches (settled) WHERE settled IS NOT NULL;

CREATE TABLE IF NOT EXISTS deliveries (
    id          TEXT PRIMARY KEY NOT NULL,
    user        TEXT NOT NULL,
    cadence     TEXT,               -- of a digest
    period      TEXT,
    batch       TEXT,               -- of a batch
    turn        INTEGER,
    state       TEXT NOT NULL,
    open        INTEGER NOT NULL,
    slot        TEXT NOT NULL,
    covers      TEXT NOT NULL,      -- [{s: stack, n}]
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
    tag         TEXT NOT NULL DEFAULT '', -- identifies the email in reports of providers
    feedback    TEXT,
    feedback_at INTEGER,
    due_on      TEXT,               -- written by earlier versions
    refusals    INTEGER NOT NULL DEFAULT 0,
    reopened    INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS deliveries_open ON deliveries (slot) WHERE open;
CREATE INDEX IF NOT EXISTS deliveries_free ON deliveries (coalesce(until, 0), slot) WHERE open;
CREATE INDEX IF NOT EXISTS deliveries_by_user ON deliveries (user, created);
CREATE INDEX IF NOT EXISTS deliveries_by_state ON deliveries (state, created);
CREATE INDEX IF NOT EXISTS deliveries_by_call ON deliveries (call) WHERE open AND call IS NOT NULL;
CREATE INDEX IF NOT EXISTS deliveries_leased ON deliveries (owner) WHERE open AND owner IS NOT NULL;

CREATE INDEX IF NOT EXISTS deliveries_by_tag ON deliveries (tag);
CREATE INDEX IF NOT EXISTS deliveries_by_provider_id ON deliveries (provider_id) WHERE provider_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS deliveries_by_settled ON deliveries (settled, state, feedback) WHERE settled IS NOT NULL;

CREATE TABLE IF NOT EXISTS suppressions (
    address TEXT PRIMARY KEY NOT NULL,  -- in lower case
    reason  TEXT NOT NULL,
    at      INTEGER NOT NULL,
    source  TEXT NOT NULL,
    detail  TEXT,
    lifted  INTEGER                     -- when it was last lifted
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS soft_bounces (
    address  TEXT NOT NULL,
    delivery TEXT NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (address, delivery)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS webhook_receipts (
    key   TEXT PRIMARY KEY NOT NULL,
    mark  TEXT NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS webhook_receipts_by_until ON webhook_receipts (until);

CREATE TABLE IF NOT EXISTS leases (
    name  TEXT PRIMARY KEY NOT NULL,
    owner TEXT NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS notes (
    name TEXT PRIMARY KEY NOT NULL,
    text TEXT NOT NULL
) WITHOUT ROWID;
