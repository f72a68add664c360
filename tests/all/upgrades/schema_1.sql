-- A file as schema 1 left it: see tests/all/upgrades.
PRAGMA application_id = 1952738919;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE audiences (
    fanout   TEXT PRIMARY KEY NOT NULL,
    objects  TEXT NOT NULL,         -- JSON
    audience TEXT NOT NULL          -- JSON
);
INSERT INTO "audiences" VALUES('53524a4c23d559dccbca4bba','["a1","a2","a9"]','{"to":{"followers_of":["artist:1"]}}');
INSERT INTO "audiences" VALUES('5353a1a80bfdf853f5418632','["a3"]','{"to":{"followers_of":["artist:1"]}}');
INSERT INTO "audiences" VALUES('5353a65861d12d6c3c308815','["a4"]','{"to":{"followers_of":["artist:1"]}}');
CREATE TABLE deliveries (
    id          TEXT PRIMARY KEY NOT NULL,
    user        TEXT NOT NULL,
    cadence     TEXT NOT NULL,
    period      TEXT NOT NULL,
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
    reason      TEXT
) WITHOUT ROWID;
INSERT INTO "deliveries" VALUES('digest:cem:daily:2014-04-20','cem','daily','2014-04-20','sent',0,'digest:cem','[["20140419",3]]','53539aa00597f5dd82369e98',NULL,NULL,1,2,1397988000039,1397988000045,'digest-cem-daily-2014-04-20-ca03a146c7c23276e9348e330b64d3452696a65b.eml',NULL);
INSERT INTO "deliveries" VALUES('digest:fay:daily:2014-04-20','fay','daily','2014-04-20','sending',1,'digest:fay','[["20140419",3]]','53539aa00597f5dd82369e99','w-dead',1397988300000,1,2,1397988000039,NULL,NULL,NULL);
CREATE TABLE fanouts (
    id     TEXT PRIMARY KEY NOT NULL,
    key    TEXT NOT NULL UNIQUE,
    type   TEXT NOT NULL,
    day    TEXT NOT NULL,
    at     INTEGER NOT NULL,
    state  TEXT NOT NULL,
    cursor TEXT,
    people INTEGER NOT NULL,
    pushed INTEGER NOT NULL,
    capped INTEGER NOT NULL,
    owner  TEXT,
    until  INTEGER
) WITHOUT ROWID;
INSERT INTO "fanouts" VALUES('53524a4c23d559dccbca4bba','first','ArtworkPublished','20140419',1397901900000,'done',NULL,5,15,0,NULL,NULL);
INSERT INTO "fanouts" VALUES('5353a1a80bfdf853f5418632','second','ArtworkPublished','20140420',1397989800000,'done',NULL,5,5,0,NULL,NULL);
INSERT INTO "fanouts" VALUES('5353a65861d12d6c3c308815','third','ArtworkPublished','20140420',1397991000000,'pending',NULL,0,0,0,NULL,NULL);
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
CREATE TABLE leases (
    name  TEXT PRIMARY KEY NOT NULL,
    owner TEXT NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE notifications_20140419 (id PRIMARY KEY NOT NULL, n INTEGER NOT NULL, events TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "notifications_20140419" VALUES('ada',3,'{"t":"ArtworkPublished","o":"a1","i":{"$oid":"53524a4c23d559dccbca4bba"}}
{"t":"ArtworkPublished","o":"a2","i":{"$oid":"53524a4c23d559dccbca4bba"}}
{"t":"ArtworkPublished","o":"a9","i":{"$oid":"53524a4c23d559dccbca4bba"}}
');
INSERT INTO "notifications_20140419" VALUES('ben',3,'{"t":"ArtworkPublished","o":"a1","i":{"$oid":"53524a4c23d559dccbca4bba"}}
{"t":"ArtworkPublished","o":"a2","i":{"$oid":"53524a4c23d559dccbca4bba"}}
{"t":"ArtworkPublished","o":"a9","i":{"$oid":"53524a4c23d559dccbca4bba"}}
');
INSERT INTO "notifications_20140419" VALUES('cem',4,'{"t":"ArtworkPublished","o":"a1","i":{"$oid":"53524a4c23d559dccbca4bba"}}
{"t":"ArtworkPublished","o":"a2","i":{"$oid":"53524a4c23d559dccbca4bba"}}
{"t":"ArtworkPublished","o":"a9","i":{"$oid":"53524a4c23d559dccbca4bba"}}
{"flushed":{"$oid":"53539aa00597f5dd82369e98"},"n":{"$numberInt":"3"}}
');
INSERT INTO "notifications_20140419" VALUES('dan',3,'{"t":"ArtworkPublished","o":"a1","i":{"$oid":"53524a4c23d559dccbca4bba"}}
{"t":"ArtworkPublished","o":"a2","i":{"$oid":"53524a4c23d559dccbca4bba"}}
{"t":"ArtworkPublished","o":"a9","i":{"$oid":"53524a4c23d559dccbca4bba"}}
');
INSERT INTO "notifications_20140419" VALUES('fay',3,'{"t":"ArtworkPublished","o":"a1","i":{"$oid":"53524a4c23d559dccbca4bba"}}
{"t":"ArtworkPublished","o":"a2","i":{"$oid":"53524a4c23d559dccbca4bba"}}
{"t":"ArtworkPublished","o":"a9","i":{"$oid":"53524a4c23d559dccbca4bba"}}
');
CREATE TABLE notifications_20140420 (id PRIMARY KEY NOT NULL, n INTEGER NOT NULL, events TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "notifications_20140420" VALUES('ada',1,'{"t":"ArtworkPublished","o":"a3","i":{"$oid":"5353a1a80bfdf853f5418632"}}
');
INSERT INTO "notifications_20140420" VALUES('ben',1,'{"t":"ArtworkPublished","o":"a3","i":{"$oid":"5353a1a80bfdf853f5418632"}}
');
INSERT INTO "notifications_20140420" VALUES('cem',1,'{"t":"ArtworkPublished","o":"a3","i":{"$oid":"5353a1a80bfdf853f5418632"}}
');
INSERT INTO "notifications_20140420" VALUES('dan',1,'{"t":"ArtworkPublished","o":"a3","i":{"$oid":"5353a1a80bfdf853f5418632"}}
');
INSERT INTO "notifications_20140420" VALUES('fay',1,'{"t":"ArtworkPublished","o":"a3","i":{"$oid":"5353a1a80bfdf853f5418632"}}
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
    types        TEXT NOT NULL,     -- {type: [route, since]}
    suppressed   INTEGER
) WITHOUT ROWID;
INSERT INTO "users" VALUES('ada','ada@example.org','Ada',1,'Europe/Lisbon',NULL,-9.14,38.72,185381,NULL,NULL,NULL,NULL,'{"Muted":["never",0]}',NULL);
INSERT INTO "users" VALUES('ben','ben@example.org',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}',NULL);
INSERT INTO "users" VALUES('cem','cem@example.org',NULL,1,NULL,NULL,NULL,NULL,NULL,'daily',NULL,8,NULL,'{}',NULL);
INSERT INTO "users" VALUES('dan','dan@example.org',NULL,1,NULL,NULL,NULL,NULL,NULL,'never',NULL,NULL,NULL,'{}',NULL);
INSERT INTO "users" VALUES('fay','fay@example.org',NULL,1,NULL,NULL,NULL,NULL,NULL,'daily',NULL,8,NULL,'{}',NULL);
CREATE INDEX users_by_cell ON users (cell, id, lng, lat) WHERE cell IS NOT NULL;
CREATE INDEX follows_by_user ON follows (u);
CREATE INDEX fanouts_pending ON fanouts (at, id, until, day) WHERE state = 'pending';
CREATE INDEX fanouts_held ON fanouts (owner) WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX deliveries_open ON deliveries (slot) WHERE open;
CREATE INDEX deliveries_by_user ON deliveries (user, created);
CREATE INDEX deliveries_by_state ON deliveries (state);
CREATE INDEX deliveries_held ON deliveries (owner) WHERE open AND owner IS NOT NULL;
COMMIT;
