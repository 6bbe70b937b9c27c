UPDATE oncely.failover SET positions = $2, effects = $3 WHERE number = $1
