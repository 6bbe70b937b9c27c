-- Waits until every transaction has ended that was begun by `BEGIN` below, and lets none begin: what they write is
-- either seen by what follows, or decided after it.
LOCK TABLE oncely.failover IN EXCLUSIVE MODE
