-- Whoever lives goes on under a new id: what is claimed under the old ones may be forgotten here.
UPDATE oncely.worker SET dead_at = now() WHERE dead_at IS NULL AND ended_at IS NULL
