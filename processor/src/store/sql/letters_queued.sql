UPDATE oncely.parked SET letter = false WHERE id = ANY($1::bigint[])
