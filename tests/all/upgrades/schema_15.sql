-- A file as schema 15 left it: see tests/all/upgrades.
PRAGMA application_id = 1952738919;
PRAGMA user_version = 15;
BEGIN TRANSACTION;
CREATE TABLE audiences (
    fanout   TEXT PRIMARY KEY NOT NULL,
    objects  TEXT NOT NULL,         -- JSON
    audience TEXT NOT NULL          -- JSON
);
INSERT INTO "audiences" VALUES('53524a4cb9a63dacae8afb46','["a1","a2","a9"]','{"to":{"followers_of":["artist:1"]}}');
INSERT INTO "audiences" VALUES('5353a1a850b06697e48305ab','["a3"]','{"to":{"followers_of":["artist:1"]}}');
INSERT INTO "audiences" VALUES('5353a4001c74b0d6d99ef4dc','["a5"]','{"to":{"users":["ada"]}}');
INSERT INTO "audiences" VALUES('5353a6582ae8aee6bbb3b24f','["a4"]','{"to":{"followers_of":["artist:1"]}}');
CREATE TABLE batches (
    id       TEXT PRIMARY KEY NOT NULL,
    user     TEXT NOT NULL,
    key      TEXT NOT NULL,
    state    TEXT NOT NULL,
    settled  INTEGER,
    gathered TEXT NOT NULL          -- JSON
) WITHOUT ROWID;
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
    tag         TEXT NOT NULL DEFAULT '', -- what providers name the mail by in their reports
    feedback    TEXT,
    feedback_at INTEGER,
    due_on      TEXT,               -- the local date on which a digest fell due
    refusals    INTEGER NOT NULL DEFAULT 0,
    reopened    INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
INSERT INTO "deliveries" VALUES('digest:cem:daily:2014-04-20','cem','daily','2014-04-20',NULL,NULL,'sent',0,'digest:cem','[{"s":"20140419","n":3}]','53539aa0ed103913a3aedd96',NULL,NULL,1,2,1397988000079,1397988000091,'digest-cem-daily-2014-04-20-ca03a146c7c23276e9348e330b64d3452696a65b.eml',NULL,'9b802c17-02cbb88891f99db1821feac4ca3c72583bb8ecbc',1397988000083,'ca03a146c7c23276e9348e330b64d3452696a65b',NULL,NULL,'2014-04-20',0,0);
INSERT INTO "deliveries" VALUES('digest:fay:daily:2014-04-20','fay','daily','2014-04-20',NULL,NULL,'sending',1,'digest:fay','[{"s":"20140419","n":3}]','53539aa0ed103913a3aedd97','w-dead',1397988300000,1,2,1397988000079,NULL,NULL,NULL,'9b802c17-02cbb88891f99db1821feac4ca3c72583bb8ecbc',1397988000083,'eae057789311fa9d3147ce9f6bca82bb65901d63',NULL,NULL,'2014-04-20',0,0);
CREATE TABLE details (
    fanout  TEXT PRIMARY KEY NOT NULL,
    details TEXT NOT NULL           -- JSON
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
INSERT INTO "fanouts" VALUES('53524a4cb9a63dacae8afb46','first','ArtworkPublished',NULL,'20140419',1397901900000,'done',NULL,5,15,0,NULL,NULL);
INSERT INTO "fanouts" VALUES('5353a1a850b06697e48305ab','second','ArtworkPublished',NULL,'20140420',1397989800000,'done',NULL,5,5,0,NULL,NULL);
INSERT INTO "fanouts" VALUES('5353a4001c74b0d6d99ef4dc','comment','Commented',NULL,'20140420',1397990400000,'done',NULL,1,1,0,NULL,NULL);
INSERT INTO "fanouts" VALUES('5353a6582ae8aee6bbb3b24f','third','ArtworkPublished',NULL,'20140420',1397991000000,'pending',NULL,0,0,0,NULL,NULL);
CREATE TABLE follows (
    k TEXT NOT NULL,
    u TEXT NOT NULL,
    PRIMARY KEY (k, u)
) WITHOUT ROWID;
INSERT INTO "follows" VALUES('artist:1','ada');
INSERT INTO "follows" VALUES('artist:1','ben');
INSERT INTO "follows" VALUES('artist:1','cem');
INSERT INTO "follows" VALUES('artist:1','dan');
INSERT INTO "follows" VALUES('artist:1','fay');
CREATE TABLE inboxes (
    user    TEXT PRIMARY KEY NOT NULL,
    stamp   TEXT NOT NULL,          -- as which it was put last
    changed INTEGER NOT NULL,
    days    TEXT NOT NULL           -- {stack: {seen, read, archived}}, bits in hexadecimal digits
) WITHOUT ROWID;
CREATE TABLE leases (
    name  TEXT PRIMARY KEY NOT NULL,
    owner TEXT NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE notes (
    name TEXT PRIMARY KEY NOT NULL,
    text TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "notes" VALUES('pause-ended','{"sent":2,"failed":0,"astray":0,"at":"2014-04-20T10:00:00.094373328Z"}');
CREATE TABLE notifications_20140419 (id PRIMARY KEY NOT NULL, n INTEGER NOT NULL, events TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "notifications_20140419" VALUES('ada',3,'{"t":"ArtworkPublished","o":"a1","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
{"t":"ArtworkPublished","o":"a2","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
{"t":"ArtworkPublished","o":"a9","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
');
INSERT INTO "notifications_20140419" VALUES('ben',3,'{"t":"ArtworkPublished","o":"a1","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
{"t":"ArtworkPublished","o":"a2","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
{"t":"ArtworkPublished","o":"a9","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
');
INSERT INTO "notifications_20140419" VALUES('cem',4,'{"t":"ArtworkPublished","o":"a1","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
{"t":"ArtworkPublished","o":"a2","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
{"t":"ArtworkPublished","o":"a9","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
{"flushed":{"$oid":"53539aa0ed103913a3aedd96"},"n":{"$numberInt":"3"}}
');
INSERT INTO "notifications_20140419" VALUES('dan',3,'{"t":"ArtworkPublished","o":"a1","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
{"t":"ArtworkPublished","o":"a2","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
{"t":"ArtworkPublished","o":"a9","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
');
INSERT INTO "notifications_20140419" VALUES('fay',3,'{"t":"ArtworkPublished","o":"a1","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
{"t":"ArtworkPublished","o":"a2","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
{"t":"ArtworkPublished","o":"a9","i":{"$oid":"53524a4cb9a63dacae8afb46"}}
');
CREATE TABLE notifications_20140420 (id PRIMARY KEY NOT NULL, n INTEGER NOT NULL, events TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "notifications_20140420" VALUES('ada',2,'{"t":"ArtworkPublished","o":"a3","i":{"$oid":"5353a1a850b06697e48305ab"}}
{"t":"Commented","o":"a5","i":{"$oid":"5353a4001c74b0d6d99ef4dc"}}
');
INSERT INTO "notifications_20140420" VALUES('ben',1,'{"t":"ArtworkPublished","o":"a3","i":{"$oid":"5353a1a850b06697e48305ab"}}
');
INSERT INTO "notifications_20140420" VALUES('cem',1,'{"t":"ArtworkPublished","o":"a3","i":{"$oid":"5353a1a850b06697e48305ab"}}
');
INSERT INTO "notifications_20140420" VALUES('dan',1,'{"t":"ArtworkPublished","o":"a3","i":{"$oid":"5353a1a850b06697e48305ab"}}
');
INSERT INTO "notifications_20140420" VALUES('fay',1,'{"t":"ArtworkPublished","o":"a3","i":{"$oid":"5353a1a850b06697e48305ab"}}
');
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
INSERT INTO "objects" VALUES('a1',1,'Work a1.','https://example.org/a1',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "objects" VALUES('a2',1,'Work a2.','https://example.org/a2',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "objects" VALUES('a3',1,'Work a3.','https://example.org/a3',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "objects" VALUES('a4',1,'Work a4.','https://example.org/a4',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "objects" VALUES('a5',1,'Work a5.','https://example.org/a5',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "objects" VALUES('a9',0,'Work a9.',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE pokes (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    about TEXT NOT NULL,
    keys  BLOB NOT NULL
);
INSERT INTO "pokes" VALUES(1,'objects',X'883CD9BD');
CREATE TABLE retractions (
    type   TEXT NOT NULL,
    object TEXT NOT NULL,
    at     TEXT NOT NULL,           -- an id: what happened up to then is reached
    PRIMARY KEY (type, object)
) WITHOUT ROWID;
INSERT INTO "retractions" VALUES('Artwork','a9','6b04b527a5729486521678ec');
CREATE TABLE seat_batches (
    batch TEXT PRIMARY KEY NOT NULL,
    user  TEXT NOT NULL,
    key   TEXT NOT NULL,
    open  INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "seat_batches" VALUES('5353a4001c74b0d6d99ef4de','ada','type:Commented',1);
CREATE TABLE seat_objects (
    type   TEXT NOT NULL,
    object TEXT NOT NULL,
    user   TEXT NOT NULL,
    key    TEXT NOT NULL,
    PRIMARY KEY (type, object, user, key)
) WITHOUT ROWID;
INSERT INTO "seat_objects" VALUES('Commented','a5','ada','type:Commented');
CREATE TABLE seats (
    user     TEXT NOT NULL,
    key      TEXT NOT NULL,
    stamp    TEXT NOT NULL,         -- as which it was put last
    due      INTEGER,
    owner    TEXT,
    until    INTEGER,
    turn     INTEGER,
    open     TEXT,                  -- JSON: see record/batch.rs
    ended    TEXT NOT NULL,         -- JSON
    memories TEXT NOT NULL,         -- JSON
    PRIMARY KEY (user, key)
) WITHOUT ROWID;
INSERT INTO "seats" VALUES('ada','type:Commented','5353a4001c74b0d6d99ef4df',1397990700071,NULL,NULL,NULL,'{"id":"5353a4001c74b0d6d99ef4de","state":"open","opened":1397990400071,"last":1397990400071,"closes":1397990700071,"policy":"300000/0/-1/0 last 10","count":1,"items":[{"i":"5353a4001c74b0d6d99ef4dc","t":"Commented","o":"a5"}],"joined":"5353a4001c74b0d6d99ef4dc"}','[]','[{"at":1397990100071,"joined":"5353a2d41c74b0d6d99ef4d05353a2d41c74b0d6d99ef4d1"}]');
CREATE TABLE sightings (
    key   TEXT PRIMARY KEY NOT NULL,
    mark  TEXT NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE soft_bounces (
    address  TEXT NOT NULL,
    delivery TEXT NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (address, delivery)
) WITHOUT ROWID;
CREATE TABLE suppressions (
    address TEXT PRIMARY KEY NOT NULL,  -- in lower case
    reason  TEXT NOT NULL,
    at      INTEGER NOT NULL,
    source  TEXT NOT NULL,
    detail  TEXT,
    lifted  INTEGER                     -- when it was last lifted
) WITHOUT ROWID;
INSERT INTO "suppressions" VALUES('zoe@example.org','manual',1397990700081,'operator',NULL,NULL);
CREATE TABLE users (
    id           TEXT PRIMARY KEY NOT NULL,
    email        TEXT,
    name         TEXT,
    confirmed    INTEGER NOT NULL,
    tz           TEXT,
    locale       TEXT,
    brand        TEXT,
    lng          REAL,
    lat          REAL,
    cell         INTEGER,           -- the square of the grid that holds (lng, lat): see near.rs
    cadence      TEXT,
    weekday      TEXT,
    hour         INTEGER,
    digest_since INTEGER,
    types        TEXT NOT NULL,     -- [{t: type, route, since, window}]
    suppressed   INTEGER,
    unsubscribed INTEGER,
    mutes        TEXT,              -- [{s: subject, at, until, title}]
    quiet        TEXT,              -- {from, to}
    start        TEXT,              -- where it begins: erased, id and entries (domain/start.rs)
    rev          INTEGER NOT NULL DEFAULT 1, -- how often the record was put
    preferences  TEXT               -- JSON of the fields without a column
) WITHOUT ROWID;
INSERT INTO "users" VALUES('ada','ada@example.org','Ada',1,'Europe/Lisbon',NULL,NULL,-9.14,38.72,185381,NULL,NULL,NULL,NULL,'[{"t":"Muted","route":"never"}]',NULL,NULL,NULL,NULL,NULL,1,NULL);
INSERT INTO "users" VALUES('ben','ben@example.org',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[]',NULL,NULL,NULL,NULL,NULL,1,NULL);
INSERT INTO "users" VALUES('cem','cem@example.org',NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,'daily',NULL,8,NULL,'[]',NULL,NULL,NULL,NULL,NULL,1,NULL);
INSERT INTO "users" VALUES('dan','dan@example.org',NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,'never',NULL,NULL,NULL,'[]',NULL,NULL,NULL,NULL,NULL,1,NULL);
INSERT INTO "users" VALUES('fay','fay@example.org',NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,'daily',NULL,8,NULL,'[]',NULL,NULL,NULL,NULL,NULL,1,NULL);
CREATE INDEX users_by_cell ON users (cell, id, lng, lat) WHERE cell IS NOT NULL;
CREATE INDEX users_by_email ON users (email COLLATE NOCASE, id);
CREATE INDEX users_by_schedule ON users (tz, hour, cadence, weekday);
CREATE INDEX follows_by_user ON follows (u);
CREATE INDEX fanouts_pending ON fanouts (at, id, until, day) WHERE state = 'pending';
CREATE INDEX fanouts_held ON fanouts (owner) WHERE owner IS NOT NULL;
CREATE INDEX inboxes_by_changed ON inboxes (changed);
CREATE INDEX retractions_by_at ON retractions (at);
CREATE INDEX seats_due ON seats (due, until);
CREATE INDEX seat_batches_by_seat ON seat_batches (user, key, batch);
CREATE INDEX seat_batches_by_key ON seat_batches (key, batch);
CREATE INDEX seat_batches_open ON seat_batches (open, batch);
CREATE INDEX seat_objects_by_seat ON seat_objects (user, key);
CREATE INDEX batches_by_user ON batches (user, id);
CREATE INDEX batches_by_key ON batches (key, id);
CREATE INDEX batches_by_state ON batches (state, id);
CREATE INDEX batches_settled ON batches (settled) WHERE settled IS NOT NULL;
CREATE UNIQUE INDEX deliveries_open ON deliveries (slot) WHERE open;
CREATE INDEX deliveries_free ON deliveries (coalesce(until, 0), slot) WHERE open;
CREATE INDEX deliveries_by_user ON deliveries (user, created);
CREATE INDEX deliveries_by_state ON deliveries (state, created);
CREATE INDEX deliveries_by_call ON deliveries (call) WHERE open AND call IS NOT NULL;
CREATE INDEX deliveries_held ON deliveries (owner) WHERE open AND owner IS NOT NULL;
CREATE INDEX deliveries_by_tag ON deliveries (tag);
CREATE INDEX deliveries_by_provider_id ON deliveries (provider_id) WHERE provider_id IS NOT NULL;
CREATE INDEX deliveries_by_settled ON deliveries (settled, state, feedback) WHERE settled IS NOT NULL;
CREATE INDEX sightings_by_until ON sightings (until);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('pokes',1);
COMMIT;
