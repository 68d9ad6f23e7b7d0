"""The tables of a batch's state file, and the statements that put its rows into the order of sending."""

VERSION = 1

PRAGMAS = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA cache_size = -4096;
PRAGMA wal_autocheckpoint = 1000;
PRAGMA journal_size_limit = 8388608;
"""
"""One process at a time, which the lock proves. What a power cut takes back is found again in the output itself."""

TABLES = f"""
PRAGMA user_version = {VERSION};
CREATE TABLE facts (facts TEXT NOT NULL);
CREATE TABLE problems (line INTEGER PRIMARY KEY, custom_id TEXT, code TEXT NOT NULL, message TEXT NOT NULL, param TEXT);
CREATE TABLE workers (label TEXT PRIMARY KEY, jobs INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE work (
  place INTEGER PRIMARY KEY, -- in the order of sending, so that rows that end together stand together
  number INTEGER NOT NULL,
  start INTEGER NOT NULL,
  length INTEGER NOT NULL,
  custom_id TEXT,
  cost INTEGER NOT NULL,
  twin_of INTEGER,
  bad INTEGER NOT NULL,
  generation INTEGER NOT NULL DEFAULT 0,
  status INTEGER NOT NULL DEFAULT 0,
  file INTEGER,
  line_start INTEGER,
  line_length INTEGER,
  tokens_in INTEGER,
  tokens_out INTEGER,
  queue_ms INTEGER,
  ttft_ms INTEGER
);
"""

INTAKE = """
PRAGMA intake.locking_mode = EXCLUSIVE;
PRAGMA intake.journal_mode = OFF;
PRAGMA intake.synchronous = OFF;
PRAGMA intake.cache_size = -8192;
CREATE TABLE intake.rows (
  number INTEGER PRIMARY KEY,
  start INTEGER NOT NULL,
  length INTEGER NOT NULL,
  custom_id TEXT,
  key BLOB NOT NULL,
  cost INTEGER NOT NULL,
  digest BLOB,
  bad INTEGER NOT NULL
);
CREATE UNIQUE INDEX intake.by_id ON rows (custom_id) WHERE custom_id IS NOT NULL;
CREATE TABLE intake.twins (number INTEGER PRIMARY KEY, original INTEGER NOT NULL);
CREATE TABLE intake.turns (number INTEGER PRIMARY KEY, shared BLOB NOT NULL, turn INTEGER NOT NULL);
"""
"""A file of its own, thrown away once the rows are planned: a crash before that validates anew."""

_TWINS = """
INSERT INTO intake.twins
SELECT number, original FROM (
  SELECT number, min(number) OVER (PARTITION BY digest) AS original
  FROM intake.rows WHERE digest IS NOT NULL AND NOT bad
) WHERE number > original ORDER BY number
"""

_COLUMNS = "place, number, start, length, custom_id, cost, twin_of, bad"
_AS_THEY_STAND = f"""
INSERT INTO work ({_COLUMNS})
SELECT row_number() OVER (ORDER BY r.bad DESC, coalesce(t.original, r.number), r.number),
  r.number, r.start, r.length, r.custom_id, r.cost, t.original, r.bad
FROM intake.rows r LEFT JOIN intake.twins t ON t.number = r.number
ORDER BY 1
"""
# A key is a chain of hashes of 8 bytes. Of each row's, what another row shares is its group, so that rows that
# share nothing are one group. Inside a group the cheapest follows the dearest, the next cheapest the next dearest.
_TURNS = """
INSERT INTO intake.turns
WITH neighbours AS (
  SELECT number, cost, key, lag(key) OVER byte_order AS before, lead(key) OVER byte_order AS after
  FROM intake.rows r WHERE NOT bad AND NOT EXISTS (SELECT 1 FROM intake.twins t WHERE t.number = r.number)
  WINDOW byte_order AS (ORDER BY key)
), groups AS (
  SELECT number, cost, CASE
    WHEN key IN (before, after) THEN key
    WHEN substr(key, 1, 24) IN (substr(before, 1, 24), substr(after, 1, 24)) THEN substr(key, 1, 24)
    WHEN substr(key, 1, 16) IN (substr(before, 1, 16), substr(after, 1, 16)) THEN substr(key, 1, 16)
    WHEN substr(key, 1, 8) IN (substr(before, 1, 8), substr(after, 1, 8)) THEN substr(key, 1, 8)
    ELSE x'' END AS shared
  FROM neighbours
), ranks AS (
  SELECT number, shared, row_number() OVER (PARTITION BY shared ORDER BY cost DESC, number) AS rank,
    count(*) OVER (PARTITION BY shared) AS size
  FROM groups
)
SELECT number, shared, min(2 * rank - 1, 2 * (size - rank) + 2) FROM ranks ORDER BY number
"""
_GROUPED = f"""
INSERT INTO work ({_COLUMNS})
SELECT row_number() OVER (ORDER BY r.bad DESC, turns.shared, turns.turn, turns.number, r.number),
  r.number, r.start, r.length, r.custom_id, r.cost, t.original, r.bad
FROM intake.rows r
LEFT JOIN intake.twins t ON t.number = r.number
LEFT JOIN intake.turns ON turns.number = coalesce(t.original, r.number)
ORDER BY 1
"""
_INDEXES = (
    "CREATE UNIQUE INDEX by_number ON work (number)",
    "CREATE INDEX by_original ON work (twin_of) WHERE twin_of IS NOT NULL",
)


def planning(*, group: bool, dedup: bool) -> tuple[str, ...]:
    """The statements that move the rows of the intake into `work`; see `Ledger.plan`."""
    return (*([_TWINS] if dedup else []), *((_TURNS, _GROUPED) if group else (_AS_THEY_STAND,)), *_INDEXES)
