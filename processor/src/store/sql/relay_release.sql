UPDATE oncely.slice SET worker = NULL
WHERE connector = $1 AND worker = $2 AND slice = ANY($3::smallint[])
