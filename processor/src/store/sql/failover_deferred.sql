-- It may have gone since, with what it waited for.
UPDATE oncely.deferred SET suspect = true WHERE closed_at IS NULL
