-- A person may have had it decided again since.
UPDATE oncely.parked SET suspect = true WHERE closed_at IS NULL AND effect IS NULL
