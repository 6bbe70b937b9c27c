-- What is finished counts only as far as it is on record here. The epoch leaves out those that may have been
-- given out in what is lost. How far records are in doubt is looked up before they are read.
UPDATE oncely.progress
SET epoch = epoch + $1, suspect = 9223372036854775807, decided = NULL, updated_at = now()
