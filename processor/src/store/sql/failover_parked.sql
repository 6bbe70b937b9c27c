-- A person may have had it decided again since. The first failover that may have lost that is the one that counts.
UPDATE oncely.parked SET failover = coalesce(failover, $1) WHERE closed_at IS NULL AND effect IS NULL
